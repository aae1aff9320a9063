"""The life of a job: one table of who may move it from where to where, and what follows the end of an attempt. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from scheduler.engine.policy import Retry

INFRASTRUCTURE_MOST = 10
"""Ends in a row that the infrastructure caused, after which a job waits for a person."""
JITTER = 0.25
"""Share by which a back-off is spread to either side."""
_DOUBLINGS_MOST = 1_000  # beyond this a float overflows, and every cap is long reached


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HELD = "held"
    REJECTED = "rejected"

    @property
    def terminal(self) -> bool:
        """Whether nothing can happen to the job any more."""
        return self in TERMINAL

    @property
    def holds_cards(self) -> bool:
        """Whether an attempt of the job is alive."""
        return self in LIVE


LIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED})


class Actor(StrEnum):
    """Who moves a job. ``user`` is its owner, ``driver`` the loop that carries plans and verdicts out."""

    USER = "user"
    LEAD = "lead"
    ADMIN = "admin"
    ENGINE = "engine"
    BACKEND = "backend"
    HEALTH = "health"
    DRIVER = "driver"


class Event(StrEnum):
    """What moves a job."""

    SUBMIT = "submit"
    REJECT = "reject"
    PLACE = "place"
    RUN = "run"
    PREEMPT = "preempt"
    RECLAIM = "reclaim"
    EVICT = "evict"
    HANG = "hang"
    IDLE = "idle"
    TIME_LIMIT = "time_limit"
    CANCEL = "cancel"
    SUCCEED = "succeed"
    FAIL = "fail"
    REQUEUE = "requeue"
    STOPPED = "stopped"
    HOLD = "hold"
    RELEASE = "release"
    EXPIRE = "expire"


class Transition(NamedTuple):
    """One row of the table; ``origin`` None: the job is new."""

    origin: JobState | None
    event: Event
    to: JobState
    actors: frozenset[Actor]


PEOPLE = frozenset({Actor.USER, Actor.LEAD, Actor.ADMIN})
ENGINE = frozenset({Actor.ENGINE})
ENDERS = frozenset({Actor.BACKEND, Actor.DRIVER})
WATCHERS = frozenset({Actor.HEALTH, Actor.DRIVER})


def _rows() -> Iterable[Transition]:
    yield Transition(None, Event.SUBMIT, JobState.QUEUED, PEOPLE)
    yield Transition(None, Event.REJECT, JobState.REJECTED, ENGINE | {Actor.DRIVER})
    yield Transition(JobState.QUEUED, Event.PLACE, JobState.STARTING, ENGINE)
    yield Transition(JobState.STARTING, Event.RUN, JobState.RUNNING, ENDERS)
    # A job that waits.
    yield Transition(JobState.QUEUED, Event.CANCEL, JobState.CANCELLED, PEOPLE)
    yield Transition(JobState.QUEUED, Event.HOLD, JobState.HELD, PEOPLE | WATCHERS)
    yield Transition(JobState.QUEUED, Event.EXPIRE, JobState.FAILED, frozenset({Actor.DRIVER}))
    yield Transition(JobState.HELD, Event.RELEASE, JobState.QUEUED, PEOPLE)
    yield Transition(JobState.HELD, Event.CANCEL, JobState.CANCELLED, PEOPLE)
    # A job with a live attempt is told to stop.
    for origin in (JobState.STARTING, JobState.RUNNING):
        yield Transition(origin, Event.PREEMPT, JobState.STOPPING, ENGINE)
        yield Transition(origin, Event.RECLAIM, JobState.STOPPING, ENGINE)
        yield Transition(origin, Event.EVICT, JobState.STOPPING, WATCHERS | {Actor.ADMIN})
        yield Transition(origin, Event.HANG, JobState.STOPPING, WATCHERS)
        yield Transition(origin, Event.IDLE, JobState.STOPPING, WATCHERS)
        yield Transition(origin, Event.TIME_LIMIT, JobState.STOPPING, ENDERS)
        yield Transition(origin, Event.CANCEL, JobState.STOPPING, PEOPLE)
    # Whatever it was stopped for, a person may still want it gone for good.
    yield Transition(JobState.STOPPING, Event.CANCEL, JobState.STOPPING, PEOPLE)
    # Its attempt has ended (quick ones before they were seen running) and its cards are free: the verdict.
    for origin in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING):
        yield Transition(origin, Event.SUCCEED, JobState.SUCCEEDED, ENDERS)
        yield Transition(origin, Event.FAIL, JobState.FAILED, ENDERS)
        yield Transition(origin, Event.REQUEUE, JobState.QUEUED, ENDERS)
        yield Transition(origin, Event.STOPPED, JobState.CANCELLED, ENDERS)
        yield Transition(origin, Event.HOLD, JobState.HELD, ENDERS)


TRANSITIONS: tuple[Transition, ...] = tuple(_rows())
"""Every way a job's state may change, and nobody else may change it. No row begins in a terminal state."""

_BY_CAUSE = {(row.origin, row.event): row for row in TRANSITIONS}


class IllegalTransition(Exception):
    """A job may not be moved like that; the text is one line for people."""

    def __init__(self, state: JobState | None, event: Event, actor: Actor, problem: str) -> None:
        super().__init__(problem)
        self.state = state
        self.event = event
        self.actor = actor


def transition(state: JobState | None, event: Event, actor: Actor) -> JobState:
    """Return the state that follows when ``actor`` causes ``event``; ``state`` None: the job is new.

    Raises:
        IllegalTransition: the table has no such row, or not for this actor.
    """
    row = _BY_CAUSE.get((state, event))
    if row is None:
        whose = "a new job" if state is None else f"a job that is {state}"
        raise IllegalTransition(state, event, actor, f"{whose} does not take the event {event}")
    if actor not in row.actors:
        allowed = ", ".join(sorted(row.actors))
        raise IllegalTransition(state, event, actor, f"{event} is for {allowed}, not for {actor}")
    return row.to


