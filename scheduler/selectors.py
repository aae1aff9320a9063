"""Why jobs wait, as people read it: the gates of the job itself, else the reason of its lane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q

from jobs.models import WAITING_STATES, Dependency, Job
from jobs.states import JobState
from scheduler.engine.demand import PendingJob, Shape
from scheduler.engine.gates import why_gated
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.models import LaneHold

NOT_YET = hold(Reason.TURN, "nobody has looked at it yet")
SYNCING = hold(Reason.SYNCING, "the cluster has not been looked at completely yet")


@dataclass(frozen=True, slots=True)
class Why:
    """A reason and since when it stands (None: not known)."""

    hold: Hold
    since: datetime | None = None


def why_waiting(jobs: Iterable[Job], now: datetime) -> dict[int, Why]:
    """The reason of each waiting job of ``jobs``, by its id; three queries for any number of jobs.

    The jobs' ``cluster`` is read: select it with them.
    """
    waiting = [job for job in jobs if job.state in WAITING_STATES]
    if not waiting:
        return {}
    waits: dict[int, list[str]] = defaultdict(list)
    rows = Dependency.objects.filter(job__in=waiting).exclude(on__state=JobState.SUCCEEDED).order_by("pk")
    for job_id, name, state in rows.values_list("job_id", "on__name", "on__state"):
        waits[job_id].append(f"{name} is {state}")
    lanes = {
        (row.cluster_id, row.lane): row
        for row in LaneHold.objects.filter(
            lane__in={job.lane for job in waiting}, cluster__in={job.cluster_id for job in waiting}
        )
    }
    return {
        job.pk: _why(job, tuple(waits.get(job.pk, ())), lanes.get((job.cluster_id, job.lane)), now) for job in waiting
    }


def pending_by_reason(cluster_id: int, now: datetime) -> dict[str, int]:
    """How many jobs of a cluster wait for each reason, in a constant number of queries."""
    waiting = Job.objects.filter(cluster_id=cluster_id, state__in=WAITING_STATES)
    blocked = Dependency.objects.filter(job=OuterRef("pk")).exclude(on__state=JobState.SUCCEEDED)
    backoff, not_yet = Q(backoff_until__gt=now), Q(not_before__gt=now)
    queued = waiting.filter(state=JobState.QUEUED).annotate(blocked=Exists(blocked))
    free = queued.exclude(Q(backoff_until__isnull=False) & backoff).exclude(Q(not_before__isnull=False) & not_yet)
    counts: dict[str, int] = defaultdict(int)
    counts[Reason.HELD] = waiting.filter(state=JobState.HELD).count()
    counts[Reason.BACKOFF] = queued.filter(backoff).count()
    counts[Reason.NOT_BEFORE] = queued.filter(not_yet | Q(blocked=True)).exclude(
        Q(backoff_until__isnull=False) & backoff
    ).count()  # fmt: skip
    codes = dict(LaneHold.objects.filter(cluster_id=cluster_id).values_list("lane", "code"))
    for lane, number in free.filter(blocked=False).values_list("lane").annotate(number=Count("pk")).order_by():
        counts[codes.get(lane, NOT_YET.reason.value)] += number
    return {str(Reason(code).value): number for code, number in counts.items() if number}


def _why(job: Job, waits: tuple[str, ...], lane: LaneHold | None, now: datetime) -> Why:
    pending = PendingJob(
        key=job.key,
        team="",
        shape=Shape(),
        held=job.held_why,
        backoff_until=job.backoff_until.timestamp() if job.backoff_until else 0.0,
        not_before=job.not_before.timestamp() if job.not_before else 0.0,
        waits_for=waits,
    )
    gated = why_gated(pending, now.timestamp(), _clock)
    if gated is not None:
        return Why(gated, job.state_at)
    if not job.cluster.synced:
        return Why(SYNCING)
    if lane is None:
        return Why(NOT_YET, job.state_at)
    return Why(Hold(Reason(lane.code), lane.template, tuple(lane.facts.items())), lane.since)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, ZoneInfo(settings.TIME_ZONE)).strftime("%Y-%m-%d %H:%M:%S %Z")
