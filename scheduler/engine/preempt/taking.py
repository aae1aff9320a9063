"""Who may take what from whom, in one decision: reclaim first, then preemption by priority."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.engine.accounts import Accounts
from scheduler.engine.demand import PendingJob
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, replica_nano
from scheduler.engine.placement.gang import Placed, place, undo
from scheduler.engine.placement.strategy import Strategy
from scheduler.engine.plan import Cause, Claim, Piece
from scheduler.engine.policy import Policy
from scheduler.engine.preempt import claims
from scheduler.engine.preempt.search import Found, Search, Unit
from scheduler.engine.preempt.shields import NEVER, lost_work, open_to_preemption, open_to_reclaim
from scheduler.engine.resizing import Resizing
from scheduler.engine.snapshot import Lane, Phase, RunningJob, Snapshot

ANY_PRIORITY = 1 << 30
A_MOMENT = 1e-6
"""Seconds that sums of times may be off by: less than that before its time is its time."""
CapsAfter = Callable[[PendingJob, Iterable[tuple[RunningJob, tuple[Piece, ...]]]], Mapping[int, int]]
"""Per node with a reservation, the most free cards that a job may take once others have given up some pieces."""


class Verdict(NamedTuple):
    """What a job may take: ``found``, or nothing, and then when the first of what it might take opens (seconds).

    Without a ``cause`` it needs no right: it is what elastic jobs hold beyond their size.
    """

    cause: Cause | None
    found: Found | None = None
    opens: float = NEVER


class Right(NamedTuple):
    """By what right: a higher ``priority``, or what a team is guaranteed of some models.

    ``numbers`` has these models, each with the teams out of whose numbers that is promised.

    A job that has just given way, whole or in part, takes no loan of a higher ``priority`` back: otherwise the two
    rights would chase each other round.
    """

    cause: Cause | None
    priority: int = ANY_PRIORITY
    numbers: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Candidate(NamedTuple):
    """A running job that could be taken from, and when each right may do it."""

    running: RunningJob
    team: int
    reclaim_from: float
    preempt_from: float


class Hope(NamedTuple):
    """What one right could take at most: the ledger without all of it, and the books."""

    units: list[Unit]
    opens: float
    best: Ledger
    used: list[int]


class Taking:
    """The running jobs of one decision, and what has been taken of them so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        now: float,
        accounts: Accounts,
        strategy: Strategy,
        resizing: Resizing,
    ) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._now = now
        self._accounts = accounts
        self._strategy = strategy
        self._surplus = resizing.surplus
        self._resized = resizing.resizes
        by_right = policy.reclaim.enabled or policy.preemption.enabled
        self.enabled = bool(snapshot.running) and (by_right or bool(self._surplus))
        self.taken: dict[str, tuple[Piece, ...]] = {}
        self.winners: list[str] = []
        self._ended: set[str] = set()
        self._stopping = [each for each in snapshot.running.values() if each.phase is Phase.STOPPING]
        self._candidates: list[Candidate] | None = None
        self._parts: dict[str, list[Unit]] = {}
        self._hopes: dict[Right, Hope] = {}
        self._numbers: dict[tuple[int, tuple[str, ...]], tuple[tuple[str, tuple[int, ...]], ...]] = {}

    def for_job(self, lane: Lane, job: PendingJob, future: Callable[[], Ledger], caps: CapsAfter) -> Verdict | None:
        """What ``job`` may take so that it starts; None where it has no right to anything.

        ``future`` makes the ledger of what is free once everyone who is leaving has left; ``caps`` tells how many of
        those cards others have not reserved.
        """
        if self._surplus:
            verdict = self._try(lane, job, None, future, caps)
            if verdict.found is not None:
                return verdict
        waiting_for_loans: Verdict | None = None
        entitled = self._entitled_on(lane) if self._policy.reclaim.enabled else ()
        if entitled:
            verdict = self._try(lane, job, Cause.RECLAIM, future, caps, entitled)
            if verdict.found is not None:
                return verdict
            waiting_for_loans = verdict if verdict.opens < NEVER else None
        if self._policy.preemption.enabled:
            verdict = self._try(lane, job, Cause.PREEMPTION, future, caps)
            if verdict.found is not None or waiting_for_loans is None:
                return verdict
        return waiting_for_loans

    def note(self, found: Found, winner: PendingJob) -> None:
        """Enter what a job has taken: of a job that ends, all that it holds."""
        self.winners.append(winner.key)
        for unit in found.units:
            self.taken[unit.job] = self.taken.get(unit.job, ()) + unit.pieces
        for unit in found.units:
            if unit.whole:
                self._ended.add(unit.job)
                self.taken[unit.job] = self._snapshot.running[unit.job].pieces
        self._hopes.clear()

    def leaving(self) -> Iterator[tuple[RunningJob, tuple[Piece, ...]]]:
        """The running jobs that are on their way out, or give up replicas, with the pieces they leave."""
        for running in self._stopping:
            yield running, running.pieces
        for key, pieces in self.taken.items():
            yield self._snapshot.running[key], pieces

    def still_leaving(self, claim: Claim) -> bool:
        """Whether somebody who holds cards of a claim is on the way out."""
        cards = {(piece.node, gpu) for piece in claim.pieces for gpu in piece.gpus}
        return any(
            (piece.node, gpu) in cards for running in self._stopping for piece in running.pieces for gpu in piece.gpus
        )

    def _entitled_on(self, lane: Lane) -> tuple[str, ...]:
        """The models on which the team stays within its guaranteed number with this job."""
        fit, accounts = lane.fit, self._accounts
        return tuple(
            [model for model in fit.models if 0 < fit.needs(model) <= accounts.entitlement(lane.team, (model,))]
        )

    def _try(
        self,
        lane: Lane,
        job: PendingJob,
        cause: Cause | None,
        future: Callable[[], Ledger],
        caps: CapsAfter,
        entitled: tuple[str, ...] = (),
    ) -> Verdict:
        """Look first whether all that may be taken would be enough, then for the smallest part of it that is.

        The first look may go by books of a moment ago: starts since have only left less, so it never says no wrongly.
        """
        right = self._right(cause, lane, job, entitled)
        hope = self._hopes.get(right) or self._hope(right, future)
        if not hope.units and not self.taken and not self._stopping:
            return Verdict(cause, None, hope.opens)
        fit = lane.fit

        def unreserved(given_up: Sequence[Unit]) -> Mapping[int, int]:
            return caps(job, [(self._snapshot.running[unit.job], unit.pieces) for unit in given_up])

        within = fit.inventory.of_model(tuple(model for model, _ in right.numbers)) if right.numbers else fit.nodes
        nodes = self._accounts.allowed_by(fit, lane.team, hope.used) & within
        if not _would_fit(hope.best, fit, self._strategy, nodes, unreserved(hope.units)):
            return Verdict(cause, None, hope.opens)
        leaving = self._leaving_amounts()

        def allowed(given_up: Sequence[Unit]) -> int:
            used = [*leaving, *((unit.team, unit.amounts) for unit in given_up)]
            return self._accounts.allowed_after(fit, lane.team, used) & within

        search = Search(future(), fit, self._strategy, allowed, unreserved)
        by_node = cause is Cause.PREEMPTION and fit.solo and not fit.slices
        found = (search.cheapest_node(hope.units) if by_node else None) or search.smallest(hope.units)
        if found is None:
            self._hopes.pop(right)
        return Verdict(cause, found, hope.opens)

    def _right(self, cause: Cause | None, lane: Lane, job: PendingJob, entitled: tuple[str, ...]) -> Right:
        if cause is Cause.PREEMPTION:
            return Right(cause, priority=job.priority)
        if cause is None:
            return Right(cause)
        gave_way = job.returning or lane.number < 0  # a job that runs asks back what it may have given up
        numbers = self._numbers.get((lane.team, entitled))
        if numbers is None:
            numbers = tuple((model, self._accounts.promised_by(lane.team, model)) for model in entitled)
            self._numbers[lane.team, entitled] = numbers
        return Right(cause, job.priority if gave_way else ANY_PRIORITY, numbers)

    def _hope(self, right: Right, future: Callable[[], Ledger]) -> Hope:
        units, opens = self._units(right) if right.cause is not None else (self._surplus_units(), NEVER)
        if not units and not self.taken and not self._stopping:
            hope = Hope(units, opens, self._snapshot.ledger, self._accounts.used)
        else:
            best, used = future(), self._accounts.copy_used()
            for team, amounts in [*self._leaving_amounts(), *((unit.team, unit.amounts) for unit in units)]:
                self._accounts.add(used, team, amounts, -1)
            for unit in units:
                claims.release(best, unit.spots)
            hope = Hope(units, opens, best, used)
        self._hopes[right] = hope
        return hope

    def _leaving_amounts(self) -> list[tuple[int, tuple[tuple[str, int], ...]]]:
        index = self._accounts.tree.index
        return [
            (index[running.job.team], running.amounts if len(pieces) == len(running.pieces) else self.amounts(pieces))
            for running, pieces in self.leaving()
        ]

    def _units(self, right: Right) -> tuple[list[Unit], float]:
        """What may be taken by one right, in the order in which it should go, and when the next thing opens."""
        cause, priority = right.cause, right.priority
        if cause is Cause.PREEMPTION and priority <= self._least_priority:
            return [], NEVER  # most decisions end here: a look at each job's protections would cost more than all else
        candidates = self._all_candidates()
        priorities, reclaim_from, preempt_from = self._columns
        at = reclaim_from if cause is Cause.RECLAIM else preempt_from
        mine = priorities < priority + (cause is Cause.RECLAIM)
        past = at <= self._now + A_MOMENT
        opens = float(at[mine & ~past].min(initial=NEVER))
        open_now = (candidates[position] for position in np.flatnonzero(mine & past).tolist())
        units = [unit for each in open_now if each.running.job.key not in self._ended for unit in self._parts_of(each)]
        if cause is Cause.RECLAIM:
            units.sort(key=lambda unit: (unit.whole, -unit.started, unit.job))
            return self._only_loans(units, dict(right.numbers)), opens
        units.sort(key=lambda unit: (unit.whole, unit.lost, -unit.started, unit.job))
        return units, opens

    def _surplus_units(self) -> list[Unit]:
        """The replicas of elastic jobs beyond their size, those of the latest jobs first."""
        units = []
        for candidate in reversed(self._all_candidates()):
            key = candidate.running.job.key
            beyond = self._surplus.get(key, 0) - len(self.taken.get(key, ()))
            if beyond > 0 and key not in self._ended:
                units += [unit for unit in self._parts_of(candidate) if not unit.whole][:beyond]
        return units

    def _only_loans(self, units: list[Unit], numbers: Mapping[str, tuple[int, ...]]) -> list[Unit]:
        """Of units in order, those whose team is above its guaranteed number, of the models asked for, in its turn."""
        books = self._accounts.copy_used()
        for team, amounts in self._leaving_amounts():
            self._accounts.add(books, team, amounts, -1)
        loans = []
        for unit in units:
            models = [model for model, _ in unit.amounts if model in numbers]
            if any(self._accounts.borrowed(unit.team, model, books, numbers[model]) > 0 for model in models):
                loans.append(unit)
                self._accounts.add(books, unit.team, unit.amounts, -1)
        return loans

    @cached_property
    def _least_priority(self) -> int:
        """The lowest priority of any running job."""
        return min([running.job.priority for running in self._snapshot.running.values()], default=0)

    @cached_property
    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Of the candidates, in their order: priority, and when each right may take them."""
        rows = self._all_candidates()
        priorities = np.array([each.running.job.priority for each in rows], np.int64)
        reclaim_from = np.array([each.reclaim_from for each in rows], np.float64)
        return priorities, reclaim_from, np.array([each.preempt_from for each in rows], np.float64)

    def _all_candidates(self) -> list[Candidate]:
        if self._candidates is None:
            index, policy, now = self._accounts.tree.index, self._policy, self._now
            self._candidates = [
                Candidate(
                    running, index[running.job.team], open_to_reclaim(running, policy),
                    open_to_preemption(running, policy, now),
                )
                for running in sorted(self._snapshot.running.values(), key=attrgetter("started", "job.key"))
                if running.phase is not Phase.STOPPING and running.job.key not in self._resized
            ]  # fmt: skip
        return self._candidates

    def _parts_of(self, candidate: Candidate) -> list[Unit]:
        """What is left to take of a running job."""
        key = candidate.running.job.key
        if key not in self._parts:
            self._parts[key] = list(self._split(candidate))
        given_up = self.taken.get(key)
        return [unit for unit in self._parts[key] if not given_up or unit.pieces[0] not in given_up]

    def _split(self, candidate: Candidate) -> Iterator[Unit]:
        """The replicas an elastic job can spare, the last first, then all of the job that is left."""
        running = candidate.running
        spare = _spare_replicas(running)
        kept = running.pieces[: len(running.pieces) - spare]
        for piece in reversed(running.pieces[len(kept) :]):
            yield self._unit(candidate, (piece,), whole=False, lost=0.0)
        yield self._unit(candidate, kept, whole=True, lost=lost_work(running, self._now))

    def _unit(self, candidate: Candidate, pieces: tuple[Piece, ...], *, whole: bool, lost: float) -> Unit:
        running = candidate.running
        spots = claims.locate(self._snapshot.ledger, running.job.shape, pieces) or []
        amounts = running.amounts if pieces == running.pieces else self.amounts(pieces)
        return Unit(running.job.key, whole, pieces, spots, amounts, candidate.team, running.started, lost)

    def amounts(self, pieces: tuple[Piece, ...]) -> tuple[tuple[str, int], ...]:
        """What pieces count for, in nano-GPU per model."""
        inventory = self._snapshot.inventory
        totals: dict[str, int] = {}
        for piece in pieces:
            if piece.node in inventory.index:
                node = inventory.nodes[inventory.index[piece.node]]
                amount = replica_nano(len(piece.gpus), piece.mib, node.vram_mib)
                totals[node.model] = totals.get(node.model, 0) + amount
        return tuple(totals.items())


def _spare_replicas(running: RunningJob) -> int:
    """Replicas above the least that an elastic job of one group can do with."""
    group, *others = running.job.shape.groups
    if others or not running.job.elastic:
        return 0
    least = group.replicas if group.min_replicas is None else group.min_replicas
    return max(0, len(running.pieces) - least)


def _would_fit(ledger: Ledger, fit: Fit, strategy: Strategy, nodes: int, caps: Mapping[int, int]) -> bool:
    placed: list[Placed] | None = place(ledger, fit, strategy, nodes, caps) if nodes else None
    if placed is not None:
        undo(ledger, placed)
    return placed is not None
