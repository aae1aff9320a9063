"""When a running job may be taken from: the moment from which nothing shields it any more."""

import math

from scheduler.engine.policy import Policy
from scheduler.engine.snapshot import RunningJob

NEVER = math.inf


def open_to_reclaim(running: RunningJob, policy: Policy) -> float:
    """When a loan may be taken back (seconds): after its minimum run time, whatever else protects the job."""
    return running.started + _minimum(running, policy.reclaim.min_runtime)


def open_to_preemption(running: RunningJob, policy: Policy, now: float) -> float:
    """When a higher priority may take a job (seconds); NEVER where a protection does not lapse."""
    rules, job = policy.preemption, running.job
    if not job.preemptible or job.taken >= rules.max_per_job:
        return NEVER
    since = running.started + _minimum(running, rules.min_runtime)
    if job.returning:
        since = max(since, running.started + rules.cooldown)
    protected_from = running.started + rules.protect_after
    return NEVER if max(since, now) >= protected_from else since


def _minimum(running: RunningJob, by_policy: float) -> float:
    own = running.job.min_runtime
    return by_policy if own is None else own


def lost_work(running: RunningJob, now: float) -> float:
    """GPU-seconds a whole job would lose if it ended at ``now``: those since its last checkpoint."""
    last = running.started
    every = running.job.checkpoint_every
    if every:
        last += every * math.floor(max(0.0, now - last) / every + 1e-9)
    if running.checkpointed is not None:
        last = max(last, running.checkpointed)
    return max(0.0, now - last) * sum(len(piece.gpus) for piece in running.pieces)
