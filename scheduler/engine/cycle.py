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

Head = tuple[int, float, int, int, int]
"""The next job of a lane: -priority, submitted, sequence, then lane and index in it."""

Entry = tuple[int, tuple[int, float], float, int, int]
"""Place in the line of the next job of a team: -priority, standing, submitted, sequence, then the queue it is in."""


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
        self._full_at = self._free_at = -1
        self._free: dict[int, int] = {}
        self._blocked_nodes = 0
        self._blockers: list[tuple[int, PendingJob]] = []

    def start_what_fits(self) -> None:
        """Start jobs in order until every lane is empty or stopped."""
        queues = self._queues()
        line = [self._entry(number, queue) for number, queue in enumerate(queues)]
        seen = [self.accounts.version] * len(queues)
        heapify(line)
        while line:
            number = line[0][4]
            queue = queues[number]
            if seen[number] != self.accounts.version:  # somebody has got something since: has its standing changed?
                seen[number] = self.accounts.version
                entry = self._entry(number, queue)
                if entry != line[0]:
                    heapreplace(line, entry)
                    continue
            self._take_turn(queue)
            if queue:
                heapreplace(line, self._entry(number, queue))
            else:
                heappop(line)

    def _queues(self) -> list[list[Head]]:
        """The heads of the lanes, as a heap for each team and choice of models: its jobs share one standing."""
        queues: dict[tuple[int, tuple[str, ...]], list[Head]] = {}
        for position, lane in enumerate(self.snapshot.lanes):
            head = self._head(position, 0)
            if head is not None:
                queues.setdefault((lane.team, lane.fit.models), []).append(head)
        for queue in queues.values():
            heapify(queue)
        return list(queues.values())

    def _take_turn(self, queue: list[Head]) -> None:
        """Try the first job of a queue, and put its lane's next one in its place."""
        position, index = queue[0][3:]
        lane = self.snapshot.lanes[position]
        stop = self._try(lane, lane.jobs[index])
        following = self._head(position, index + 1) if stop is None else None
        if stop is not None:
            self.stops[lane.number] = stop
        if following is None:
            heappop(queue)
        else:
            heapreplace(queue, following)

    def explain(self) -> dict[int, Hold]:
        """Why the jobs wait that were not started, by lane."""
        explainer = Explainer(self.ledger, self.accounts, self.throttle, self.feasibility, self.strategy)
        lanes = {lane.number: lane for lane in self.snapshot.lanes}
        return {number: explainer.why(lanes[number], stop) for number, stop in self.stops.items()}

    def _head(self, position: int, index: int) -> Head | None:
        """The first job of a lane from ``index`` on that no gate stops."""
        jobs = self.snapshot.lanes[position].jobs
        for at in range(index, len(jobs)):
            job = jobs[at]
            if not self.gated or job.key not in self.gated:
                return (-job.priority, job.submitted, job.sequence, position, at)
        return None

    def _entry(self, number: int, queue: list[Head]) -> Entry:
        urgency, submitted, sequence, position, _ = queue[0]
        standing = self.discipline(self.snapshot.lanes[position], self.accounts)
        return (urgency, standing, submitted, sequence, number)

    def _try(self, lane: Lane, job: PendingJob) -> Stop | None:
        """Start a job if it may and fits, else say what kind of stop it met."""
        if not lane.fit.nodes:
            return Stop(job, Reason.MODEL)
        allowed = self.accounts.allowed_nodes(lane)
        if not allowed:
            return Stop(job, Reason.QUOTA)
        usable = allowed & ~lane.fit.excluded
        if self._blocked_nodes & usable:
            ahead = self._blocker(usable)
            self._block(lane, job, usable)
            return Stop(job, Reason.TURN, ahead)
        if self.throttle.limited and (self.throttle.hold_all() or self.throttle.hold_team(lane.team, job.team)):
            return Stop(job, Reason.BACKPRESSURE)
        placed = None if self._too_few_cards(lane) else place(self.ledger, lane.fit, self.strategy, allowed)
        if placed is None:
            self._full_at = self.accounts.version
            self._block(lane, job, usable)
            return Stop(job, Reason.GPUS)
        self.starts.append(Start(job.key, pieces(self.ledger, lane.shape.groups, placed)))
        self.accounts.charge(lane.team, self.ledger, placed)
        self.throttle.note_start(lane.team)
        return None

    def _too_few_cards(self, lane: Lane) -> bool:
        """A cheap look before the real one, once a job has failed and nothing has changed since."""
        if self._full_at != self.accounts.version or any(each.mib for each in lane.fit.groups):
            return False
        if self._free_at != self._full_at:
            self._free_at = self._full_at
            self._free.clear()
        free = self._free.get(lane.fit.nodes)
        if free is None:
            free = self._free[lane.fit.nodes] = self.ledger.free_count(lane.fit.nodes & self.ledger.ready)
        return free < lane.fit.cards

    def _block(self, lane: Lane, job: PendingJob, usable: int) -> None:
        """Without backfill a job that cannot start stops every later one that could use one of its nodes.

        One that is stopped so keeps its place in the line of its other nodes, and stops others there in its turn.
        """
        if self.policy.backfill or not self.feasibility.holds(lane.fit, usable):
            return
        nodes = usable & self.ledger.ready & ~self._blocked_nodes
        if nodes:
            self._blocked_nodes |= nodes
            self._blockers.append((nodes, job))

    def _blocker(self, usable: int) -> PendingJob:
        """The first job in the line that stops one that could use these nodes."""
        return next(job for nodes, job in self._blockers if nodes & usable)


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
