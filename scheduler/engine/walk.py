"""The walk over the waiting jobs in order: each starts, takes what it has a right to, or meets a stop."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heapreplace

from quotas.limits import ANY_MODEL, label
from scheduler.engine.accounts import Accounts
from scheduler.engine.backfill import Reservations
from scheduler.engine.cluster import natural
from scheduler.engine.demand import PendingJob, Shape
from scheduler.engine.elastic import size_at, sized
from scheduler.engine.explain import Explainer, Stop
from scheduler.engine.feasibility import Feasibility
from scheduler.engine.ledger import Ledger
from scheduler.engine.order import DISCIPLINES
from scheduler.engine.placement.fit import Fit
from scheduler.engine.placement.gang import NO_CAPS, Placed, pieces, place, undo
from scheduler.engine.placement.strategies import strategy_for
from scheduler.engine.plan import Cause, Claim, Piece, Preempt, Resize, Start
from scheduler.engine.policy import Policy
from scheduler.engine.preempt.claims import Where, in_service, locate, release, vacant
from scheduler.engine.preempt.claims import hold as hold_spots
from scheduler.engine.preempt.search import Found
from scheduler.engine.preempt.taking import Taking
from scheduler.engine.reasons import Hold, Reason, hold, listed
from scheduler.engine.resizing import Resizing
from scheduler.engine.snapshot import Lane, RunningJob, Snapshot
from scheduler.engine.throttle import Throttle

TAKINGS_AT_MOST = 32
"""Jobs that may take from others in one decision: each is proven to start, and a decision has to end."""

Head = tuple[int, float, int, int, int]
"""The next job of a lane: -priority, submitted, sequence, then lane and index in it."""

Entry = tuple[int, tuple[int, float], float, int, int]
"""Place in the line of the next job of a team: -priority, standing, submitted, sequence, then the queue it is in."""

TAKEN = Stop(PendingJob("", "", Shape()), Reason.STOPPING)
"""Not a stop: the job has a claim now."""


class Walk:
    """The walk over the lanes. Each lane ends with all its jobs started, or with the stop that the first one met."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, gated: dict[str, Hold]) -> None:
        self.snapshot = snapshot
        self.now = now
        self.policy = policy
        self.gated = gated
        self.ledger = snapshot.ledger.copy()
        self.accounts = Accounts(snapshot, policy, now, gated)
        self.throttle = Throttle(snapshot, policy, now)
        self.feasibility = Feasibility(snapshot.ledger)
        self.strategy = strategy_for(policy, snapshot)
        self.discipline = DISCIPLINES[policy.queueing]
        self.resizing = Resizing(snapshot, policy, now, self.accounts)
        self.lanes = [*snapshot.lanes, *self.resizing.lanes]
        self.taking = Taking(snapshot, policy, now, self.accounts, self.strategy, self.resizing)
        self.starts: list[Start] = []
        self.preempts: list[Preempt] = []
        self.resizes: list[Resize] = []
        self.claims: dict[str, Claim] = {}
        self.opens = math.inf
        self.reservations: Reservations | None = None
        if policy.backfill and policy.reserve_for and snapshot.horizon is not None:
            self.reservations = Reservations(snapshot.horizon.copy(), self.ledger, policy, now)
        self._elastic_started = False
        self._least_lanes: dict[int, Lane] = {}
        self._shapes: dict[str, Shape] = {}
        self._settled: dict[str, list[Where]] = {}
        self.stops: dict[int, Stop] = {}
        self._full_at = self._free_at = -1
        self._free: dict[int, int] = {}
        self._blocked_nodes = 0
        self._blockers: list[tuple[int, PendingJob]] = []

    def honour_claims(self) -> None:
        """Start the jobs whose claims have been vacated; keep the others' cards from everybody else."""
        if not self.snapshot.claims:
            return
        waiting = {job.key: (lane, job) for lane in self.lanes for job in lane.jobs}
        for claim in self.snapshot.claims:
            if claim.winner in waiting and claim.winner not in self.gated:
                self._honour(claim, *waiting[claim.winner])

    def _honour(self, claim: Claim, lane: Lane, job: PendingJob) -> None:
        spots = locate(self.ledger, lane.shape, claim.pieces)
        if spots is None or not in_service(self.ledger, spots):
            return  # it has to find another place
        if not self.accounts.affords(lane.team, self.taking.amounts(claim.pieces)):
            return  # a limit has been lowered since
        if vacant(self.ledger, spots):
            hold_spots(self.ledger, spots)
            self._enter_start(lane, job, claim.pieces, spots)
        elif self.taking.still_leaving(claim):
            self._enter_claim(lane, job, claim, spots)

    def _enter_start(self, lane: Lane, job: PendingJob, pieces: tuple[Piece, ...], spots: list[Where]) -> None:
        """Note a start that the ledger has already."""
        self.starts.append(Start(job.key, pieces))
        if self.reservations is not None:
            self.reservations.note_start(job, pieces)
        self._settled[job.key] = spots
        self._elastic_started = self._elastic_started or job.elastic
        self.accounts.enter(lane.team, self.taking.amounts(pieces))
        self.throttle.note_start(lane.team)

    def _enter_claim(self, lane: Lane, job: PendingJob, claim: Claim, spots: list[Where]) -> None:
        """Keep the cards of a claim, and count them as the winner's already."""
        hold_spots(self.ledger, spots)
        self.claims[job.key] = claim
        self._settled[job.key] = spots
        self.gated[job.key] = being_vacated(claim)
        if self.reservations is not None:
            self.reservations.note_claim(job, claim.pieces, self.taking.leaving())
        self.accounts.enter(lane.team, self.taking.amounts(claim.pieces))

    def start_what_fits(self) -> None:
        """Start jobs in order until every lane is empty or stopped."""
        queues = self._queues()
        line = [self._entry(number, queue) for number, queue in enumerate(queues)]
        teams = [self.lanes[queue[0][3]].team for queue in queues]
        seen = [self.accounts.versions[team] for team in teams]
        heapify(line)
        while line:
            number = line[0][4]
            queue = queues[number]
            version = self.accounts.versions[teams[number]]
            if seen[number] != version:  # something has been got since that may have changed its standing
                seen[number] = version
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
        """The heads of the lanes, as a heap for each set of lanes that share one standing."""
        queues: dict[Hashable, list[Head]] = {}
        for position, lane in enumerate(self.lanes):
            head = self._head(position, 0)
            if head is not None:
                queues.setdefault(self.discipline.shared_by(lane, self.accounts), []).append(head)
        for queue in queues.values():
            heapify(queue)
        return list(queues.values())

    def _take_turn(self, queue: list[Head]) -> None:
        """Try the first job of a queue, and put its lane's next one in its place."""
        position, index = queue[0][3:]
        lane = self.lanes[position]
        stop = self._try(lane, lane.jobs[index])
        following = self._head(position, index + 1) if stop is None else None
        if stop is not None:
            self.stops.setdefault(lane.number, stop)
            if stop.reason is Reason.RESERVED:
                following = self._head(position, index + 1, shorter_than=stop.job.time_limit)
            elif self.reservations is not None and self.reservations.one_more_after(stop.job, lane):
                following = self._head(position, index + 1)
        if following is None:
            heappop(queue)
        else:
            heapreplace(queue, following)

    def explain(self) -> dict[int, Hold]:
        """Why the jobs wait that were not started, by lane."""
        explainer = Explainer(self.ledger, self.accounts, self.throttle, self.feasibility, self.strategy)
        lanes = {lane.number: lane for lane in self.snapshot.lanes} | self._least_lanes
        return {number: explainer.why(lanes[number], stop) for number, stop in self.stops.items() if number >= 0}

    def grow_into_idle(self) -> None:
        """Let elastic jobs of full size take what nobody wants."""
        busy = {*self.taking.taken, *(resize.job for resize in self.resizes)}
        for lane in self.resizing.idle_lanes(busy):
            job = lane.jobs[0]
            allowed = self.accounts.allowed_nodes(lane)
            placed = place(self.ledger, lane.fit, self.strategy, allowed, self._caps(job)) if allowed else None
            if placed is not None:
                self._start(lane, job, placed)

    def _head(self, position: int, index: int, shorter_than: float | None = math.inf) -> Head | None:
        """The first job of a lane from ``index`` on that no gate stops, with a shorter limit than ``shorter_than``.

        What one job may not do for its length a shorter one behind it may; None is a limit longer than any.
        """
        most = math.inf if shorter_than is None else shorter_than
        any_length = shorter_than == math.inf
        jobs = self.lanes[position].jobs
        for at in range(index, len(jobs)):
            job = jobs[at]
            if not any_length and (job.time_limit is None or job.time_limit >= most):
                continue
            if job.key not in self.gated and job.key not in self._settled:
                return (-job.priority, job.submitted, job.sequence, position, at)
        return None

    def _entry(self, number: int, queue: list[Head]) -> Entry:
        urgency, submitted, sequence, position, _ = queue[0]
        standing = self.discipline.standing(self.lanes[position], self.accounts)
        return (urgency, standing, submitted, sequence, number)

    def _try(self, lane: Lane, job: PendingJob) -> Stop | None:
        """Start a job if it may and fits, or let it take what it has a right to; else say what kind of stop it met."""
        if not lane.fit.nodes:
            return Stop(job, Reason.MODEL)
        if job.elastic and self.resizing.enabled:
            lane = self._in_its_size(lane, job)
        allowed = self.accounts.allowed_nodes(lane)
        if not allowed:
            taken = self._take_for(lane, job)
            return None if taken is TAKEN else Stop(job, Reason.QUOTA)
        usable = allowed & ~lane.fit.excluded
        if self._blocked_nodes & usable:
            ahead = self._blocker(usable)
            self._block(lane, job, usable)
            return Stop(job, Reason.TURN, ahead)
        if self.throttle.limited and (self.throttle.hold_all() or self.throttle.hold_team(lane.team, job.team)):
            return Stop(job, Reason.BACKPRESSURE)
        full = self._too_few_cards(lane)
        caps = NO_CAPS if full else self._caps(job)
        placed = None if full else place(self.ledger, lane.fit, self.strategy, allowed, caps)
        if placed is not None:
            self._start(lane, job, placed)
            return None
        if not caps:
            self._full_at = self.accounts.version
        taken = self._take_for(lane, job)
        if taken is TAKEN:
            return None
        self._block(lane, job, usable)
        by_reservation = self._reserved(lane, job, allowed) if caps and not full else None
        if self.reservations is not None and self.feasibility.hold_of(lane.fit) is None:
            self.reservations.reserve(lane, job, allowed)
        return by_reservation or taken or Stop(job, Reason.GPUS)

    def _start(self, lane: Lane, job: PendingJob, placed: list[Placed]) -> None:
        start = Start(job.key, pieces(self.ledger, lane.shape.groups, placed))
        self.starts.append(start)
        self._shapes[job.key] = lane.shape
        self._elastic_started = self._elastic_started or job.elastic
        self.accounts.charge(lane.team, self.ledger, placed)
        self.throttle.note_start(lane.team)
        if self.reservations is not None:
            self.reservations.note_start(job, start.pieces)

    @property
    def may_grow(self) -> bool:
        """Whether an elastic job has been started that may take more as soon as it runs."""
        return self.resizing.enabled and self._elastic_started

    def _reserved(self, lane: Lane, job: PendingJob, allowed: int) -> Stop | None:
        """The stop of a job that would fit now, but for the reservations of others."""
        assert self.reservations is not None
        placed = place(self.ledger, lane.fit, self.strategy, allowed)
        if placed is None:
            return None
        undo(self.ledger, placed)
        binding = self.reservations.binding(job, allowed)
        return None if binding is None else Stop(job, Reason.RESERVED, binding.job, binding.at)

    def _take_for(self, lane: Lane, job: PendingJob) -> Stop | None:
        """Let a job take what it has a right to: TAKEN if it does, else a stop if there is more to say, else None."""
        if not self.taking.enabled:
            return None
        if len(self.taking.winners) >= TAKINGS_AT_MOST:
            self.opens = min(self.opens, self.now)  # the others' turn comes in the next decision, at once
            return None
        verdict = self.taking.for_job(lane, job, self._future_ledger, self._caps_after)
        if verdict is None:
            return None
        self.opens = min(self.opens, verdict.opens)
        if verdict.found is None:
            return Stop(job, Reason.RECLAIM, opens=verdict.opens) if verdict.cause is Cause.RECLAIM else None
        self.taking.note(verdict.found, job)
        self._give_up(verdict.found, job, verdict.cause)
        claim = Claim(job.key, pieces(self.ledger, lane.shape.groups, verdict.found.placed))
        self._enter_claim(lane, job, claim, locate(self.ledger, lane.shape, claim.pieces) or [])
        return TAKEN

    def _caps(self, job: PendingJob) -> Mapping[int, int]:
        """What reservations leave to a job on each node."""
        if self.reservations is None or not self.reservations.made:
            return NO_CAPS
        return self.reservations.caps(job)

    def _caps_after(
        self, job: PendingJob, given_up: Iterable[tuple[RunningJob, tuple[Piece, ...]]]
    ) -> Mapping[int, int]:
        """What reservations leave to a job on each node once others have given up some pieces."""
        if self.reservations is None or not self.reservations.made:
            return NO_CAPS
        return self.reservations.caps_after(job, given_up)

    def _give_up(self, found: Found, job: PendingJob, cause: Cause | None) -> None:
        """Plan the end of whole jobs, and the shrinking of elastic ones."""
        ended = {unit.job for unit in found.units if unit.whole}
        self.resizes = [resize for resize in self.resizes if resize.job not in ended]
        if cause is not None:
            self.preempts += [Preempt(key, job.key, cause) for key in sorted(ended)]
        for key in sorted({unit.job for unit in found.units} - ended):
            given_up = set(self.taking.taken[key])
            left = tuple(piece for piece in self.snapshot.running[key].pieces if piece not in given_up)
            self.resizes = [*(resize for resize in self.resizes if resize.job != key), Resize(key, left)]

    def _future_ledger(self) -> Ledger:
        """What will be free once everybody who is leaving has left, and what has been promised is taken."""
        ledger = self.snapshot.ledger.copy()
        for running, left in self.taking.leaving():
            release(ledger, locate(ledger, running.job.shape, left) or [])
        for start in self.starts:
            if start.job not in self._settled:
                hold_spots(ledger, locate(ledger, self._shapes[start.job], start.pieces) or [])
        for spots in self._settled.values():
            hold_spots(ledger, spots)
        return ledger

    def _in_its_size(self, lane: Lane, job: PendingJob) -> Lane:
        """The lane with an elastic job in the largest size of the hour that fits now, or in its least."""
        size = size_at(job, self.resizing.moment)
        caps = self._caps(job)
        low, high, best = size.least, size.wanted, self._with_replicas(lane, size.least, size.vram_mib)
        while low <= high:
            middle = high if high == size.wanted and low == size.least else (low + high + 1) // 2
            trial = self._with_replicas(lane, middle, size.vram_mib)
            allowed = self.accounts.allowed_nodes(trial)
            placed = place(self.ledger, trial.fit, self.strategy, allowed, caps) if allowed else None
            if placed is None:
                high = middle - 1
                continue
            undo(self.ledger, placed)
            low, best = middle + 1, trial
        self._least_lanes[lane.number] = best
        return best

    def _with_replicas(self, lane: Lane, replicas: int, vram_mib: int) -> Lane:
        """The lane of an elastic job in another size."""
        shape = sized(lane.shape, replicas, vram_mib)
        return replace(lane, shape=shape, fit=Fit(shape, self.snapshot.inventory, self.policy.inference_headroom))

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


def being_vacated(claim: Claim) -> Hold:
    """Why the winner of a claim waits."""
    nodes = sorted({piece.node for piece in claim.pieces}, key=natural)
    gpus = sum(len(piece.gpus) for piece in claim.pieces)
    return hold(
        Reason.STOPPING, "waits for {gpus} {what} to be vacated on {nodes}",
        gpus=gpus, what=label(ANY_MODEL, gpus),
        nodes=listed(nodes),
    )  # fmt: skip
