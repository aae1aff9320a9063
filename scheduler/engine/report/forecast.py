"""When the waiting jobs will start: the cluster is played forward with the very decisions that it will make.

One play for each quantile of the run times: in the low one all jobs end early, in the high one late. That nobody new
comes is assumed, and that nothing breaks. Because the engine itself places the jobs of a play, no two of them are
expected on the same cards at the same time, and none in the past.

The work is bounded by a number of decisions. While they suffice, there is one at every end of a job, and the play is
exact. Beyond that the ends are taken together, few at first and then more and more (so that the error stays in
proportion to the wait); a job that starts then is said to begin when the last of the cards that it takes came free.
That errs on the late side: with 32 decisions for 10,000 waiting jobs the mean wait comes out 13 % longer than with 200.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from scheduler.engine.cluster import natural
from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob
from scheduler.engine.feasibility import what
from scheduler.engine.plan import Piece, Plan
from scheduler.engine.policy import Policy, Preemption, Reclaim
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.engine.report.runtimes import RuntimeModel
from scheduler.engine.report.whatif import what_if
from scheduler.engine.snapshot import Lane, Phase, RunningJob, Snapshot

NAMED = 3
DAY = 86_400.0
PER_TURN = 5
"""Decisions at least while as many jobs end as run."""
MANY = 300
"""Running jobs beyond which nobody takes from others in a play, unless the caller says so."""
_NEVER = Preemption(enabled=False)
SPEAKS_FOR_ITSELF = frozenset(
    {Reason.HELD, Reason.BACKOFF, Reason.NOT_BEFORE, Reason.IMPOSSIBLE, Reason.MODEL, Reason.LABELS, Reason.TAINTS,
     Reason.UNHEALTHY, Reason.EXCLUDED, Reason.SYNCING}
)  # fmt: skip
"""Reasons that no end of another job changes: they say already why nobody can know."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How far to look: ``decides`` for each quantile, and ``horizon`` in seconds from now.

    Without ``taking`` nobody takes from others in a play: where thousands run, the search for victims would cost
    more than all else. Who has that right is then expected later than it will start.
    """

    decides: int
    horizon: float = 60 * DAY
    taking: bool = True

    @classmethod
    def for_snapshot(cls, snapshot: Snapshot) -> "Effort":
        """As many decisions as cost about a second: 32 of a full cluster of 10,000 cards, and up to 2,000.

        More where so much waits that the cluster turns over many times.
        """
        running, waiting = len(snapshot.running), sum(len(lane.jobs) for lane in snapshot.lanes)
        size = len(snapshot.inventory) + 4 * len(snapshot.lanes) + running // 4
        turns = waiting // max(running, len(snapshot.inventory) // 2, 1)
        least = max(32, PER_TURN * turns)
        return cls(min(2_000, max(least, 60_000 // max(size, 1))), taking=running <= MANY)


class Estimate(NamedTuple):
    """When a job is expected to start (seconds), from its low to its high quantile.

    ``high`` is None where nobody can promise a time, and ``low`` too where nobody can even hope; ``why`` then says so.
    """

    low: float | None
    high: float | None
    why: Hold | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimates of all jobs that waited, by key. ``decides``: what it took."""

    estimates: Mapping[str, Estimate]
    decides: int


def forecast(
    snapshot: Snapshot,
    policy: Policy,
    now: float,
    runtimes: RuntimeModel,
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    effort: Effort | None = None,
) -> Forecast:
    """The expected starts of all waiting jobs; with ``quantiles`` at (0.1, 0.9), an 80 % range."""
    effort = effort or Effort.for_snapshot(snapshot)
    early, late = (Play(snapshot, policy, now, runtimes, quantile, effort) for quantile in quantiles)
    for play in (early, late):
        play.to_the_end()
    unknown = _Unknown(late)
    estimates = {
        job.key: _estimate(early.began.get(job.key), late.began.get(job.key), unknown, job, lane)
        for lane in snapshot.lanes
        for job in lane.jobs
    }
    return Forecast(MappingProxyType(estimates), early.decides + late.decides)


def _estimate(early: float | None, late: float | None, unknown: "_Unknown", job: PendingJob, lane: Lane) -> Estimate:
    if early is None or late is None:
        return Estimate(late if early is None else early, None, unknown.why(job, lane))
    return Estimate(min(early, late), max(early, late))  # an early end here may let others go first there


