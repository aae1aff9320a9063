"""Backfill: blocked jobs hold reservations, and later ones start beside them only if they delay none.

EASY backfill (Lifka, The ANL/IBM SP scheduling system, 1995) with a reservation for the first jobs of each team rather
than one in all, on the nodes themselves rather than on a count. A reservation is a time and some cards on some nodes;
a job that ends by that time does not touch it, another may only use what is left over there.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from scheduler.engine.cluster import flags
from scheduler.engine.demand import PendingJob
from scheduler.engine.horizon import NEVER, Horizon
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit
from scheduler.engine.plan import Piece
from scheduler.engine.policy import Policy, Queueing
from scheduler.engine.snapshot import Lane, RunningJob


class Reservation(NamedTuple):
    """From ``at`` (seconds) on, ``cards`` (node -> number) are ``job``'s."""

    job: PendingJob
    at: float
    cards: dict[int, int]


class Reservations:
    """The reservations of one decision. ``horizon`` is changed: every start is entered in it."""

    def __init__(self, horizon: Horizon, ledger: Ledger, policy: Policy, now: float) -> None:
        self.made: list[Reservation] = []
        self._horizon = horizon
        self._policy = policy
        self._now = now
        self._ledger = ledger
        self._started: dict[int, list[tuple[PendingJob, int]]] = {}
        self._held: dict[int, int] = {}
        self._claimed: dict[int, set[int]] = {}
        self._by_team: dict[int, int] = {}
        self._times: list[float] = []
        self._caps: dict[int, dict[int, int]] = {}

    def reserve(self, lane: Lane, job: PendingJob, allowed: int) -> None:
        """Hold the earliest place for a blocked job, if its team may hold one more and the running jobs promise one."""
        line = self._line(lane)
        if self._by_team.get(line, 0) >= self._policy.reserve_for or lane.fit.slices:
            return
        found = self._soonest(lane.fit, allowed & self._ledger.ready & ~lane.fit.excluded)
        if found is None:
            return
        at, cards = found
        if at <= self._now:
            return  # the cards are there: it is something else that it lacks
        self._by_team[line] = self._by_team.get(line, 0) + 1
        self.made.append(Reservation(job, at, cards))
        insort(self._times, self.made[-1].at)
        self._caps.clear()
        for node, number in cards.items():
            self._held[node] = self._held.get(node, 0) + number

    def caps(self, job: PendingJob) -> dict[int, int]:
        """Per node with a reservation, the most cards that ``job`` may take there so that it delays none."""
        binding = bisect_left(self._times, self._ends(job))
        caps = self._caps.get(binding)
        if caps is None:
            caps = self._caps[binding] = {}
            for reservation in sorted(self.made, key=attrgetter("at"))[:binding]:
                for node, number in reservation.cards.items():
                    spare = max(0, self._free_at(node, reservation.at) - number)
                    caps[node] = min(caps.get(node, spare), spare)
        return caps

    def caps_after(
        self, job: PendingJob, given_up: Iterable[tuple[RunningJob, tuple[Piece, ...]]]
    ) -> Mapping[int, int]:
        """The same once others give up some pieces: cards that nobody had been promised by then are nobody's loss."""
        binding = bisect_left(self._times, self._ends(job))
        if not binding:
            return {}
        index = self._ledger.inventory.index
        gains: dict[int, list[tuple[float, int]]] = {}
        for running, pieces in given_up:
            until = NEVER if running.ends_by is None else running.ends_by
            for piece in pieces:
                if not piece.mib and piece.node in index:
                    gains.setdefault(index[piece.node], []).append((until, len(piece.gpus)))
        caps: dict[int, int] = {}
        for reservation in sorted(self.made, key=attrgetter("at"))[:binding]:
            for node, number in reservation.cards.items():
                gained = sum(cards for until, cards in gains.get(node, ()) if until > reservation.at)
                spare = max(0, self._free_at(node, reservation.at) + gained - number)
                caps[node] = min(caps.get(node, spare), spare)
        return caps

    def one_more_after(self, job: PendingJob, lane: Lane) -> bool:
        """Whether a job has just got its reservation, and its team may hold another one."""
        mine = bool(self.made) and self.made[-1].job is job
        return mine and self._by_team.get(self._line(lane), 0) < self._policy.reserve_for

    def binding(self, job: PendingJob, nodes: int) -> Reservation | None:
        """The first reservation on ``nodes`` that ``job`` would delay."""
        ends = self._ends(job)
        for reservation in self.made:
            if ends > reservation.at and any(nodes >> node & 1 for node in reservation.cards):
                return reservation
        return None

    def note_start(self, job: PendingJob, pieces: Iterable[Piece]) -> None:
        """Enter a start, which the ledger has already; what follows from it is worked out when somebody asks."""
        for piece in pieces:
            node = self._ledger.inventory.index[piece.node]
            self._started.setdefault(node, []).append((job, 0 if piece.mib else len(piece.gpus)))
            if node in self._held:
                self._caps.clear()

    def note_claim(
        self,
        winner: PendingJob,
        pieces: Iterable[Piece],
        leaving: Iterable[tuple[RunningJob, tuple[Piece, ...]]],
    ) -> None:
        """Promise the cards that are vacated for a winner when it ends, and what else its victims leave at once."""
        index = self._ledger.inventory.index
        for piece in pieces:
            if not piece.mib:
                self._claimed.setdefault(index[piece.node], set()).update(piece.gpus)
        self.note_start(winner, pieces)
        for running, left in leaving:
            for node in {index[piece.node] for piece in left if piece.node in index} & self._claimed.keys():
                self._vacate(node, running, left)

    def _vacate(self, node: int, running: RunningJob, left: tuple[Piece, ...]) -> None:
        """Enter what a job that leaves some pieces keeps of a node, and what it leaves there for anybody."""
        here = [piece for piece in running.pieces if self._ledger.inventory.index.get(piece.node) == node]
        kept = sum(len(piece.gpus) for piece in here if piece not in left and not piece.mib)
        gone = {gpu for piece in here if piece in left and not piece.mib for gpu in piece.gpus}
        self._horizon.forget(node, running.job.key)
        self._horizon.promise(node, running.job.key, running.ends_by, kept)
        self._horizon.promise(node, running.job.key, self._now, len(gone - self._claimed[node]))
        self._started.setdefault(node, [])
        self._caps.clear()

    def _line(self, lane: Lane) -> int:
        return -1 if self._policy.queueing is Queueing.FIFO else lane.team

    def _catch_up(self, node: int) -> None:
        """Enter the starts on a node in its row."""
        started = self._started.pop(node, None)
        if started is not None:
            for job, cards in started:
                if cards and job.time_limit is not None:
                    self._horizon.promise(node, job.key, self._now + job.time_limit, cards)
            self._horizon.refresh(node, self._ledger.free[node].bit_count())

    def _ends(self, job: PendingJob) -> float:
        return NEVER if job.time_limit is None else self._now + job.time_limit

    def _free_at(self, node: int, at: float) -> int:
        """Cards free on a node at a time, as promised."""
        self._catch_up(node)
        return int(np.searchsorted(self._horizon.rows[node], at, side="right")) - 1

    def _soonest(self, fit: Fit, nodes: int) -> tuple[float, dict[int, int]] | None:
        """The earliest place within what the job's topology requires; how it is spread within is not looked at."""
        level = fit.shape.topology.require
        areas = (nodes,) if level is None else [domain & nodes for domain in fit.inventory.domains(level)]
        found = [place for area in areas if area and (place := self._earliest(fit, area)) is not None]
        return min(found, key=itemgetter(0), default=None)

    def _earliest(self, fit: Fit, nodes: int) -> tuple[float, dict[int, int]] | None:
        """The earliest time at which all replicas fit beside the reservations before, and the cards they would take."""
        for node in list(self._started):
            self._catch_up(node)
        taken: dict[int, int] = {}
        latest = -np.inf
        for each in fit.groups:
            gpus, replicas = each.group.gpus, each.group.replicas
            spots = np.flatnonzero(flags(each.nodes & nodes, len(fit.inventory)))
            width = self._horizon.rows.shape[1] - 1
            if not gpus or gpus > width or not spots.size:
                return None
            steps = range(gpus, width + 1, gpus)
            times = np.stack([self._horizon.rows[spots, step] for step in steps], axis=1)
            for node in self._held.keys() | taken.keys():
                row = int(np.searchsorted(spots, node))
                if row < spots.size and spots[row] == node:
                    held = self._held.get(node, 0) + taken.get(node, 0)
                    times[row] = [self._horizon.rows[node, k + held] if k + held <= width else NEVER for k in steps]
            order = np.argsort(times, axis=None, kind="stable")[:replicas]
            if order.size < replicas or times.flat[order[-1]] == NEVER:
                return None
            latest = max(latest, float(times.flat[order[-1]]))
            for row in (order // times.shape[1]).tolist():
                node = int(spots[row])
                taken[node] = taken.get(node, 0) + gpus
        return latest, taken
