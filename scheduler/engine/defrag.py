"""Defragmentation: the fewest moves of running jobs after which a job that waits fits.

A move ends a job and starts it elsewhere from its last checkpoint, so only jobs that may be preempted and that save
their work are moved; all move at once, and one may take the place that another leaves. A moved job stays on the GPU
models it is on and counts for the same there, so no quota is touched; its labels, taints, exclusions, topology and
host needs hold as for a start.

Sets of moves are tried in order of size, then of the cards and the work they touch, so the first that works has the
fewest moves. Where there are more than ``MOST_SETS`` sets, the search goes on with those that clear one node, or for a
gang with the jobs in its way, and the proposal says that fewer moves are not ruled out. Jobs of one replica with whole
cards are tried on every node; gangs and slices go where the engine puts them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import NamedTuple

from scheduler.engine.accounts import Accounts
from scheduler.engine.cluster import bitset_of, members
from scheduler.engine.demand import Group, PendingJob, Shape
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.binpack import Binpack
from scheduler.engine.placement.fit import Fit, replica_nano
from scheduler.engine.placement.gang import Placed, pieces, place, undo
from scheduler.engine.plan import Piece
from scheduler.engine.policy import Policy
from scheduler.engine.preempt.claims import Where, hold, locate, release, vacant
from scheduler.engine.preempt.shields import lost_work
from scheduler.engine.snapshot import Phase, RunningJob, Snapshot

MOST_SETS = 20_000
"""Sets of moves that are tried before the search turns greedy."""
MOST_STEPS = 2_000
"""Placings that are tried for one set of moves."""
MOST_TARGETS = 64
"""Nodes that are tried to be cleared one by one, those with the most free cards first."""

_STRATEGY = Binpack()


class Move(NamedTuple):
    """A running job and the whole placement it gets."""

    job: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to move so that a job fits, or that nothing helps.

    ``start`` is where the job then lies, empty where there is no plan. ``gpus`` are the cards of the moved jobs.
    ``total_free`` are the whole free cards in service on the models it may use, ``largest_free`` the most on one node
    it may use, ``short`` how many cards are missing however they lie. ``exact`` is whether fewer moves are ruled out.
    """

    moves: tuple[Move, ...] = ()
    start: tuple[Piece, ...] = ()
    gpus: int = 0
    total_free: int = 0
    largest_free: int = 0
    short: int = 0
    exact: bool = True


class Candidate(NamedTuple):
    """A running job that may be moved: what it holds, and where it may go."""

    running: RunningJob
    spots: list[Where]
    fit: Fit
    nodes: int
    gpus: int
    lost: float


class Put(NamedTuple):
    """A candidate and the whole placement it gets."""

    candidate: Candidate
    pieces: tuple[Piece, ...]


Settled = list[list[Placed]]
"""Where each of several jobs is put, in their order."""


def together(gpus: int, models: tuple[str, ...] = ()) -> PendingJob:
    """A stand-in for so many cards on one node, of no team and under no quota."""
    return PendingJob("", "", Shape((Group(gpus=gpus, cpus_milli=0, memory_mib=0, models=models),)))


def defragment(
    snapshot: Snapshot, policy: Policy, job: PendingJob, now: float, *, any_preemptible: bool = False
) -> Proposal:
    """Propose the fewest moves after which ``job`` fits at ``now`` (seconds); see the module.

    Jobs that declare no checkpoints are moved only with ``any_preemptible``: they begin anew. A job that its limits
    stop is not helped by moves, so it gets no plan; a job without a team has no limits.
    """
    fit = Fit(job.shape, snapshot.inventory, policy.inference_headroom)
    allowed = fit.nodes
    if job.team:
        accounts = Accounts(snapshot, policy, now, {})
        allowed = accounts.allowed_by(fit, accounts.tree.index[job.team], accounts.used)
    ledger = snapshot.ledger.copy()
    for claim in snapshot.claims:
        if claim.winner != job.key:
            hold(ledger, [Where(ledger.inventory.index[p.node], p, 0, 0) for p in claim.pieces if _there(ledger, p)])
    movable = [each for each in _candidates(snapshot, now, any_preemptible=any_preemptible) if each.gpus]
    return _Search(ledger, fit, allowed, job.shape.groups, movable).propose()


