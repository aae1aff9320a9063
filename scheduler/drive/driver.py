"""The driver: one loop around `decide`, in memory, for the virtual clock and for the real one alike.

It owns a roster and the record of every job. Each turn hears what the backend has seen, takes what was due, decides if
anything has changed, and carries the plan out. What it does is level-triggered: the backend is told what should be,
observed, and told again where that failed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from jobs.states import Actor, AttemptEnd, Event, JobState, Verdict, after_attempt, transition
from scheduler.backends.base import (
    AttemptKey,
    AttemptReport,
    Backend,
    Cause,
    Launch,
    NodeReport,
    PermanentError,
    Phase,
    TransientError,
)
from scheduler.drive.agenda import Agenda, Rank
from scheduler.drive.clock import Clock
from scheduler.drive.hardware import Hardware
from scheduler.drive.meters import Meters
from scheduler.drive.records import Alert, AttemptRecord, JobRecord, attempt_key
from scheduler.drive.waits import WaitBook
from scheduler.engine import plan as plans
from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import Phase as RosterPhase

AGAIN_SECONDS = 1.0
"""After how long a call to the backend that failed for the moment is repeated."""
_AVOIDS = frozenset({AttemptEnd.FAILED, AttemptEnd.HUNG, AttemptEnd.EVICTED})
_TAKEN = {
    plans.Cause.PREEMPTION: (AttemptEnd.PREEMPTED, Event.PREEMPT),
    plans.Cause.RECLAIM: (AttemptEnd.RECLAIMED, Event.RECLAIM),
}
_TAKEN_ENDS = frozenset(end for end, _ in _TAKEN.values())

OrderOf = Callable[[JobRecord, AttemptRecord], Launch]
OnMove = Callable[[JobRecord, float], None]


def _quietly(job: JobRecord, now: float) -> None:
    """Nobody watches."""


class Driver:
    """See the module. `order_of` makes an attempt's launch order, `on_move` hears of every change of a job's state."""

    def __init__(
        self,
        roster: Roster,
        backend: Backend,
        clock: Clock,
        order_of: OrderOf,
        *,
        seed: int = 0,
        keep_attempts: bool = True,
        on_move: OnMove = _quietly,
    ) -> None:
        self.roster = roster
        self.backend = backend
        self.clock = clock
        self.agenda = Agenda()
        self.jobs: dict[str, JobRecord] = {}
        self.waits = WaitBook()
        self.meters = Meters(roster)
        self.hardware = Hardware(roster, self.meters)
        self.alerts: list[Alert] = []
        self.cycles = 0
        self.expected = 0  # jobs that have not come to their end, those not submitted yet included
        self.stale = True  # something has changed that a plan may depend on
        self.closed = False  # nothing is taken in any more
        self._order_of = order_of
        self._seed = seed
        self._keep_attempts = keep_attempts
        self._on_move = on_move
        self._live: dict[AttemptKey, JobRecord] = {}
        self._waiting: Counter[str] = Counter()  # queued jobs per team
        self._followers: dict[str, list[JobRecord]] = {}  # jobs that wait for the success of another
        self._cursor: int | None = None
        self._wake_at: float | None = None

    @property
    def live(self) -> int:
        """How many attempts hold cards."""
        return len(self._live)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take one turn; False when nothing can ever happen any more."""
        # 1. Hear what has begun, ended or broken.
        self.observe()
        # 2. Take what was due: arrivals, edits, faults, timers. Hear what that has done at once.
        now = self.clock.now()
        if self.agenda.do_due(now):
            self.observe()
        # 3. Decide, if anything has changed or the last plan asked to look again.
        now = self.clock.now()
        if self.stale or (self._wake_at is not None and self._wake_at <= now):
            self.stale = False
            plan = decide(self.roster.snapshot(now), self.roster.policy, now)
            self.cycles += 1
            # 4. Carry the plan out, and take down why the others wait.
            self._carry_out(plan, now)
            self.waits.note(plan, now)
            self.meters.quotas_changed(now)
            self._wake_at = None if plan.wake_at is None else self._look_again(plan.wake_at, now)
            self.observe()
        # 5. Rest until something may have happened; what ended at once frees its cards for this very moment.
        return self.stale or self.clock.rest(self._due(), live=bool(self._live))

    def observe(self) -> None:
        """Bring the records up to what the backend sees."""
        try:
            seen = self.backend.observe(self._cursor)
        except TransientError:
            return  # the next turn asks again
        self._cursor = seen.cursor
        now = self.clock.now()
        for node in seen.nodes:
            self._see_node(node, now)
        for report in seen.attempts:
            job = self._live.get(report.attempt)
            if job is not None:
                self._see_attempt(job, report, now)

    def _look_again(self, wake_at: float, now: float) -> float:
        """When the plan wants to be made again: then, or a cycle from now where something is due already."""
        return wake_at if wake_at > now else now + self.roster.policy.cycle

    def _due(self) -> float | None:
        following = self.agenda.next_at()
        if following is None or self._wake_at is None:
            return self._wake_at if following is None else following
        return min(following, self._wake_at)

    # -- jobs come in -------------------------------------------------------------------------------------------------

    def expect(self, job: JobRecord) -> None:
        """Announce a job that will be submitted, so that others may wait for it."""
        self.jobs[job.name] = job
        self.expected += 1
        for name in job.spec.after:
            self._followers.setdefault(name, []).append(job)

    def submit(self, job: JobRecord, now: float) -> None:
        """Take a job in, or reject it where its team has too many waiting already."""
        if self.closed:
            return
        job.submitted = now
        self.meters.mark(now)
        most = self.roster.policy.backpressure.max_pending_per_team
        waiting = self._waiting[job.spec.team]
        if most and waiting >= most:
            job.message = f"jobs of {job.spec.team} waiting: {waiting}, the limit is {most}"
            self._move(job, Event.REJECT, Actor.DRIVER, now)
            self._close(job, now)
            return
        self._move(job, Event.SUBMIT, Actor.USER, now)
        self._enqueue(job, now)

    def _enqueue(self, job: JobRecord, now: float) -> None:
        """Let a job wait in the roster, for the first time or again."""
        job.queued += 1
        pending = self._pending(job)
        lane = self.roster.submit(pending)
        self.waits.enter(job.name, lane, now)
        self._waiting[job.spec.team] += job.state is JobState.QUEUED
        self._watch_wait(job, pending, now)
        self.stale = True

    def _pending(self, job: JobRecord) -> PendingJob:
        spec = job.spec
        return PendingJob(
            key=job.name,
            team=spec.team,
            shape=spec.shape(avoided=job.avoided),
            priority=spec.priority,
            submitted=job.submitted,
            sequence=job.sequence,
            time_limit=spec.time_limit,
            held=job.message if job.state is JobState.HELD else "",
            backoff_until=job.backoff_until,
            not_before=spec.not_before or 0.0,
            waits_for=tuple(self._unmet(spec.after)) if spec.after else (),
            preemptible=spec.preemptible,
            min_runtime=spec.min_runtime,
            scale=spec.scale,
            checkpoint_every=job.profile.checkpoint_every,
            taken=sum(attempt.end in _TAKEN_ENDS for attempt in job.attempts),
            returning=bool(job.attempts) and job.attempt.end in _TAKEN_ENDS,
        )

    def _unmet(self, after: tuple[str, ...]) -> list[str]:
        """The jobs that have not succeeded, each with what it is doing."""
        states = [(name, self.jobs[name].state) for name in after]
        return [
            f"{name} is {state}" if state is not None else f"{name} is not submitted yet"
            for name, state in states
            if state is not JobState.SUCCEEDED
        ]

    def _watch_wait(self, job: JobRecord, pending: PendingJob, now: float) -> None:
        """Tell people when a job that nothing of its own stops has waited longer than it says it may."""
        if job.spec.max_wait is None or pending.held or pending.waits_for:
            return
        time_in_queue = job.queued
        since = max(now, pending.not_before, pending.backoff_until)

        def too_long(at: float) -> None:
            if job.queued == time_in_queue and job.state is JobState.QUEUED:
                why = self.waits.why(job.name)
                self.alerts.append(Alert(at, "max_wait", job.name, message="" if why is None else why.message))

        self.agenda.add(since + job.spec.max_wait, Rank.TIMER, too_long)

    # -- plans are carried out ----------------------------------------------------------------------------------------

    def _carry_out(self, plan: plans.Plan, now: float) -> None:
        self.roster.keep(plan.claims)
        for resize in plan.resizes:
            self._resize(self.jobs[resize.job], resize.pieces, now)
        for start in plan.starts:
            self._start(self.jobs[start.job], start.pieces, now)
        for preempt in plan.preempts:
            end, event = _TAKEN[preempt.cause]
            self._stop(self.jobs[preempt.job], end, event, Actor.ENGINE, f"{end} for {preempt.winner}", now)

    def _start(self, job: JobRecord, pieces: tuple[plans.Piece, ...], now: float) -> None:
        running = self.roster.start(job.name, pieces, now)
        self._leave(job, now)
        self.meters.took(running, now)
        number = len(job.attempts) + 1
        attempt = AttemptRecord(number, attempt_key(job.name, number), now, pieces)
        job.attempts.append(attempt)
        job.backoff_until = 0.0
        if job.started is None:
            job.started = now
        self._live[attempt.key] = job
        self._move(job, Event.PLACE, Actor.ENGINE, now)
        self._launch(job, attempt, now)

    def _resize(self, job: JobRecord, pieces: tuple[plans.Piece, ...], now: float) -> None:
        """Give an elastic job its new replicas, or its slices their new memory, without a new attempt."""
        running = self.roster.running(job.name)
        if running is None or job.stop is not None:
            return
        self.meters.gave(running, now)
        self.meters.took(self.roster.resize(job.name, pieces, now), now)
        job.attempt.resizes.append((now, pieces))
        self.backend.resize(self._order_of(job, job.attempt))
        self.stale = True

    def _launch(self, job: JobRecord, attempt: AttemptRecord, now: float) -> None:
        """Order the attempt; again and again while that fails for the moment only."""
        if job.stop is not None:  # told to end before it ever began
            self._finish(job, job.stop, now)
            return
        try:
            self.backend.launch(self._order_of(job, attempt))
        except TransientError as error:
            attempt.note = str(error)
            self.agenda.add(now + AGAIN_SECONDS, Rank.TIMER, lambda at: self._launch(job, attempt, at))
        except PermanentError as error:
            attempt.note = str(error)
            self._finish(job, AttemptEnd.FAILED, now, again=False)

    def stop(self, job: JobRecord, end: AttemptEnd, why: str, now: float) -> None:
        """End a job's attempt for health's or a person's sake; what it ends as is `end`."""
        event = {AttemptEnd.EVICTED: Event.EVICT, AttemptEnd.HUNG: Event.HANG, AttemptEnd.IDLE: Event.IDLE}[end]
        self._stop(job, end, event, Actor.HEALTH, why, now)

    def _stop(self, job: JobRecord, end: AttemptEnd, event: Event, actor: Actor, why: str, now: float) -> None:
        if job.state not in (JobState.STARTING, JobState.RUNNING):
            return
        job.stop = end
        self._move(job, event, actor, now)
        self.roster.set_phase(job.name, RosterPhase.STOPPING)
        self._tell_to_stop(job.attempt, why, now)

    def _tell_to_stop(self, attempt: AttemptRecord, why: str, now: float, grace: float | None = None) -> None:
        if attempt.ended is not None:
            return
        try:
            self.backend.stop(attempt.key, grace_s=grace, why=why)
        except TransientError:
            again = now + AGAIN_SECONDS
            self.agenda.add(again, Rank.TIMER, lambda at: self._tell_to_stop(attempt, why, at, grace))

    # -- people interfere ---------------------------------------------------------------------------------------------

    def cancel(self, job: JobRecord, why: str, now: float, *, grace: float | None = None) -> None:
        """End a job for good, whatever it is doing. One that has not been submitted yet, or has ended, stays as it is.

        A second call with a shorter `grace` (seconds) hastens the end.
        """
        if job.state in (JobState.QUEUED, JobState.HELD):
            job.message = why
            self.roster.withdraw(job.name)
            self._leave(job, now)
            self._move(job, Event.CANCEL, Actor.USER, now)
            self._close(job, now)
        elif job.state is not None and job.state.holds_cards:
            job.stop, job.message = AttemptEnd.CANCELLED, why
            self._move(job, Event.CANCEL, Actor.USER, now)
            self.roster.set_phase(job.name, RosterPhase.STOPPING)
            self._tell_to_stop(job.attempt, why, now, grace)

    def close(self, why: str, now: float, *, grace: float | None = None) -> None:
        """Take nothing in any more and end everything; again with a shorter `grace` (seconds) to hasten it."""
        self.closed = True
        for job in self.jobs.values():
            self.cancel(job, why, now, grace=grace)

    def evict(self, node: str, why: str, now: float) -> None:
        """End what runs on a node, to run it elsewhere."""
        for job in list(self._live.values()):
            if node in job.attempt.nodes:
                job.evicted_from = frozenset({node})
                self.stop(job, AttemptEnd.EVICTED, why, now)

    # -- observations converge ----------------------------------------------------------------------------------------

    def _see_node(self, node: NodeReport, now: float) -> None:
        known = self.hardware.nodes.get(node.name)
        if known is None or known.down != (not node.ready):
            self.hardware.contact(node.name, now, lost=not node.ready, why=node.note or "in contact again")
            self.stale = True

    def _see_attempt(self, job: JobRecord, report: AttemptReport, now: float) -> None:
        if report.phase.ended:
            job.attempt.exit_code, job.attempt.note = report.exit_code, report.note
            self._finish(job, _end_of(job, report), now)
        elif report.phase is Phase.RUNNING and job.state is JobState.STARTING:
            self._move(job, Event.RUN, Actor.BACKEND, now)
            self.roster.set_phase(job.name, RosterPhase.RUNNING)
            self.stale = self.stale or self.roster.policy.backpressure.max_starting > 0

    def _finish(self, job: JobRecord, end: AttemptEnd, now: float, *, again: bool = True) -> None:
        """An attempt has ended and its cards are free: what becomes of the job. Not `again`: it can only fail again."""
        attempt = job.attempt
        attempt.ended, attempt.end = now, end
        del self._live[attempt.key]
        self.meters.gave(self.roster.release(job.name, now), now)
        if not self._keep_attempts:
            self.backend.forget(attempt.key)
        job.tally = job.tally.after(end)
        verdict = after_attempt(
            end,
            own_failures=job.tally.own_failures,
            infrastructure_in_a_row=job.tally.infrastructure_in_a_row,
            retries=job.spec.retries if again else 0,
            retry=self.roster.policy.retry,
            jitter=self._chance(job, attempt) if end.uses_up_retries else 0.0,
        )
        job.stop = None
        if end is not AttemptEnd.CANCELLED:  # then whoever did it has said why
            job.message = _said_of(verdict, attempt)
        self._move(job, verdict.event, Actor.BACKEND, now)
        self.stale = True
        if verdict.state.terminal:
            self._close(job, now)
            return
        nodes = job.evicted_from if end is AttemptEnd.EVICTED else attempt.nodes
        job.avoided = nodes if end in _AVOIDS else frozenset()
        job.backoff_until = now + verdict.backoff_s if verdict.backoff_s else 0.0
        self._enqueue(job, now)
        if verdict.state is JobState.HELD:
            self.alerts.append(Alert(now, "held", job.name, message=verdict.why))

    def _chance(self, job: JobRecord, attempt: AttemptRecord) -> float:
        """A number from 0 to 1 for this attempt alone, so that nobody's pause depends on what happens to others."""
        return random.Random(f"{self._seed}/{job.name}/{attempt.number}").random()  # noqa: S311  spreads retries only

    # -- records ------------------------------------------------------------------------------------------------------

    def _leave(self, job: JobRecord, now: float) -> None:
        """A job waits no longer."""
        self.waits.leave(job.name, now)
        self._waiting[job.spec.team] -= job.state is JobState.QUEUED

    def _close(self, job: JobRecord, now: float) -> None:
        """A job has come to its end."""
        job.ended = now
        self.expected -= 1
        self.stale = True
        self.meters.mark(now)

    def _move(self, job: JobRecord, event: Event, actor: Actor, now: float) -> None:
        job.state = transition(job.state, event, actor)
        for follower in self._followers.get(job.name, ()):
            if self.roster.waiting(follower.name) is not None:
                pending = self._pending(follower)
                self.roster.submit(pending)
                self._watch_wait(follower, pending, now)
                self.stale = True
        self._on_move(job, now)


def _said_of(verdict: Verdict, attempt: AttemptRecord) -> str:
    """Why a job is where it is after an attempt, with what the backend has to add: a command not found, a node gone."""
    if verdict.state is JobState.SUCCEEDED:
        return ""
    told = attempt.note and attempt.end is not AttemptEnd.TIME_LIMIT  # that sentence says it all
    return f"{verdict.why}: {attempt.note}" if told else verdict.why


def _end_of(job: JobRecord, report: AttemptReport) -> AttemptEnd:
    """How an attempt ended: by itself, at its limit, lost with its node, or as it was told."""
    if report.cause is Cause.SELF:
        return AttemptEnd.COMPLETED if report.exit_code == 0 else AttemptEnd.FAILED
    if report.cause is Cause.TIME_LIMIT:
        return AttemptEnd.TIME_LIMIT
    if report.phase is Phase.LOST:
        return AttemptEnd.CANCELLED if job.stop is AttemptEnd.CANCELLED else AttemptEnd.LOST
    return job.stop or AttemptEnd.CANCELLED
