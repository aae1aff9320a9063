"""What nobody comes for: attempts that do not end, reasons of lanes that are gone, waits that are over, old records.

Every step is small, idempotent and on its own: one that fails does not keep the others from being done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import pgtrigger
import structlog
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from jobs.events import event_of, note_jobs
from jobs.models import LIVE_STATES, TERMINAL_STATES, WAITING_STATES, Attempt, Change, Dependency, Job, JobEvent
from jobs.reading import SpecError, duration
from jobs.services import finish_drains
from jobs.states import Actor, Event, JobState, transition
from jobs.wake import wake
from scheduler.backends.base import Backend, BackendError
from scheduler.inventory.models import Allocation, Cluster
from scheduler.models import LaneHold
from scheduler.reconcile import note_forgotten, to_forget

log = structlog.get_logger(__name__)
OVERDUE = timedelta(seconds=60)
"""So long after its grace is over an attempt that still lives is killed."""
GRACE_MOST_S = 3600.0
STALE_HOLD = timedelta(hours=1)
KEEP_LOG_DAYS = 30.0
"""How long a backend keeps the records and logs of an attempt that has ended; `keep_log_days` of a cluster's config."""
DEMO_KEEP_HOURS = 12.0
"""How long the ended jobs of a demo cluster are kept; `keep_hours` of its config."""
MOST = 500
"""Rows that one sweep changes of a kind; what is left is for the next one."""


def sweep_cluster(cluster: Cluster, backend: Backend | None, now: datetime) -> dict[str, int]:
    """Do all of it for one cluster; how many of each kind there were. Without a backend what needs one waits."""
    steps: dict[str, Callable[[], int]] = {
        "expired": lambda: expire(cluster, now),
        "holds": lambda: drop_stale_holds(cluster, now),
        "thrown_away": lambda: throw_away_demo_jobs(cluster, now),
        "contradictions": lambda: find_contradictions(cluster),
    }
    if backend is not None:
        steps |= {
            "killed": lambda: kill_overdue(cluster, backend, now),
            "forgotten": lambda: forget_old(cluster, backend, now),
        }
    return {name: _safely(name, step) for name, step in steps.items()}


def sweep_all() -> dict[str, int]:
    """What belongs to no cluster."""
    steps: dict[str, Callable[[], int]] = {"teams_archived": finish_drains, "notes": drop_lost_notes}
    return {name: _safely(name, step) for name, step in steps.items()}


def kill_overdue(cluster: Cluster, backend: Backend, now: datetime) -> int:
    """Kill attempts that were asked to end, had their grace and a while more, and still live."""
    rows = Attempt.objects.filter(
        job__cluster=cluster, ended_at=None, launch_begun_at__isnull=False, stop_sent_at__isnull=False,
        stop_at__lt=now - OVERDUE,
    ).select_related("job")[:MOST]  # fmt: skip
    killed = 0
    for row in rows:
        if row.stop_at is None or row.stop_at + timedelta(seconds=_grace(row)) + OVERDUE > now:
            continue
        with suppress(BackendError):
            backend.stop(row.key, grace_s=0.0, why=row.stop_why)
            killed += 1
            log.warning("it did not end in time and is killed", attempt=row.key)
    return killed


def forget_old(cluster: Cluster, backend: Backend, now: datetime) -> int:
    """Let a backend drop the records and logs of attempts that ended long ago."""
    days = float(cluster.config.get("keep_log_days", KEEP_LOG_DAYS))
    done = []
    for attempt in to_forget(cluster.pk, ended_before=now - timedelta(days=days), most=MOST):
        with suppress(BackendError):
            backend.forget(attempt)
            done.append(attempt)
    note_forgotten(done, now)
    return len(done)


def expire(cluster: Cluster, now: datetime) -> int:
    """End jobs that have run before and then found no cards again for as long as they were willing to wait."""
    waiting = Job.objects.filter(
        cluster=cluster, state=JobState.QUEUED, first_started_at__isnull=False, spec__has_key="retry_window"
    )
    ended = 0
    for pk, state_at, backoff, window in waiting.values_list("pk", "state_at", "backoff_until", "spec__retry_window"):
        try:
            seconds = duration()(window)
        except SpecError:
            continue
        if max(state_at, backoff or state_at) + timedelta(seconds=seconds) <= now:
            ended += _expire(pk, f"it found no cards again for {seconds:g} s", now)
    return ended


