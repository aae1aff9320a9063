"""What follows when attempts have ended: GPUs come back, and jobs succeed, fail, wait again or are held.

Idempotent: an attempt that has ended already is left as it is, so late and repeated reports change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction

from jobs.events import event_of, note_jobs, short
from jobs.models import Attempt, Job, JobEvent
from jobs.states import Actor, AttemptEnd, Event, JobState, Tally, Verdict, after_attempt, transition
from jobs.wake import wake
from scheduler.bulk import update_rows
from scheduler.engine.policy import Policy
from scheduler.inventory.models import Cluster
from scheduler.policies import policy_of

JOB_COLUMNS = (
    ("id", "bigint"), ("state", "text"), ("state_why", "text"), ("state_at", "timestamptz"),
    ("finished_at", "timestamptz"), ("exit_code", "int"), ("held_why", "text"), ("backoff_until", "timestamptz"),
    ("own_failures", "int"), ("infrastructure_in_a_row", "int"), ("preemptions", "int"),
    ("preempted_at", "timestamptz"), ("returning", "bool"), ("version", "int"),
)  # fmt: skip
ATTEMPT_COLUMNS = (
    ("id", "bigint"), ("ended_at", "timestamptz"), ("end", "text"), ("exit_code", "int"), ("signal", "int"),
    ("note", "text"),
)  # fmt: skip
TAKEN = frozenset({AttemptEnd.PREEMPTED, AttemptEnd.RECLAIMED})


class Ending(NamedTuple):
    """How an attempt, by its id, ended by itself. A request to stop that came before may make another end of it.

    ``again`` False: it could only end in the same way again, so its job is not tried again for that.
    """

    attempt: int
    end: AttemptEnd
    exit_code: int | None = None
    signal: int | None = None
    note: str = ""
    again: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended now, and the state in which that leaves its job."""

    attempt: str
    job: str
    end: AttemptEnd
    state: JobState


def end_attempts(
    *, cluster: Cluster, endings: Sequence[Ending], now: datetime, chance: Callable[[], float]
) -> list[Ended]:
    """End attempts and decide about their jobs, in one transaction and a constant number of queries.

    ``chance`` gives random numbers from 0 to below 1, for the back-off. Jobs that somebody else is changing at this
    moment are left for the next time.
    """
    if not endings:
        return []
    policy = policy_of(cluster)
    by_attempt = {ending.attempt: ending for ending in endings}
    with transaction.atomic():
        pairs = _lock(list(by_attempt))
        ended = [
            (attempt, job, *_decide(attempt, job, by_attempt[attempt.pk], policy, chance)) for attempt, job in pairs
        ]
        events = [_settle(attempt, job, end, verdict, now) for attempt, job, end, verdict in ended]
        _save(pairs, now)
        JobEvent.objects.bulk_create(events)
        note_jobs(cluster.pk, [job.pk for _, job in pairs])
        if pairs:
            wake(cluster.pk, cluster.tick_group)
    return [Ended(attempt.key, job.key, end, JobState(job.state)) for attempt, job, end, _ in ended]


def _lock(ids: list[int]) -> list[tuple[Attempt, Job]]:
    """The attempts that are still live, with their jobs locked: the row of the job guards both."""
    jobs = {
        job.pk: job
        for job in Job.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
        .filter(attempts__in=ids, attempts__ended_at=None)
        .order_by("pk")
    }
    attempts = Attempt.objects.filter(pk__in=ids, ended_at=None, job__in=jobs).order_by("job_id")
    return [(attempt, jobs[attempt.job_id]) for attempt in attempts]


def _decide(
    attempt: Attempt, job: Job, ending: Ending, policy: Policy, chance: Callable[[], float]
) -> tuple[AttemptEnd, Verdict]:
    attempt.exit_code, attempt.signal, attempt.note = ending.exit_code, ending.signal, short(ending.note)
    end = _how(attempt, ending)
    tally = Tally(job.own_failures, job.infrastructure_in_a_row).after(end)
    job.own_failures, job.infrastructure_in_a_row = tally
    verdict = after_attempt(
        end,
        own_failures=tally.own_failures,
        infrastructure_in_a_row=tally.infrastructure_in_a_row,
        retries=job.retries if ending.again else 0,
        retry=policy.retry,
        jitter=chance(),
    )
    return end, verdict


def _how(attempt: Attempt, ending: Ending) -> AttemptEnd:
    """What a request to stop has made of an end: cancelled stays cancelled, else a success still counts as one."""
    if not attempt.stop_end:
        return ending.end
    asked = AttemptEnd(attempt.stop_end)
    if ending.end is AttemptEnd.COMPLETED and asked is not AttemptEnd.CANCELLED:
        return ending.end
    return asked


def _settle(attempt: Attempt, job: Job, end: AttemptEnd, verdict: Verdict, now: datetime) -> JobEvent:
    origin = JobState(job.state)
    state = transition(origin, verdict.event, Actor.BACKEND)
    attempt.ended_at, attempt.end = now, end.value
    job.state, job.state_at = state.value, now
    job.state_why = short(f"{verdict.why}: {attempt.note}" if attempt.note else verdict.why)
    job.finished_at = now if state.terminal else None
    job.exit_code = attempt.exit_code if state.terminal else None
    job.held_why = short(verdict.why) if state is JobState.HELD else ""
    job.backoff_until = now + timedelta(seconds=verdict.backoff_s) if verdict.backoff_s else None
    job.returning = end in TAKEN
    if job.returning:
        job.preemptions, job.preempted_at = job.preemptions + 1, now
    job.version += 1
    data = {"attempt": attempt.number, "end": end.value, "exit_code": attempt.exit_code, "backoff_s": verdict.backoff_s}
    kept = {key: value for key, value in data.items() if value not in (None, 0.0) or key == "exit_code"}
    return event_of(job, Event(verdict.event), Actor.BACKEND, origin=origin, at=now, why=job.state_why, data=kept)


def _save(pairs: list[tuple[Attempt, Job]], now: datetime) -> None:
    if not pairs:
        return
    names = [name for name, _ in JOB_COLUMNS]
    update_rows("jobs_job", JOB_COLUMNS, [[getattr(job, name) for name in names] for _, job in pairs])
    names = [name for name, _ in ATTEMPT_COLUMNS]
    update_rows("jobs_attempt", ATTEMPT_COLUMNS, [[getattr(attempt, name) for name in names] for attempt, _ in pairs])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE inventory_allocation SET released_at = %s WHERE attempt_id = ANY(%s) AND released_at IS NULL",
            [now, [attempt.pk for attempt, _ in pairs]],
        )