class Blame(Enum):
    """Whose doing an attempt's end was."""

    FINE = "it ended as it should"
    OWN = "its own failure"
    INFRASTRUCTURE = "the infrastructure"
    ASKED = "somebody, or the scheduler, asked for it"


class AttemptEnd(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    PREEMPTED = "preempted"
    RECLAIMED = "reclaimed"
    EVICTED = "evicted"
    HUNG = "hung"
    IDLE = "idle"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def blame(self) -> Blame:
        """Whose doing it was."""
        return _BLAME[self]

    @property
    def uses_up_retries(self) -> bool:
        """Whether it counts against the job's own retries."""
        return self in (AttemptEnd.FAILED, AttemptEnd.HUNG)


_BLAME = {
    AttemptEnd.COMPLETED: Blame.FINE,
    AttemptEnd.FAILED: Blame.OWN,
    AttemptEnd.HUNG: Blame.OWN,
    AttemptEnd.TIME_LIMIT: Blame.OWN,
    AttemptEnd.EVICTED: Blame.INFRASTRUCTURE,
    AttemptEnd.LOST: Blame.INFRASTRUCTURE,
    AttemptEnd.PREEMPTED: Blame.ASKED,
    AttemptEnd.RECLAIMED: Blame.ASKED,
    AttemptEnd.IDLE: Blame.ASKED,
    AttemptEnd.CANCELLED: Blame.ASKED,
}


class Tally(NamedTuple):
    """What a job's ended attempts count up to."""

    own_failures: int = 0
    infrastructure_in_a_row: int = 0

    def after(self, end: AttemptEnd) -> "Tally":
        """Count one more end; any other than the infrastructure's breaks the row."""
        in_a_row = self.infrastructure_in_a_row + 1 if end.blame is Blame.INFRASTRUCTURE else 0
        return Tally(self.own_failures + end.uses_up_retries, in_a_row)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a job: its next state, how long it must not start (seconds), and a sentence that says why."""

    state: JobState
    backoff_s: float
    why: str

    @property
    def event(self) -> Event:
        """The event that brings the verdict about."""
        return _VERDICTS[self.state]


_VERDICTS = {
    JobState.SUCCEEDED: Event.SUCCEED,
    JobState.FAILED: Event.FAIL,
    JobState.QUEUED: Event.REQUEUE,
    JobState.CANCELLED: Event.STOPPED,
    JobState.HELD: Event.HOLD,
}

_AT_ONCE = {
    AttemptEnd.COMPLETED: Verdict(JobState.SUCCEEDED, 0.0, "it completed"),
    AttemptEnd.TIME_LIMIT: Verdict(JobState.FAILED, 0.0, "it reached its time limit"),
    AttemptEnd.CANCELLED: Verdict(JobState.CANCELLED, 0.0, "it was cancelled"),
    AttemptEnd.IDLE: Verdict(JobState.CANCELLED, 0.0, "it held cards that it did not use"),
    AttemptEnd.PREEMPTED: Verdict(JobState.QUEUED, 0.0, "a job of higher priority took its cards"),
    AttemptEnd.RECLAIMED: Verdict(JobState.QUEUED, 0.0, "its cards were on loan and were taken back"),
}


def after_attempt(
    end: AttemptEnd,
    *,
    own_failures: int,
    infrastructure_in_a_row: int,
    retries: int | None,
    retry: Retry,
    jitter: float,
) -> Verdict:
    """Return what becomes of a job whose attempt has ended, with its cards free.

    The two counts include this end (see :class:`Tally`). ``retries`` are the job's own, at most the policy's; None:
    the policy's. ``jitter`` is a random number, 0 <= jitter < 1.
    """
    if (verdict := _AT_ONCE.get(end)) is not None:
        return verdict
    if end.blame is Blame.INFRASTRUCTURE:
        if infrastructure_in_a_row >= INFRASTRUCTURE_MOST:
            why = f"the infrastructure ended it {infrastructure_in_a_row} times in a row"
            return Verdict(JobState.HELD, 0.0, why)
        return Verdict(JobState.QUEUED, 0.0, f"it was {end} through no fault of its own")
    allowed = retry.max if retries is None else min(retries, retry.max)
    what = "hung" if end is AttemptEnd.HUNG else "failed"
    if own_failures > allowed:
        return Verdict(JobState.FAILED, 0.0, f"it {what}, and no retry is left (limit {allowed})")
    return Verdict(
        JobState.QUEUED, backoff(own_failures, retry, jitter), f"it {what}, retry {own_failures} of {allowed}"
    )


def backoff(failures: int, retry: Retry, jitter: float) -> float:
    """Return the pause in seconds before the retry that follows the nth failure.

    It doubles from ``retry.backoff`` up to ``retry.max_backoff`` and is spread evenly over ±25 %, at the cap over the
    lower half only, so that it stays below the cap and a crowd of jobs still comes apart. Never less than a second
    (but for a lower cap), so that nothing spins. ``jitter`` is a random number, 0 <= jitter < 1.
    """
    if failures < 1 or not 0.0 <= jitter < 1.0:
        raise ValueError(f"backoff of {failures} failures with jitter {jitter}")
    planned = min(retry.max_backoff, retry.backoff * 2.0 ** min(failures - 1, _DOUBLINGS_MOST))
    low, high = planned * (1.0 - JITTER), min(planned * (1.0 + JITTER), retry.max_backoff)
    return min(retry.max_backoff, max(1.0, low + (high - low) * jitter))