def drop_stale_holds(cluster: Cluster, now: datetime) -> int:
    """Drop reasons of lanes in which nobody waits: the loop does that at once, unless it never came to it."""
    waiting = Job.objects.filter(cluster=cluster, lane=OuterRef("lane"), state__in=WAITING_STATES)
    stale = LaneHold.objects.filter(~Exists(waiting), cluster=cluster, since__lt=now - STALE_HOLD)
    return stale.delete()[0]


def find_contradictions(cluster: Cluster) -> int:
    """Count what the database should make impossible, and say it loudly: cards held for nobody, jobs without a try."""
    live = Attempt.objects.filter(job=OuterRef("pk"), ended_at=None)
    jobs = Job.objects.filter(cluster=cluster).filter(
        Q(Exists(live), state__in=(*WAITING_STATES, *TERMINAL_STATES)) | Q(~Exists(live), state__in=LIVE_STATES)
    )
    wrong = list(jobs.filter(Q(state__in=(*WAITING_STATES, *LIVE_STATES)) | Exists(live)).values_list("key", flat=True))
    held = Allocation.objects.filter(node__cluster=cluster, released_at=None, attempt__ended_at__isnull=False)
    wrong += list(held.values_list("attempt__key", flat=True)[:MOST])
    if wrong:
        log.error("the rows contradict each other", what=wrong[:20], number=len(wrong))
    return len(wrong)


def throw_away_demo_jobs(cluster: Cluster, now: datetime) -> int:
    """Delete the oldest ended jobs of a demo cluster, with their history: nobody audits a play, and it goes on and on.

    Everywhere else a job and its events are kept for ever.
    """
    if not cluster.config.get("demo"):
        return 0
    hours = float(cluster.config.get("keep_hours", DEMO_KEEP_HOURS))
    old = Job.objects.filter(cluster=cluster, finished_at__lt=now - timedelta(hours=hours), state__in=TERMINAL_STATES)
    ids = list(old.order_by("finished_at").values_list("pk", flat=True)[:MOST])
    if not ids:
        return 0
    with transaction.atomic(), pgtrigger.ignore("jobs.JobEvent:append_only"):
        # From the leaves up; in plain statements, so that nothing is read only to be deleted.
        for rows in (
            Allocation.objects.filter(attempt__job__in=ids),
            JobEvent.objects.filter(job__in=ids),
            Attempt.objects.filter(job__in=ids),
            Dependency.objects.filter(Q(job__in=ids) | Q(on__in=ids)),
        ):
            rows._raw_delete(rows.db)
        Job.objects.filter(retry_of__in=ids).update(retry_of=None)
        jobs = Job.objects.filter(pk__in=ids)
        jobs._raw_delete(jobs.db)
    return len(ids)


def drop_lost_notes() -> int:
    """Drop notes to the loops of clusters that are gone."""
    notes = Change.objects.filter(~Exists(Cluster.objects.filter(pk=OuterRef("cluster_id"))))
    return notes.delete()[0]


def _expire(pk: int, why: str, now: datetime) -> int:
    with transaction.atomic():
        free = Job.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).select_related("cluster")
        job = free.filter(pk=pk, state=JobState.QUEUED).first()
        if job is None:
            return 0
        job.state = transition(JobState.QUEUED, Event.EXPIRE, Actor.DRIVER).value
        job.state_at, job.finished_at, job.state_why, job.version = now, now, why, F("version") + 1
        job.save(update_fields=["state", "state_at", "finished_at", "state_why", "version"])
        event_of(job, Event.EXPIRE, Actor.DRIVER, origin=JobState.QUEUED, at=now, why=why).save()
        note_jobs(job.cluster_id, [pk])
        wake(job.cluster_id, job.cluster.tick_group)
    return 1


def _grace(row: Attempt) -> float:
    if row.stop_grace_s is not None:
        return row.stop_grace_s
    with suppress(SpecError, KeyError, TypeError):
        return duration()(row.job.spec["checkpoint"]["grace"])
    return 30.0


def _safely(name: str, step: Callable[[], int]) -> int:
    try:
        return step()
    except Exception:  # whatever it is: the next step does not depend on it
        log.exception("a step of the sweep has failed", step=name)
        return 0
