"""What people do to jobs: cancel, hold, release, requeue; and what the end of a team means for its jobs.

Each verb is one transaction, locks the job's row, asks the table of transitions and writes an event. Taking jobs in is
`jobs.submission`, what backends and plans do to jobs is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from jobs.events import event_of, note_jobs, short
from jobs.models import TERMINAL_STATES, WAITING_STATES, Attempt, Job
from jobs.permissions import acts_as
from jobs.selectors import unfinished
from jobs.states import Actor, AttemptEnd, Event, IllegalTransition, JobState, transition
from jobs.wake import wake
from teams.models import Team, TeamState, User
from teams.problems import Conflict, Forbidden, Invalid, NotFound
from teams.selectors import standing_of
from teams.services import begin_drain, lock_team, mark_archived


def cancel(*, user: User, job: Job, why: str = "") -> Job:
    """End a job for good: at once where it waits, else its attempt is stopped first. Again: does nothing."""
    with transaction.atomic():
        job, actor = _locked(user, job)
        if job.state == JobState.CANCELLED:
            return job
        why = short(why or f"cancelled by {user.get_username()}")
        if job.attempts.filter(ended_at=None, stop_end=AttemptEnd.CANCELLED).exists():
            return job  # it is stopping for that already
        _cancel(job, actor, user, why, timezone.now())
    return job


def hold(*, user: User, job: Job, why: str) -> Job:
    """Keep a waiting job from starting until somebody releases it."""
    if not why.strip():
        raise Invalid("invalid", "why: is missing", field="why")
    with transaction.atomic():
        job, actor = _locked(user, job)
        origin = _move(job, Event.HOLD, actor)
        job.held_why = short(why.strip())
        _save(job, Event.HOLD, actor, user, job.held_why, origin=origin, fields=("held_why",))
    return job


def release(*, user: User, job: Job, why: str = "") -> Job:
    """Let a held job wait for its turn again, with a clean record of failures of the infrastructure."""
    with transaction.atomic():
        job, actor = _locked(user, job)
        origin = _move(job, Event.RELEASE, actor)
        job.held_why, job.backoff_until, job.infrastructure_in_a_row = "", None, 0
        why = short(why or f"released by {user.get_username()}")
        fields = ("held_why", "backoff_until", "infrastructure_in_a_row")
        _save(job, Event.RELEASE, actor, user, why, origin=origin, fields=fields)
    return job


def requeue(*, user: User, job: Job, why: str) -> Job:
    """Stop a job and let it wait again; for admins."""
    with transaction.atomic():
        job, actor = _locked(user, job)
        if actor is not Actor.ADMIN and not standing_of(user).admin:
            raise Forbidden("admin_only", "only a platform admin may do that")
        _stop(job, Event.EVICT, Actor.ADMIN, user, short(why or "requeued by an admin"), AttemptEnd.EVICTED)
    return job


def archive_team(*, author: User, team: Team, drain: bool = False, reason: str = "") -> Team:
    """Archive a team that has nothing left, or let it run dry: waiting jobs are cancelled, running ones finish.

    Raises Conflict with the counts where it has jobs and ``drain`` is not said, or where it has children.
    """
    with transaction.atomic():
        lock_team(team.pk, exclusive=True)
        counts = unfinished(team)
        if any(counts.values()) and not drain:
            said = f"{counts['running']} running and {counts['pending']} pending jobs"
            raise Conflict("team_has_jobs", f"the team {team.slug} still has {said}", **counts)
        team = begin_drain(author=author, team=team, reason=reason or "archived")
        now = timezone.now()
        for job in _lock_jobs(Job.objects.filter(team=team, state__in=WAITING_STATES)):
            _cancel(job, Actor.ADMIN, author, f"the team {team.slug} is being archived", now)
        if not counts["running"]:
            team = mark_archived(author=author, team=team, reason=reason or "archived")
    return team


def finish_drains() -> int:
    """Archive the draining teams whose last job has ended; how many. For the sweep."""
    archived = 0
    for team in Team.objects.filter(state=TeamState.DRAINING, archived_at=None):
        with transaction.atomic():
            state = lock_team(team.pk, exclusive=True)
            if state is TeamState.DRAINING and not any(unfinished(team).values()):
                mark_archived(author=None, team=team, reason="its last job has ended")
                archived += 1
    return archived


def _locked(user: User, job: Job) -> tuple[Job, Actor]:
    """The job with its row locked, and as what the user may change it."""
    try:
        locked = Job.objects.select_for_update(of=("self",)).select_related("team", "user", "cluster").get(pk=job.pk)
    except Job.DoesNotExist:
        raise NotFound("job_not_found", f"there is no job {job.key}") from None
    actor = acts_as(standing_of(user), user.pk, team_id=locked.team_id, owner_id=locked.user_id)
    if actor is None:
        raise Forbidden("job_not_yours", f"the job {job.key} is not yours to change")
    return locked, actor


def _lock_jobs(jobs: Iterable[Job]) -> list[Job]:
    ids = [job.pk for job in jobs]
    return list(
        Job.objects.select_for_update(of=("self",))
        .select_related("team", "user", "cluster")
        .filter(pk__in=ids, state__in=WAITING_STATES)
        .order_by("pk")
    )


def _cancel(job: Job, actor: Actor, user: User, why: str, now: datetime) -> None:
    if job.state in WAITING_STATES:
        origin = _move(job, Event.CANCEL, actor)
        job.held_why, job.finished_at = "", now
        _save(job, Event.CANCEL, actor, user, why, origin=origin, fields=("held_why", "finished_at"))
    else:
        _stop(job, Event.CANCEL, actor, user, why, AttemptEnd.CANCELLED)


def _stop(job: Job, event: Event, actor: Actor, user: User, why: str, end: AttemptEnd) -> None:
    """Ask for the end of a job's live attempt; what the end will lead to is noted on the attempt."""
    origin = _move(job, event, actor)
    Attempt.objects.filter(job=job, ended_at=None).update(
        stop_at=timezone.now(), stop_end=end.value, stop_why=why, stop_sent_at=None
    )
    _save(job, event, actor, user, why, origin=origin)


def _move(job: Job, event: Event, actor: Actor) -> str:
    """Give the job its next state; returns the one before."""
    origin = job.state
    try:
        job.state = transition(JobState(origin), event, actor).value
    except IllegalTransition as error:
        code = "job_ended" if origin in TERMINAL_STATES else "not_now"
        raise Conflict(code, f"the job {job.key} is {origin}: {error}", state=origin) from None
    return origin


def _save(
    job: Job, event: Event, actor: Actor, user: User, why: str, *, origin: str, fields: tuple[str, ...] = ()
) -> None:
    job.state_at, job.state_why = timezone.now(), why
    job.version += 1
    job.save(update_fields=["state", "state_at", "state_why", "version", *fields])
    event_of(job, event, actor, origin=origin, at=job.state_at, why=why, user_id=user.pk).save()
    note_jobs(job.cluster_id, [job.pk])
    wake(job.cluster_id, job.cluster.tick_group)
