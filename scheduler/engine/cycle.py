"""One decision: who starts now, and why each of the others waits.

    plan = decide(snapshot, policy, now)

Pure: the same arguments give the same plan, in any process. The steps are those of :func:`decide`.
"""

from heapq import heapify, heappop, heapreplace
from types import MappingProxyType

from scheduler.engine.accounts import Accounts
from scheduler.engine.demand import PendingJob
from scheduler.engine.explain import Explainer, Stop
from scheduler.engine.feasibility import Feasibility
from scheduler.engine.gates import gate, opens_at
from scheduler.engine.order import DISCIPLINES
from scheduler.engine.placement.gang import pieces, place
from scheduler.engine.placement.strategies import STRATEGIES
from scheduler.engine.plan import Plan, Start
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.engine.snapshot import Lane, Snapshot
from scheduler.engine.throttle import Throttle

Entry = tuple[int, tuple[int, float], float, int, int, int]
"""Place of a lane's next job in the line: -priority, standing, submitted, sequence, then lane and index in it."""


def decide(snapshot: Snapshot, policy: Policy, now: float) -> Plan:
    """What to do at ``now`` (seconds on the clock of the snapshot)."""
    if not snapshot.synced:
        return _not_synced(snapshot)
    # 1. Set aside the jobs that are stopped by themselves.
    gated = {job.key: why for job in snapshot.gateable if (why := gate(job, snapshot, now)) is not None}
    # 2. Walk the others in order and start what fits.
    walk = _Walk(snapshot, policy, now, gated)
    walk.start_what_fits()
    # 3. Say of every lane why its jobs wait, as things stand after the starts.
    waiting = walk.explain()
    # 4. Say when to look again although nothing happens.
    return Plan(
        starts=tuple(walk.starts),
        gated=MappingProxyType(gated),
        waiting=MappingProxyType(waiting),
        wake_at=_wake_at(snapshot, now, walk.throttle, throttled=_any_throttled(waiting)),
    )


class _Walk:
    """The walk over the lanes. Each lane ends with all its jobs started, or with the stop that the first one met."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, gated: dict[str, Hold]) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.gated = gated
        self.ledger = snapshot.ledger.copy()
        self.accounts = Accounts(snapshot, policy, now)
        self.throttle = Throttle(snapshot, policy, now)
        self.feasibility = Feasibility(snapshot.ledger)
        self.strategy = STRATEGIES[policy.placement]
        self.discipline = DISCIPLINES[policy.queueing]
        self.starts: list[Start] = []
        self.stops: dict[int, Stop] = {}
        self._blocked_nodes = 0
        self._blockers: list[tuple[int, PendingJob]] = []

    def start_what_fits(self) -> None:
        """Start jobs in order until every lane is empty or stopped."""
        lanes = self.snapshot.lanes
        heap = [entry for position in range(len(lanes)) if (entry := self._entry(position, 0)) is not None]
        heapify(heap)
        while heap:
            _, standing, _, _, position, index = heap[0]
            lane = lanes[position]
            present = self.discipline(lane, self.accounts)
            if present != standing:  # its team has got something since
                heapreplace(heap, (heap[0][0], present, *heap[0][2:]))
                continue
            stop = self._try(lane, lane.jobs[index])
            following = self._entry(position, index + 1) if stop is None else None
            if stop is not None:
                self.stops[lane.number] = stop
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, following)

    def explain(self) -> dict[int, Hold]:
        """Why the jobs wait that were not started, by lane."""
        explainer = Explainer(self.ledger, self.accounts, self.throttle, self.feasibility, self.strategy)
        lanes = {lane.number: lane for lane in self.snapshot.lanes}
        return {number: explainer.why(lanes[number], stop) for number, stop in self.stops.items()}

    def _entry(self, position: int, index: int) -> Entry | None:
        """The place in the line of the first job of a lane from ``index`` on that no gate stops."""
        lane = self.snapshot.lanes[position]
        jobs, gated = lane.jobs, self.gated
        while index < len(jobs):
            job = jobs[index]
            if not gated or job.key not in gated:
                standing = self.discipline(lane, self.accounts)
                return (-job.priority, standing, job.submitted, job.sequence, position, index)
            index += 1
        return None

    def _try(self, lane: Lane, job: PendingJob) -> Stop | None:
        """Start a job if it may and fits, else say what kind of stop it met."""
        if not lane.fit.nodes:
            return Stop(job, Reason.MODEL)
        allowed = self.accounts.allowed_nodes(lane)
        if not allowed:
            return Stop(job, Reason.QUOTA)
        if self._blocked_nodes & lane.fit.nodes:
            return Stop(job, Reason.TURN, self._blocker(lane))
        if self.throttle.limited and (self.throttle.hold_all() or self.throttle.hold_team(lane.team, job.team)):
            return Stop(job, Reason.BACKPRESSURE)
        placed = place(self.ledger, lane.fit, self.strategy, allowed)
        if placed is None:
            self._block(lane, job)
            return Stop(job, Reason.GPUS)
        self.starts.append(Start(job.key, pieces(self.ledger, placed)))
        self.accounts.charge(lane.team, self.ledger, placed)
        self.throttle.note_start(lane.team)
        return None

    def _block(self, lane: Lane, job: PendingJob) -> None:
        """Without backfill a job that cannot start stops every later one that could use one of its nodes."""
        if self.policy.backfill or self.feasibility.hold_of(lane.fit) is not None:
            return
        nodes = lane.fit.nodes & self.ledger.ready & ~lane.fit.excluded
        self._blocked_nodes |= nodes
        self._blockers.append((nodes, job))

    def _blocker(self, lane: Lane) -> PendingJob:
        """The first job in the line that stops this lane."""
        return next(job for nodes, job in self._blockers if nodes & lane.fit.nodes)


def _not_synced(snapshot: Snapshot) -> Plan:
    syncing = hold(Reason.SYNCING, "the cluster has not been looked at completely yet")
    return Plan(waiting=MappingProxyType({lane.number: syncing for lane in snapshot.lanes}))


def _any_throttled(waiting: dict[int, Hold]) -> bool:
    return any(why.reason is Reason.BACKPRESSURE for why in waiting.values())


def _wake_at(snapshot: Snapshot, now: float, throttle: Throttle, *, throttled: bool) -> float | None:
    times = [opens_at(job, now) for job in snapshot.gateable]
    window = snapshot.limits.until(snapshot.epoch + now)
    times.append(None if window is None else window - snapshot.epoch)
    times.append(throttle.next_change() if throttled else None)
    return min((at for at in times if at is not None), default=None)
