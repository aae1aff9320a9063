"""All that is known of why one job waits: worked out on demand, from a look at the rows that is kept for a moment.

Belongs here: the look (a roster made of rows, and a forecast for all who wait in it) and the answer as plain values.
The questions themselves are put by `scheduler.engine.report`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from jobs.models import WAITING_STATES, Attempt, Job
from jobs.states import AttemptEnd
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold
from scheduler.engine.report.ahead import Ahead, ahead
from scheduler.engine.report.forecast import Estimate, Forecast, forecast
from scheduler.engine.report.funnel import Funnel, funnels
from scheduler.engine.report.remedies import Remedy, find, remedies
from scheduler.engine.report.runtimes import History, RuntimeModel
from scheduler.engine.snapshot import Snapshot
from scheduler.inventory.models import Cluster
from scheduler.load import look_at

KEPT_SECONDS = 5.0
"""How long a look may be used: as old as an answer may be."""
HISTORY_DAYS = 30
HISTORY_RUNS = 5_000
"""How far back run times are looked at, and how many of the last ones."""
LEAST_RUNS = 8
"""A team with fewer runs has no history yet."""


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster as its rows were at ``at`` (unix seconds), with the cluster's ``version`` then."""

    version: int
    at: float
    policy: Policy
    snapshot: Snapshot
    forecast: Forecast


_LOOKS: dict[int, Look] = {}
_LOCK = Lock()


def explain_job(job: Job, now: datetime) -> dict[str, Any] | None:
    """The funnel, who is ahead, the expected start and what would start it now, in plain values for JSON.

    None where the job does not wait. Times are ISO 8601 in UTC. A dozen
    queries, and for a full cluster some seconds, once in five seconds for all jobs of it.
    """
    if job.state not in WAITING_STATES:
        return None
    look = look_of(job.cluster_id, now)
    if job.key not in look.forecast.estimates:  # it came after that
        look = look_of(job.cluster_id, now, anew=True)
        if job.key not in look.forecast.estimates:
            return None
    lane, _ = find(look.snapshot, job.key)
    estimate = look.forecast.estimates[job.key]
    before = ahead(look.snapshot, look.policy, look.at, job.key)
    return {
        "as_of": _moment(look.at),
        "funnel": [_funnel(each) for each in funnels(look.snapshot, lane)],
        "ahead": None if before is None else _ahead(before),
        "estimate": _estimate(estimate),
        "remedies": [_remedy(each) for each in remedies(look.snapshot, look.policy, look.at, job.key)],
    }


def look_of(cluster_id: int, now: datetime, *, anew: bool = False) -> Look:
    """The look at a cluster that this process has, or a new one: never of another version, never too old."""
    version = Cluster.objects.values_list("version", flat=True).get(pk=cluster_id)
    with _LOCK:
        kept = _LOOKS.get(cluster_id)
        if not anew and kept is not None and kept.version == version and 0 <= now.timestamp() - kept.at < KEPT_SECONDS:
            return kept
        live = look_at(cluster_id, now)
        policy, at = live.roster.policy, now.timestamp()
        snapshot = live.roster.snapshot(at)
        look = Look(version, at, policy, snapshot, forecast(snapshot, policy, at, runtimes_of(cluster_id, now)))
        _LOOKS[cluster_id] = look
        return look


def runtimes_of(cluster_id: int, now: datetime) -> RuntimeModel:
    """How long the jobs of each team have run lately. Only runs that came to their own end, or to their limit."""
    own_ends = (AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.TIME_LIMIT)
    rows = Attempt.objects.filter(
        job__cluster_id=cluster_id,
        end__in=own_ends,
        running_at__isnull=False,
        ended_at__gt=now - timedelta(days=HISTORY_DAYS),
    ).order_by("-ended_at")
    runs: dict[str, list[tuple[float, float | None]]] = defaultdict(list)
    columns = ("job__team__slug", "running_at", "ended_at", "job__time_limit_s")
    for team, begun, ended, limit in rows.values_list(*columns)[:HISTORY_RUNS]:
        runs[team].append(((ended - begun).total_seconds(), limit))
    return RuntimeModel(teams={team: History.of(each) for team, each in runs.items() if len(each) >= LEAST_RUNS})


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def _hold(why: Hold | None) -> dict[str, Any] | None:
    return None if why is None else {"code": why.reason.value, "message": why.message, "facts": dict(why.facts)}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"low": _moment(estimate.low), "high": _moment(estimate.high), "why": _hold(estimate.why)}


def _funnel(funnel: Funnel) -> dict[str, Any]:
    return {
        "group": funnel.group, "replicas": funnel.replicas, "gpus": funnel.gpus, "fit": funnel.fit,
        "steps": [step._asdict() | {"gate": step.gate.value, "named": list(step.named)} for step in funnel.steps],
    }  # fmt: skip


def _ahead(before: Ahead) -> dict[str, Any]:
    binding = before.binding
    return {
        "jobs": before.jobs,
        "gpus": before.gpus,
        "first": [each._asdict() | {"submitted": _moment(each.submitted)} for each in before.first],
        "quota": None
        if binding is None
        else binding._asdict()
        | {"holders": [each._asdict() | {"since": _moment(each.since)} for each in binding.holders]},
        "kept": [each._asdict() | {"at": _moment(each.at)} for each in before.kept],
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "kind": remedy.kind.value, "message": remedy.message, "template": remedy.template,
        "facts": dict(remedy.facts), "takes": list(remedy.takes),
    }  # fmt: skip
