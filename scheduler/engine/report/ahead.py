"""Who stands before a waiting job: those ahead of it in the line, those who hold its quota, those for whom cards
are kept."""

import heapq
from bisect import bisect_left
from functools import partial
from typing import NamedTuple

from quotas.limits import NANO, Bound
from scheduler.engine.accounts import Accounts
from scheduler.engine.backfill import Reservation
from scheduler.engine.cluster import bitset_of
from scheduler.engine.cycle import walk_through
from scheduler.engine.demand import PendingJob
from scheduler.engine.order import DISCIPLINES, Standing
from scheduler.engine.plan import Claim
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import BLOCKS_NOBODY
from scheduler.engine.snapshot import Lane, RunningJob, Snapshot

NAMED = 5

_Place = tuple[int, Standing, float, int]


class Before(NamedTuple):
    """A job ahead in the line."""

    job: str
    team: str
    gpus: int
    priority: int
    submitted: float


class Holder(NamedTuple):
    """A job that holds cards of a quota, ``since`` a time in seconds."""

    job: str
    team: str
    gpus: float
    since: float


class Binding(NamedTuple):
    """The limit that a job would break: ``team`` holds ``used`` of ``limit`` GPUs of ``model``, the job needs
    ``need``. ``holders`` are those with the most, of ``jobs`` in all."""

    team: str
    model: str
    used: float
    limit: float
    need: float
    jobs: int
    holders: tuple[Holder, ...]


class Kept(NamedTuple):
    """Cards that a job could use and that are kept for another: from ``at`` (seconds) on, or at once (None)."""

    job: str
    team: str
    gpus: int
    at: float | None


class Ahead(NamedTuple):
    """``jobs`` jobs with ``gpus`` GPUs go first, the ``first`` of them by name."""

    jobs: int
    gpus: int
    first: tuple[Before, ...]
    binding: Binding | None
    kept: tuple[Kept, ...]


def ahead(snapshot: Snapshot, policy: Policy, now: float, key: str, *, named: int = NAMED) -> Ahead | None:
    """Who stands before the waiting job ``key``; None if it does not wait, or starts now.

    The line is that of the moment: by priority, by the standing of teams, by submission. With each start standings
    change, so not all who are ahead need to start before it. Those that want none of its nodes are left out, and
    those that no card coming free would help.
    """
    found = next(((lane, job) for lane in snapshot.lanes for job in lane.jobs if job.key == key), None)
    walk = walk_through(snapshot, policy, now)
    if found is None or any(start.job == key for start in walk.starts):
        return None
    lane, job = found
    holds = walk.explain()
    out = {start.job for start in walk.starts} | walk.gated.keys()
    lanes = [
        other
        for other in snapshot.lanes
        if other.fit.nodes & lane.fit.nodes
        and (other.number not in holds or holds[other.number].reason not in BLOCKS_NOBODY)
    ]
    line = _Line(Accounts(snapshot, policy, now, walk.gated), policy, out)
    count, gpus, first = line.before(lane, job, lanes, named)
    reserved = walk.reservations.made if walk.reservations is not None else []
    kept = [*_claimed(snapshot, lane, key, tuple(walk.claims.values())), *_reserved(lane, key, reserved)]
    return Ahead(count, gpus, first, _binding(snapshot, walk.accounts, lane, named), tuple(kept))


class _Line:
    """The order of the moment."""

    def __init__(self, accounts: Accounts, policy: Policy, out: set[str]) -> None:
        self._accounts = accounts
        self._standing = DISCIPLINES[policy.queueing].standing
        self._out = out

    def before(self, lane: Lane, job: PendingJob, lanes: list[Lane], named: int) -> tuple[int, int, tuple[Before, ...]]:
        """How many jobs of some lanes come before one of a lane, their GPUs, and the first of them."""
        mine = self._place(self._standing(lane, self._accounts), job)
        count = gpus = 0
        heads: list[tuple[_Place, Before]] = []
        for other in lanes:
            standing = self._standing(other, self._accounts)
            until = bisect_left(other.jobs, mine, key=partial(self._place, standing))
            going = [each for each in other.jobs[:until] if each.key not in self._out]
            count += len(going)
            gpus += len(going) * other.shape.total_gpus
            for each in going[:named]:
                said = Before(each.key, each.team, other.shape.total_gpus, each.priority, each.submitted)
                heads.append((self._place(standing, each), said))
        return count, gpus, tuple(said for _, said in heapq.nsmallest(named, heads))

    def _place(self, standing: Standing, job: PendingJob) -> _Place:
        return (-job.priority, standing, job.submitted, job.sequence)


def _binding(snapshot: Snapshot, accounts: Accounts, lane: Lane, named: int) -> Binding | None:
    """The first limit in the way of a lane, if limits leave it no node."""
    if not lane.fit.models or accounts.allowed_nodes(lane):
        return None
    bounds = (accounts.broken_bound(lane.fit, lane.team, model) for model in lane.fit.models)
    bound = next((bound for bound in bounds if bound is not None), None)
    if bound is None:
        return None
    holding = list(_holders(snapshot, bound))
    top = sorted(holding, key=lambda holder: (-holder.gpus, holder.since, holder.job))[:named]
    return Binding(
        bound.team, bound.model, accounts.used[bound.slot] / NANO, bound.limit / NANO,
        lane.fit.needs(lane.fit.models[0], bound.model) / NANO, len(holding), tuple(top),
    )  # fmt: skip


def _holders(snapshot: Snapshot, bound: Bound) -> list[Holder]:
    tree = snapshot.limits.tree
    team = tree.index[bound.team]
    return [
        Holder(running.job.key, running.job.team, amount / NANO, running.started)
        for running in snapshot.running.values()
        if team in tree.lineage[tree.index[running.job.team]] and (amount := _amount(running, bound.model))
    ]


def _amount(running: RunningJob, model: str) -> int:
    return sum(amount for name, amount in running.amounts if model in ("*", name))


def _claimed(snapshot: Snapshot, lane: Lane, key: str, claims: tuple[Claim, ...]) -> list[Kept]:
    teams = {job.key: job.team for each in snapshot.lanes for job in each.jobs}
    found = []
    for claim in claims:
        nodes = bitset_of(snapshot.inventory.index[piece.node] for piece in claim.pieces)
        if claim.winner != key and nodes & lane.fit.nodes:
            gpus = sum(len(piece.gpus) for piece in claim.pieces)
            found.append(Kept(claim.winner, teams.get(claim.winner, ""), gpus, None))
    return found


def _reserved(lane: Lane, key: str, made: list[Reservation]) -> list[Kept]:
    return [
        Kept(each.job.key, each.job.team, sum(each.cards.values()), each.at)
        for each in made
        if each.job.key != key and bitset_of(each.cards) & lane.fit.nodes
    ]
