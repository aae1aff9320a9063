"""One decision: who starts now, who gives way, and why each of the others waits.

    plan = decide(snapshot, policy, now)

Pure: the same arguments give the same plan, in any process. The steps are those of :func:`decide`.
"""

import math
from types import MappingProxyType

from scheduler.engine.gates import gate, opens_at
from scheduler.engine.plan import Plan
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.engine.snapshot import Snapshot
from scheduler.engine.walk import Walk
from scheduler.engine.watermark import next_change


def decide(snapshot: Snapshot, policy: Policy, now: float) -> Plan:
    """What to do at ``now`` (seconds on the clock of the snapshot)."""
    if not snapshot.synced:
        return _not_synced(snapshot)
    # 1. and 2.
    walk = walk_through(snapshot, policy, now)
    gated = walk.gated
    starts, resizes = walk.resizing.settle(walk.starts, walk.resizes)
    # 3. Say of every lane why its jobs wait, as things stand after the starts.
    waiting = walk.explain()
    # 4. Say when to look again although nothing happens.
    return Plan(
        starts=tuple(starts),
        preempts=tuple(walk.preempts),
        resizes=tuple(resizes),
        claims=tuple(walk.claims.values()),
        gated=MappingProxyType({key: why for key, why in gated.items() if not walk.resizing.is_growth(key)}),
        waiting=MappingProxyType(waiting),
        wake_at=_wake_at(snapshot, now, walk, throttled=_any_throttled(waiting)),
    )


def walk_through(snapshot: Snapshot, policy: Policy, now: float) -> Walk:
    """The first two steps of a decision, for those who want to see more of it than the plan tells."""
    # 1. Set aside the jobs that are stopped by themselves.
    gated = {job.key: why for job in snapshot.gateable if (why := gate(job, snapshot, now)) is not None}
    # 2. Walk the others in order: start what fits, and let those take who have the right.
    walk = Walk(snapshot, policy, now, gated)
    walk.honour_claims()
    walk.start_what_fits()
    walk.grow_into_idle()
    return walk


def _not_synced(snapshot: Snapshot) -> Plan:
    syncing = hold(Reason.SYNCING, "the cluster has not been looked at completely yet")
    return Plan(waiting=MappingProxyType({lane.number: syncing for lane in snapshot.lanes}))


def _any_throttled(waiting: dict[int, Hold]) -> bool:
    return any(why.reason is Reason.BACKPRESSURE for why in waiting.values())


def _wake_at(snapshot: Snapshot, now: float, walk: Walk, *, throttled: bool) -> float | None:
    times = [opens_at(job, now) for job in snapshot.gateable]
    window = snapshot.limits.until(snapshot.epoch + now)
    times.append(None if window is None else window - snapshot.epoch)
    times.append(walk.throttle.next_change() if throttled else None)
    if walk.policy.watermark.enabled:
        times.append(next_change(snapshot, walk.policy.watermark, now))
    times.append(walk.resizing.next_change())
    times.append(now if walk.may_grow else None)
    times.append(walk.opens if walk.opens < math.inf else None)
    return min((at for at in times if at is not None), default=None)