class Play:
    """One play forward from a snapshot. ``began`` has the start of each job that waited, ``endless`` those that hold
    cards and nobody knows until when, ``stopped`` why the play went no further."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, now: float, runtimes: RuntimeModel, quantile: float, effort: Effort
    ) -> None:
        self.began: dict[str, float] = {}
        self.endless: dict[str, RunningJob] = {}
        self.decides = 0
        self.now = now
        self.plan = Plan()
        self.stopped = ""
        self._begin = now
        self._policy = policy if effort.taking else replace(policy, preemption=_NEVER, reclaim=Reclaim(enabled=False))
        self._runtimes = runtimes
        self._quantile = quantile
        self._effort = effort
        self._roster = what_if(snapshot, policy)
        self._ends: list[tuple[float, int, str]] = []
        self._live: dict[str, int] = {}  # the number of the event that ends each job
        self._left: dict[str, float] = {}  # seconds of work of jobs that have been interrupted
        self._free_since: dict[tuple[str, int], float] = {}
        self._events = self._gone = 0
        self._waiting = sum(len(lane.jobs) for lane in snapshot.lanes)
        for running in sorted(snapshot.running.values(), key=lambda each: (each.started, each.job.key)):
            self._expect_end(running)

    def to_the_end(self) -> None:
        """Play until all have started, nothing more can happen, or it has been looked far enough."""
        self._decide({}, self.now)
        while self._waiting:
            if self.decides >= self._effort.decides:
                self.stopped = "effort"
                return
            at = self._next()
            if at is None:
                return
            if at > self._begin + self._effort.horizon:
                self.stopped = "horizon"
                return
            first = min(at, max(self.now, self._ends[0][0])) if self._ends else at
            self.now = at
            self._decide(self._let_end(at), first)

    def _next(self) -> float | None:
        """When to decide next: at the next end or wake-up; later, where many have to be taken together."""
        wake_at = self.plan.wake_at
        if wake_at is not None and wake_at <= self.now:
            wake_at = self.now + self._policy.cycle
        if not self._ends or (wake_at is not None and wake_at < self._ends[0][0]):
            return wake_at
        together = self._together()
        if together == 1:
            return max(self.now, self._ends[0][0])
        return max(self.now, heapq.nsmallest(together, self._ends)[-1][0])

    def _together(self) -> int:
        """How many ends to take together, so that the decisions left suffice for all that is still to come.

        The number of ends gone by grows by the same factor with each decision, and by so much at least that nearly
        all would be done if it stayed at that: no more can end at once than run.
        """
        left = self._effort.decides - self.decides
        to_come = len(self._ends) + self._waiting
        if to_come <= left:
            return 1
        gone = self._gone + 1
        growing: float = gone * (((gone + to_come) / gone) ** (1 / left) - 1)
        return max(1, int(growing + 0.5), int(0.95 * to_come / left + 0.5))

    def _let_end(self, at: float) -> dict[tuple[str, int], float]:
        """Free the cards of all that have ended; when each of them came free."""
        freed: dict[tuple[str, int], float] = {}
        while self._ends and self._ends[0][0] <= at:
            when, event, key = heapq.heappop(self._ends)
            if self._live.get(key) != event:
                continue  # it has been stopped before
            del self._live[key]
            self._gone += 1
            running = self._roster.release(key, at)
            for piece in running.pieces:
                for gpu in piece.gpus:
                    freed[piece.node, gpu] = when
            if running.phase is Phase.STOPPING and key in self._left:
                self._roster.submit(replace(running.job, taken=running.job.taken + 1, returning=True))
        self._free_since |= freed
        return freed

    def _decide(self, freed: Mapping[tuple[str, int], float], first: float) -> None:
        self.plan = decide(self._roster.snapshot(self.now), self._policy, self.now)
        self.decides += 1
        roster = self._roster
        roster.keep(self.plan.claims)
        for resize in self.plan.resizes:
            roster.resize(resize.job, resize.pieces, self.now)
        for start in self.plan.starts:
            running = roster.start(start.job, start.pieces, self.now)
            roster.set_phase(start.job, Phase.RUNNING)
            began = self._began(start.pieces, running.job, freed, first)
            if start.job not in self.began:
                self.began[start.job] = began
                self._waiting -= 1
            self._expect_end(replace(running, started=began))
        for preempt in self.plan.preempts:
            self._stop(preempt.job)

    def _began(
        self, pieces: tuple[Piece, ...], job: PendingJob, freed: Mapping[tuple[str, int], float], first: float
    ) -> float:
        """When a job that starts in this step begins: where ends were taken together, when its last card came free.

        That may be before the step, in which many a job both starts and ends.
        """
        cards = [(piece.node, gpu) for piece in pieces for gpu in piece.gpus]
        if first == self.now or not any(card in freed for card in cards):
            return first
        since = max(self._free_since.get(card, self._begin) for card in cards)
        return max(since, job.not_before, job.backoff_until)

    def _expect_end(self, running: RunningJob) -> None:
        """Enter when a job will end, if anybody can know."""
        key, job, begin = running.job.key, running.job, running.started + self._policy.launch_delay
        if running.phase is Phase.STOPPING:
            at: float | None = self.now + self._policy.stop_delay
        else:
            left = self._left.get(key)
            if left is None:
                elapsed = max(0.0, self.now - begin) if self.decides == 0 else 0.0
                left = self._runtimes.left(key, job.team, job.time_limit, self._quantile, elapsed)
                begin += elapsed
            at = None if left is None else begin + left
        if at is None:
            self.endless[key] = running
        else:
            self._push(key, at)

    def _stop(self, key: str) -> None:
        """A job has to give way: what it has not saved it does again later."""
        running = self._roster.running(key)
        if running is None:
            return
        self._roster.set_phase(key, Phase.STOPPING)
        job = running.job
        left = self._runtimes.left(key, job.team, job.time_limit, self._quantile)
        if left is not None:
            every, ran = job.checkpoint_every, self.now - running.started
            self._left[key] = max(0.0, left - (ran // every * every if every else 0.0))
        self.endless.pop(key, None)
        if key not in self.began and self._roster.waiting(key) is None:
            self.began[key] = running.started  # it has begun long ago: nobody asks when it starts again
        self._push(key, self.now + self._policy.stop_delay)

    def _push(self, key: str, at: float) -> None:
        self._events += 1
        self._live[key] = self._events
        heapq.heappush(self._ends, (at, self._events, key))

    def hold_of(self, job: PendingJob, lane: Lane) -> Hold | None:
        """Why a job still waits where the play ended."""
        return self.plan.hold_of(job, lane.number)

    @property
    def days(self) -> float:
        """How far the play was to go."""
        return self._effort.horizon / DAY


class _Unknown:
    """Why nobody can know when a job starts; worked out once for each lane."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._by_lane: dict[int, Hold] = {}

    def why(self, job: PendingJob, lane: Lane) -> Hold:
        """The reason of a job that had not started when the play ended."""
        own = self._play.plan.gated.get(job.key)
        if own is not None and own.reason in SPEAKS_FOR_ITSELF:
            return own
        found = self._by_lane.get(lane.number)
        if found is None:
            found = self._by_lane[lane.number] = self._of_lane(job, lane)
        return found

    def _of_lane(self, job: PendingJob, lane: Lane) -> Hold:
        last = self._play.hold_of(job, lane)
        reason = Reason.GPUS if last is None else last.reason
        if last is not None and reason in SPEAKS_FOR_ITSELF:
            return last
        if self._play.stopped == "horizon":
            return hold(reason, "not within {days:g} days, if all goes on like this", days=self._play.days)
        if self._play.stopped == "effort":
            return hold(reason, "later than could be worked out: so many jobs go first")
        names = lane.fit.inventory
        holders = {
            key: cards
            for key, running in self._play.endless.items()
            if (cards := sum(len(p.gpus) for p in running.pieces if lane.fit.nodes >> names.index.get(p.node, 0) & 1))
        }
        if holders:
            first = sorted(holders, key=lambda key: (-holders[key], natural(key)))
            more = f" and {len(first) - NAMED} more" if len(first) > NAMED else ""
            return hold(
                reason, "{gpus} {what} are held by jobs that may run for ever, having no time limit: {jobs}",
                gpus=sum(holders.values()), what=what(lane.shape), jobs=", ".join(first[:NAMED]) + more,
            )  # fmt: skip
        return last or hold(reason, "nothing that is known to happen will let it start")
