"""Reading jobs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Q, QuerySet

from jobs.models import LIVE_STATES, WAITING_STATES, Job
from jobs.permissions import may_see_job
from jobs.spec import JobSpec, parse_job
from scheduler.engine.demand import Shape
from teams.models import Team, User
from teams.problems import NotFound
from teams.selectors import standing_of


def visible_to(user: User | AnonymousUser) -> QuerySet[Job]:
    """The jobs that ``user`` may see, with team, user and cluster; nothing for nobody."""
    standing = standing_of(user)
    jobs = Job.objects.select_related("team", "user", "cluster")
    return jobs if standing.admin else jobs.filter(team_id__in=standing.member | standing.lead)


def job_for(user: User | AnonymousUser, key: str) -> Job:
    """The job of that key. Raises NotFound where there is none that ``user`` may see."""
    job = Job.objects.select_related("team", "user", "cluster").filter(key=key).first()
    if job is None or not may_see_job(standing_of(user), job.team_id):
        raise NotFound("job_not_found", f"there is no job {key}")
    return job


def spec_of(job: Job) -> JobSpec:
    """What a job asks for. Raises SpecError only where the format has changed since it was taken in."""
    return parse_job(job.spec, team=job.team.slug, user=job.user.get_username())


def shape_of(job: Job, spec: JobSpec, now: datetime) -> Shape:
    """Where a job fits, with the nodes excluded for it at ``now``."""
    return spec.shape(excluded=excluded_nodes(job, now))


def excluded_nodes(job: Job, now: datetime) -> frozenset[str]:
    """The nodes that a job must not use at ``now``."""
    moment = now.timestamp()
    return frozenset(row["node"] for row in job.excluded if row.get("until") is None or row["until"] > moment)


def lane_key(team_id: int, shape: Shape) -> str:
    """The key of the lane that a team's jobs of this shape wait in: the same in every process, for ever."""
    plain = json.dumps([team_id, asdict(shape)], sort_keys=True, default=sorted)
    return sha256(plain.encode()).hexdigest()[:32]


def unfinished(team: Team) -> dict[str, int]:
    """How many jobs of a team hold cards (``running``) and how many wait (``pending``)."""
    return Job.objects.filter(team=team).aggregate(
        running=Count("id", filter=Q(state__in=LIVE_STATES)), pending=Count("id", filter=Q(state__in=WAITING_STATES))
    )
