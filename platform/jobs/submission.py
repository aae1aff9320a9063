"""Taking jobs in: whose team, what was asked for, once for each idempotency key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.events import event_of, note_jobs, short
from jobs.models import TERMINAL_STATES, WAITING_STATES, Dependency, Job
from jobs.permissions import acts_as
from jobs.reading import SpecError, shown
from jobs.selectors import lane_key
from jobs.spec import JobSpec, parse_job
from jobs.states import Actor, Event, JobState, transition
from jobs.wake import wake
from teams.models import Team, TeamState, User
from teams.permissions import may_see_team
from teams.problems import Conflict, Invalid, NotFound
from teams.selectors import live_teams, standing_of, teams_of
from teams.services import lock_team

RESERVED_ENV = frozenset({"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"})
RESERVED_ENV_PREFIX = "ROTA_"


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a job goes to, as far as taking it in is concerned; see `scheduler.targets.target_for`."""

    cluster_id: int
    slug: str
    tick_group: str = "main"
    max_pending_per_team: int = 0  # 0: no limit


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job of a submission; ``created`` is False where the same submission was taken in before."""

    job: Job
    created: bool


def team_for(user: User, slug: str | None) -> Team:
    """The team that ``user`` submits to: the one named, or the only one there is.

    Raises NotFound for a team that is not there or not the user's, Invalid where several could be meant.
    """
    if slug is not None:
        team = live_teams().filter(slug=slug).first()
        if team is None or not may_see_team(standing_of(user), team.pk):
            raise NotFound("team_not_found", f"team: there is no team {shown(slug)}", field="team")
        return team
    teams = list(teams_of(user)[:50])
    if len(teams) != 1:
        slugs = [team.slug for team in teams]
        said = f"is missing; it can be {', '.join(slugs)}" if slugs else "is missing, and you are in no team yet"
        raise Invalid("team_required", f"team: {said}", field="team", teams=slugs)
    return teams[0]


def submit(
    *, user: User, team: Team, target: Target, body: Mapping[str, Any], idempotency_key: str | None = None,
    retry_of: Job | None = None,
) -> Submitted:  # fmt: skip
    """Take a job in. ``body`` is what `jobs.spec` reads, from plain JSON values.

    The same key with the same body gives the same job, however many ask at once. A job above the team's limit of
    waiting jobs is written down as ``rejected``.

    Raises:
        Invalid: the body is wrong. NotFound: not the user's team. Conflict: the team takes no jobs, or the key was
        used for something else.
    """
    digest = _digest(body, team, target)
    if idempotency_key is not None and (known := _known(user, idempotency_key, digest)) is not None:
        return Submitted(known, created=False)
    if acts_as(standing_of(user), user.pk, team_id=team.pk, owner_id=user.pk) is None:
        raise NotFound("team_not_found", f"team: there is no team {shown(team.slug)}", field="team")
    spec = _read(body, team, user)
    now = timezone.now()
    job = _row(spec, body, now, team=team, user=user, target=target)
    job.idempotency_key, job.request_digest, job.retry_of = idempotency_key, digest, retry_of
    try:
        with transaction.atomic():
            _enter(job, spec, target)
    except IntegrityError:
        # Somebody else was first with this key; that transaction is committed, or we would still wait for it.
        winner = None if idempotency_key is None else _known(user, idempotency_key, digest)
        if winner is None:
            raise
        return Submitted(winner, created=False)
    return Submitted(job, created=True)


def retry(*, user: User, job: Job, target: Target, idempotency_key: str | None = None) -> Submitted:
    """Submit an ended job again, as a new one: a terminal state never changes."""
    state = Job.objects.values_list("state", flat=True).get(pk=job.pk)
    if state not in TERMINAL_STATES:
        raise Conflict("job_not_ended", f"the job {job.key} is {state}: only a job that has ended is tried again")
    return submit(user=user, team=job.team, target=target, body=job.spec, idempotency_key=idempotency_key, retry_of=job)


def _enter(job: Job, spec: JobSpec, target: Target) -> None:
    state = lock_team(job.team_id, exclusive=target.max_pending_per_team > 0)
    if state is not TeamState.OPEN:
        what = "is archived" if state is None else "is being archived and takes no new jobs"
        raise Conflict("team_closed", f"the team {job.team.slug} {what}")
    before = _resolve(spec, job.team)
    rejected = _over_the_limit(job, target)
    job.state = transition(None, Event.REJECT if rejected else Event.SUBMIT, Actor.ENGINE if rejected else Actor.USER)
    if rejected:
        job.state_why, job.finished_at = rejected, job.submitted_at
    job.save(force_insert=True)
    kind, actor = (Event.REJECT, Actor.ENGINE) if rejected else (Event.SUBMIT, Actor.USER)
    event_of(job, kind, actor, origin="", at=job.submitted_at, why=job.state_why, user_id=job.user_id).save()
    if not rejected:
        Dependency.objects.bulk_create(Dependency(job=job, on=on) for on in before)
        note_jobs(target.cluster_id, [job.pk])
        wake(target.cluster_id, target.tick_group)


def _over_the_limit(job: Job, target: Target) -> str:
    limit = target.max_pending_per_team
    if not limit:
        return ""
    waiting = Job.objects.filter(cluster_id=target.cluster_id, team=job.team_id, state__in=WAITING_STATES).count()
    return f"jobs of {job.team.slug} waiting: {waiting}, the limit is {limit}" if waiting >= limit else ""


def _read(body: Mapping[str, Any], team: Team, user: User) -> JobSpec:
    try:
        spec = parse_job(dict(body), team=team.slug, user=user.get_username())
    except SpecError as error:
        raise Invalid("invalid", str(error), field=error.path) from None
    for field, own in (("team", team.slug), ("user", user.get_username())):
        if getattr(spec, field) != own:
            raise Invalid("invalid", f"{field}: must be {own} here", field=field)
    if spec.cwd is not None and not (spec.cwd.startswith("/") and spec.cwd.isprintable()):
        raise Invalid("invalid", f"cwd: must be an absolute path, not {shown(spec.cwd)}", field="cwd")
    for key, _ in spec.env:
        if key in RESERVED_ENV or key.startswith(RESERVED_ENV_PREFIX):
            raise Invalid("invalid", f"env.{key}: is not a job's to set", field=f"env.{key}")
    return spec


def _row(spec: JobSpec, body: Mapping[str, Any], now: datetime, *, team: Team, user: User, target: Target) -> Job:
    shape = spec.shape()
    return Job(
        name=spec.name,
        team=team,
        user=user,
        cluster_id=target.cluster_id,
        spec={key: value for key, value in body.items() if key not in ("team", "user")},
        lane=lane_key(team.pk, shape),
        kind=spec.kind.value,
        gpus=shape.total_gpus,
        priority=spec.priority,
        preemptible=spec.preemptible,
        time_limit_s=spec.time_limit,
        min_runtime_s=spec.min_runtime,
        retries=spec.retries,
        labels=dict(spec.labels),
        state=JobState.QUEUED.value,
        state_at=now,
        submitted_at=now,
        not_before=None if spec.not_before is None else now + timedelta(seconds=spec.not_before),
    )


def _resolve(spec: JobSpec, team: Team) -> list[Job]:
    """The jobs of ``after``: by key, or the newest of that name in the team."""
    found = []
    for position, name in enumerate(spec.after):
        of_team = Job.objects.filter(team=team)
        job = of_team.filter(key=name).first() or of_team.filter(name=name).order_by("-id").first()
        if job is None:
            field = f"after[{position}]"
            raise Invalid("invalid", f"{field}: the team {team.slug} has no job {shown(name)}", field=field)
        if job not in found:
            found.append(job)
    return found


def _known(user: User, key: str, digest: str) -> Job | None:
    job = Job.objects.select_related("team", "user", "cluster").filter(user=user, idempotency_key=key).first()
    if job is not None and job.request_digest != digest:
        raise Conflict(
            "idempotency_key_reused", f"the idempotency key {short(shown(key))} was used for another job", job=job.key
        )
    return job


def _digest(body: Mapping[str, Any], team: Team, target: Target) -> str:
    plain = json.dumps([team.pk, target.cluster_id, dict(body)], sort_keys=True, default=str)
    return sha256(plain.encode()).hexdigest()
