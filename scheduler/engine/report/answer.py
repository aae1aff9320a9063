"""Would it start? The answer for a job that is not there yet, as if it were submitted now."""

from enum import StrEnum
from typing import NamedTuple

from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold
from scheduler.engine.report.forecast import SPEAKS_FOR_ITSELF, Effort, Estimate, forecast
from scheduler.engine.report.remedies import BUDGET, Remedy, remedies
from scheduler.engine.report.runtimes import RuntimeModel
from scheduler.engine.report.whatif import Change, what_if
from scheduler.engine.snapshot import Snapshot


class Verdict(StrEnum):
    """``now``; ``after`` an estimated time; ``never`` while things are as they are; ``unknown`` to anybody."""

    NOW = "now"
    AFTER = "after"
    NEVER = "never"
    UNKNOWN = "unknown"


class Answer(NamedTuple):
    """``hold`` is why it would wait, ``estimate`` until when, ``remedies`` what would start it now."""

    verdict: Verdict
    hold: Hold | None
    estimate: Estimate
    remedies: tuple[Remedy, ...]


def would_start(
    snapshot: Snapshot,
    policy: Policy,
    now: float,
    job: PendingJob,
    runtimes: RuntimeModel,
    *,
    effort: Effort | None = None,
    budget: int = BUDGET,
) -> Answer:
    """What would become of ``job`` if it were submitted now. Its team must be one of the tree (else KeyError)."""
    roster = what_if(snapshot, policy)
    Change(job).apply(roster)
    asked = roster.snapshot(now)
    plan = decide(asked, policy, now)
    if any(start.job == job.key for start in plan.starts):
        return Answer(Verdict.NOW, None, Estimate(now, now), ())
    hold = plan.hold_of(job, roster.lane_of(job.key))
    estimate = forecast(asked, policy, now, runtimes, effort=effort).estimates[job.key]
    if estimate.low is not None:
        verdict = Verdict.AFTER
    else:
        verdict = Verdict.NEVER if hold is not None and hold.reason in SPEAKS_FOR_ITSELF else Verdict.UNKNOWN
    return Answer(verdict, hold, estimate, remedies(asked, policy, now, job.key, budget=budget))
