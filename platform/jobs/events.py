"""Writing down what happens to jobs: one event for each transition, and a note to the loop that the row has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from jobs.models import Change, Dependency, Job, JobEvent, Subject
from jobs.states import Actor, Event

WHY_LENGTH = 1000


def short(why: str) -> str:
    """A sentence as long as the tables hold."""
    return why if len(why) <= WHY_LENGTH else why[: WHY_LENGTH - 1] + "…"


def event_of(  # noqa: PLR0913  one for each column
    job: Job, kind: Event, actor: Actor, *, origin: str, at: datetime, why: str = "",
    user_id: int | None = None, data: Mapping[str, Any] | None = None,
) -> JobEvent:  # fmt: skip
    """An event, not yet saved, of a job that is in its new state already."""
    return JobEvent(
        job=job, at=at, kind=kind.value, actor=actor.value, user_id=user_id, origin=origin, to=job.state,
        reason=short(why), data=dict(data or {}),
    )  # fmt: skip


def note_jobs(cluster_id: int, job_ids: Iterable[int]) -> None:
    """Tell the loop of a cluster to look at these jobs again, and at those that wait for them."""
    touched = set(job_ids)
    if touched:
        _note({(cluster_id, job) for job in touched} | _dependents(touched))


def note_dependents(job_ids: Iterable[int]) -> None:
    """Tell the loops to look at the jobs again that wait for these."""
    touched = set(job_ids)
    if touched:
        _note(_dependents(touched))


def _dependents(touched: set[int]) -> set[tuple[int, int]]:
    return set(Dependency.objects.filter(on__in=touched).values_list("job__cluster_id", "job_id"))


def _note(notes: set[tuple[int, int]]) -> None:
    Change.objects.bulk_create(
        Change(cluster_id=cluster, subject=Subject.JOB, ref=job) for cluster, job in sorted(notes)
    )