class _Search:
    """One job against what is free and what may be moved."""

    def __init__(
        self, ledger: Ledger, fit: Fit, allowed: int, groups: tuple[Group, ...], movable: list[Candidate]
    ) -> None:
        self._ledger = ledger
        self._fit = fit
        self._allowed = allowed & ledger.ready & ~fit.excluded
        self._groups = groups
        self._movable = movable
        self._steps = 0
        self._exact = True

    def propose(self) -> Proposal:
        """The answer: what is free, and the moves if there are any."""
        pool = self._ledger.inventory.of_model(self._fit.models) & self._ledger.ready if self._fit.models else 0
        total = self._ledger.free_count(pool)
        short = 0 if self._fit.slices else max(0, self._fit.cards - total)
        largest = max((self._ledger.free[node].bit_count() for node in members(self._allowed)), default=0)
        nothing = Proposal(total_free=total, largest_free=largest, short=short)
        if short and not any(spot.piece.mib for each in self._movable for spot in each.spots):
            return nothing  # moves of whole cards do not change how many are free
        if self._settle(self._movable, only_the_job=True) is None:
            return nothing
        chosen = self._fewest()
        if chosen is None:
            return replace(nothing, exact=self._exact)
        start, *others = chosen[1]
        put = {
            each.running.job.key: Put(each, pieces(self._ledger, each.running.job.shape.groups, placed))
            for each, placed in zip(chosen[0], others, strict=True)
        }
        put = {key: each for key, each in put.items() if each.pieces != each.candidate.running.pieces}
        put, start = self._needed(put, start)
        return replace(
            nothing,
            moves=tuple(Move(key, each.pieces) for key, each in sorted(put.items())),
            start=pieces(self._ledger, self._groups, start),
            gpus=sum(each.candidate.gpus for each in put.values()),
            exact=self._exact,
        )

    def _needed(self, put: dict[str, Put], start: list[Placed]) -> tuple[dict[str, Put], list[Placed]]:
        """The moves without those that may be left out while the others are made as they are."""
        for key in sorted(put, key=lambda each: -put[each].candidate.gpus):
            fewer = {other: each for other, each in put.items() if other != key}
            trial = self._without([each.candidate for each in fewer.values()])
            for each in fewer.values():
                spots = locate(trial, each.candidate.running.job.shape, each.pieces) or []
                if not vacant(trial, spots):
                    break
                hold(trial, spots)
            else:
                placed = place(trial, self._fit, _STRATEGY, self._allowed)
                if placed is not None:
                    put, start = fewer, placed
        return put, start

    def _fewest(self) -> tuple[list[Candidate], Settled] | None:
        """Sets of moves by their number, then by the cards and the work they touch, while they can all be tried."""
        left = MOST_SETS
        for number in range(len(self._movable) + 1):
            left -= comb(len(self._movable), number)
            if left < 0:
                self._exact = False
                sets = self._in_the_way() if not self._fit.solo or self._fit.slices else self._on_one_node(number)
            else:
                sets = sorted(combinations(self._movable, number), key=_cost)
            for some in sets:
                if self._makes_room(some) and (settled := self._settle(some)) is not None:
                    return list(some), settled
            if left < 0:
                return None
        return None

    def _on_one_node(self, least: int) -> list[tuple[Candidate, ...]]:
        """Sets of ``least`` or more jobs that all lie on one node, the smallest sets first."""
        by_node: dict[int, list[Candidate]] = {}
        for each in self._movable:
            for node in {spot.node for spot in each.spots}:
                by_node.setdefault(node, []).append(each)
        found, left = list[tuple[Candidate, ...]](), MOST_SETS
        targets = sorted(members(self._allowed), key=lambda node: (-self._ledger.free[node].bit_count(), node))
        for node in targets[:MOST_TARGETS]:
            here = by_node.get(node, [])
            for number in range(least, len(here) + 1):
                left -= comb(len(here), number)
                if left < 0:
                    break
                found += combinations(here, number)
        return sorted(found, key=lambda some: (len(some), _cost(some)))

    def _in_the_way(self) -> Iterator[list[Candidate]]:
        """The jobs on the cards, or else on the nodes, that the waiting one gets where all that may move are away.

        First on as few of the emptiest nodes as it has replicas, then on twice as many, and so on.
        """
        trial = self._without(self._movable)
        emptiest = sorted(members(self._allowed), key=lambda node: (-self._ledger.free[node].bit_count(), node))
        number = self._fit.shape.replicas
        while True:
            placed = place(trial, self._fit, _STRATEGY, bitset_of(emptiest[:number]))
            if placed is not None:
                undo(trial, placed)
                nodes = {put.node for put in placed}
                cards = {(put.node, gpu) for put in placed for gpu in put.gpus}
                yield [e for e in self._movable if any((s.node, g) in cards for s in e.spots for g in s.piece.gpus)]
                yield [e for e in self._movable if any(spot.node in nodes for spot in e.spots)]
            if number >= len(emptiest):
                return
            number *= 2

    def _makes_room(self, some: Sequence[Candidate]) -> bool:
        """Whether, for a job of one replica with whole cards, a node has enough once these have left it."""
        if not self._fit.solo or self._fit.slices:
            return True
        need, freed = self._fit.groups[0].group.gpus, dict[int, int]()
        for each in some:
            for node in {spot.node for spot in each.spots}:
                freed[node] = freed.get(node, 0) + _cards_on(each, node)
        if any(self._ledger.by_free[have] & self._allowed for have in range(need, len(self._ledger.by_free))):
            return True
        return any(
            self._allowed >> node & 1 and self._ledger.free[node].bit_count() + more >= need
            for node, more in freed.items()
        )

    def _settle(self, some: Sequence[Candidate], *, only_the_job: bool = False) -> Settled | None:
        """Put the job down where these have left, and then them elsewhere; None where it does not work out."""
        trial = self._without(some)
        self._steps = MOST_STEPS
        largest_first = sorted(range(len(some)), key=lambda at: -some[at].gpus)
        line = [(self._fit, self._allowed, None), *((some[at].fit, some[at].nodes, some[at]) for at in largest_first)]
        settled = self._put(trial, line[:1] if only_the_job else line)
        if settled is None or only_the_job:
            return settled
        return [settled[0], *(placed for _, placed in sorted(zip(largest_first, settled[1:], strict=True), key=_first))]

    def _put(self, trial: Ledger, line: list[tuple[Fit, int, Candidate | None]]) -> Settled | None:
        if not line:
            return []
        fit, nodes, moved = line[0]
        for only in _choices(trial, fit, nodes, [each[:2] for each in line[1:]]):
            if not self._steps:
                self._exact = False
                return None
            self._steps -= 1
            placed = place(trial, fit, _STRATEGY, only)
            if placed is None:
                continue
            if moved is None or _counts_as_before(trial, moved, placed):
                rest = self._put(trial, line[1:])
                if rest is not None:
                    return [placed, *rest]
            undo(trial, placed)
        return None

    def _without(self, some: Sequence[Candidate]) -> Ledger:
        trial = self._ledger.copy()
        for each in some:
            release(trial, each.spots)
        return trial


