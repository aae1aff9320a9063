"""The gates that stop a job by itself, whatever the cluster looks like: a person, a pause, a time, another job."""

from collections.abc import Callable

from scheduler.engine.demand import PendingJob
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.engine.snapshot import Snapshot


def gate(job: PendingJob, snapshot: Snapshot, now: float) -> Hold | None:
    """Why ``job`` is not even looked at now, None if it is."""
    return why_gated(job, now, lambda at: _clock(snapshot, at))


def why_gated(job: PendingJob, now: float, clock: Callable[[float], str]) -> Hold | None:
    """The same without a snapshot; ``clock`` writes a moment for people."""
    if job.held:
        return hold(Reason.HELD, "held: {why}", why=job.held)
    if job.backoff_until > now:
        return hold(Reason.BACKOFF, "its last attempt failed; it is tried again at {at}", at=clock(job.backoff_until))
    if job.not_before > now:
        return hold(Reason.NOT_BEFORE, "not to start before {at}", at=clock(job.not_before))
    if job.waits_for:
        return hold(Reason.NOT_BEFORE, "waits for other jobs: {jobs}", jobs=", ".join(job.waits_for))
    return None


def opens_at(job: PendingJob, now: float) -> float | None:
    """The next moment at which a gate of ``job`` opens by itself, None if none will."""
    times = [at for at in (job.backoff_until, job.not_before) if at > now]
    return min(times) if times and not job.held else None


def _clock(snapshot: Snapshot, at: float) -> str:
    return snapshot.limits.tree.moment(snapshot.epoch + at).strftime("%Y-%m-%d %H:%M:%S")