def _candidates(snapshot: Snapshot, now: float, *, any_preemptible: bool) -> Iterator[Candidate]:
    """The running jobs that may be moved, as large as they are now and on the models they are on."""
    inventory = snapshot.inventory
    for key in sorted(snapshot.running):
        running = snapshot.running[key]
        job = running.job
        saves = any_preemptible or job.checkpoint_every is not None
        if running.phase is not Phase.RUNNING or not job.preemptible or not saves:
            continue
        spots = locate(snapshot.ledger, job.shape, running.pieces)
        if not spots or not any(snapshot.ledger.ready >> spot.node & 1 for spot in spots):
            continue
        fit = Fit(_as_it_is(job.shape, running.pieces), inventory, 0.0)
        models = tuple({inventory.nodes[spot.node].model for spot in spots})
        gpus = sum(len(piece.gpus) for piece in running.pieces)
        nodes = fit.nodes & inventory.of_model(models)
        yield Candidate(running, spots, fit, nodes, gpus, lost_work(running, now))


def _as_it_is(shape: Shape, held: tuple[Piece, ...]) -> Shape:
    """The shape with the replicas and the slices that a job has at this moment."""
    groups = []
    for group in shape.groups:
        own = [piece for piece in held if piece.group == group.name]
        if own:
            groups.append(replace(group, replicas=len(own), vram_mib=own[0].mib or group.vram_mib))
    return replace(shape, groups=tuple(groups))


def _choices(ledger: Ledger, fit: Fit, nodes: int, later: list[tuple[Fit, int]]) -> Iterator[int]:
    """Sets of nodes to try a job on: one after the other, the fullest first, or for a gang all at once.

    Of nodes that look the same to the jobs that come later (each with the nodes it may use) one is enough, as long as
    none of these is a gang or shares cards.
    """
    if not fit.solo or fit.slices or not fit.cards:
        yield nodes
        return
    ready = nodes & ledger.ready & ~fit.excluded
    plain = all(other.solo and not other.slices for other, _ in later)
    masks = [allowed & ~other.excluded for other, allowed in later]
    alike = set[tuple[int, ...]]()
    for tier in (ready & ~fit.avoided, ready & fit.avoided):
        for have in range(fit.cards, len(ledger.by_free)):
            for node in members(ledger.by_free[have] & tier):
                looks = (have, ledger.cpus[node], ledger.memory[node], *(mask >> node & 1 for mask in masks))
                if plain and looks in alike:
                    continue
                alike.add(looks)
                yield 1 << node


def _counts_as_before(ledger: Ledger, moved: Candidate, placed: list[Placed]) -> bool:
    """Whether a job counts for the same on each model at its new place."""
    totals: dict[str, int] = {}
    for each, _, position, gpus in placed:
        node = ledger.inventory.nodes[position]
        totals[node.model] = totals.get(node.model, 0) + replica_nano(len(gpus), each.mib, node.vram_mib)
    return totals == dict(moved.running.amounts)


def _cost(some: Sequence[Candidate]) -> tuple[int, float, list[str]]:
    return sum(each.gpus for each in some), sum(each.lost for each in some), [each.running.job.key for each in some]


def _cards_on(each: Candidate, node: int) -> int:
    """Cards of a node that may come free when a job leaves: its own, and at most those it shares."""
    return sum(len(spot.piece.gpus) for spot in each.spots if spot.node == node)


def _first(pair: tuple[int, list[Placed]]) -> int:
    return pair[0]


def _there(ledger: Ledger, piece: Piece) -> bool:
    node = ledger.inventory.index.get(piece.node)
    return node is not None and all(gpu < ledger.inventory.nodes[node].gpus for gpu in piece.gpus)
