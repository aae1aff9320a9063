"""The process behind `rota bench live`: makes rows for the mixed load, runs real cycles on them, prints what they took.

    python -m bench.live_process '{"nodes": 1250, ...}'      # one JSON object in the last line

First an empty cluster with the whole queue waiting is filled, from a process that has to read all rows (`burst`).
Then, with the queue at a tenth of its depth (`shallow`) and at all of it (`deep`), each cycle some jobs end and as many
arrive as have started: what a cycle costs, how many statements it takes, and what a start costs at either depth. Then
five times as many end (`busy`): how many starts a second go through, placed and committed by the loop, launched and
noted by the dispatcher behind it.
"""

# ruff: noqa: E402  Django has to be set up before its models are imported
from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from time import perf_counter, process_time
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rota.settings")
os.environ.setdefault("ROTA_LOG_LEVEL", "error")
django.setup()

from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from bench import workload
from jobs import wake as waking
from jobs.events import note_jobs
from jobs.models import WAITING_STATES, Attempt, Job, JobEvent
from jobs.selectors import lane_key
from jobs.spec import parse_job
from quotas.models import TeamQuota
from scheduler.backends.base import AttemptReport, CardReport, Cause, NodeReport, Observation, Phase
from scheduler.backends.simulated import SimulatedBackend
from scheduler.engine.demand import MIB_PER_GIB, PendingJob
from scheduler.inventory.services import create_cluster
from scheduler.loop import Loop, Turn
from scheduler.observing import take_in
from scheduler.rounds import dispatch
from scheduler.timings import Timings
from teams.models import Team, User

BUSY = 5
"""So many times the usual ends a cycle show how many starts a second go through when the loop has all it can do."""


@dataclass
class Measured:
    """What some cycles took: seconds of each, of their dispatches, statements of each, starts of all together."""

    cycles: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)
    dispatches: list[float] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {
            "cycle_seconds_p95": percentile(self.cycles, 0.95),
            "cycle_seconds_median": median(self.cycles),
            "cycle_cpu_seconds_median": median(self.cpu),
            "steps_median": {step: median(each) for step, each in self.steps.items()},
            "dispatch_seconds_median": median(self.dispatches),
            "starts_per_cycle": median(self.starts),
            # The loop and the dispatcher are two processes, one behind the other: the slower one is what counts.
            "starts_per_second": sum(self.starts) / max(sum(self.cycles), sum(self.dispatches)),
            "launches_per_second": sum(self.starts) / sum(self.dispatches),
            "queries_per_cycle": max(self.queries),
            "cost_per_start": median(self.cycles) / max(1.0, sum(self.starts) / len(self.starts)),
        }


class Bench:
    """The rows, the loop and the backend."""

    def __init__(self, size: dict[str, int]) -> None:
        self.size = size
        self.dice = random.Random(7)
        self.user = User.objects.create_superuser("bench")
        self.teams = self._make_teams()
        self.cluster = create_cluster(slug="bench", name="Bench", backend="simulated", open_to_all=True)
        nodes = [report(node) for node in workload.cluster(size["nodes"], size["gpus"])]
        now = timezone.now()
        take_in(self.cluster.pk, Observation(True, 1, tuple(nodes)), begun=now, now=now, chance=self.dice.random)
        self._make_quotas()
        self.backend = SimulatedBackend(now=lambda: timezone.now().timestamp(), nodes=nodes)
        self.loop = Loop(timings=Timings())
        self.specs: dict[Any, tuple[dict[str, Any], str]] = {}
        self.made = 0

    def submit(self, count: int) -> None:
        """Let jobs of the mixed load wait, as a submission would leave them, all in a few statements."""
        if not count:
            return
        jobs = workload.jobs(count, min(count, self.size["shapes"]), self.size["gpus"], seed=1, first=self.made)
        self.made += count
        now = timezone.now()
        with transaction.atomic():
            rows = Job.objects.bulk_create([self._row(job, now) for job in jobs], batch_size=2_000)
            JobEvent.objects.bulk_create(
                [JobEvent(job=row, at=now, kind="submit", actor="user", to="queued") for row in rows], batch_size=2_000
            )
            note_jobs(self.cluster.pk, [row.pk for row in rows])

    def end_some(self, count: int) -> None:
        """Let the backend say that some attempts have ended well."""
        running = list(Attempt.objects.filter(ended_at=None).values_list("key", flat=True))
        keys = self.dice.sample(running, min(count, len(running)))
        reports = tuple(
            AttemptReport(key, Phase.EXITED, 2.0, started=1.0, exit_code=0, cause=Cause.SELF) for key in keys
        )
        now = timezone.now()
        take_in(self.cluster.pk, Observation(False, 2, (), reports), begun=now, now=now, chance=self.dice.random)

    def cycle(self, into: Measured) -> Turn | None:
        """One tick and the dispatch that it leads to."""
        queries: list[str] = []
        with counted(queries):
            began, cpu = perf_counter(), process_time()
            turn = self.loop.tick(self.cluster.pk)
            took = perf_counter() - began
            into.cpu.append(process_time() - cpu)
        began = perf_counter()
        dispatch(self.cluster, self.backend, clock=timezone.now, chance=self.dice.random)
        into.dispatches.append(perf_counter() - began)
        into.cycles.append(took)
        into.queries.append(len(queries))
        into.starts.append(0 if turn is None else len(turn.applied.started))
        for step, seconds in ({} if turn is None else turn.seconds).items():
            into.steps.setdefault(step, []).append(seconds)
        return turn

    def fill(self) -> Measured:
        """Start what fits on the empty cluster, from a process that has just taken it over."""
        burst = Measured()
        for _ in range(20):
            turn = self.cycle(burst)
            if turn is None or not turn.applied.started:
                break
        return burst

    def churn(self, depth: int, ends: int, cycles: int) -> Measured:
        """Cycles in which so many jobs end, and as many arrive as have started, at this depth of the queue."""
        self._bring_queue_to(depth)
        warm = Measured()
        for _ in range(3):
            self._turn_over(warm, depth, ends)
        found = Measured()
        for _ in range(cycles):
            self._turn_over(found, depth, ends)
        return found

    def _turn_over(self, into: Measured, depth: int, ends: int) -> None:
        self.end_some(ends)
        waiting = Job.objects.filter(state__in=WAITING_STATES).count()
        self.submit(max(0, depth - waiting))
        self.cycle(into)

    def _bring_queue_to(self, depth: int) -> None:
        waiting = list(Job.objects.filter(state="queued").order_by("pk").values_list("pk", flat=True))
        surplus = waiting[depth:]
        now = timezone.now()
        with transaction.atomic():
            Job.objects.filter(pk__in=surplus).update(state="cancelled", finished_at=now)
            note_jobs(self.cluster.pk, surplus)
        self.submit(max(0, depth - len(waiting)))
        self.loop.tick(self.cluster.pk)

    def _row(self, job: PendingJob, now: Any) -> Job:
        known = self.specs.get((job.team, job.shape))
        if known is None:
            plain = spec_of(job)
            shape = parse_job({"name": "x", **plain}, team="-", user="-").shape()
            known = self.specs[job.team, job.shape] = (plain, lane_key(self.teams[job.team].pk, shape))
        plain, lane = known
        return Job(
            name=job.key, team=self.teams[job.team], user=self.user, cluster=self.cluster, lane=lane,
            spec={"name": job.key, **plain}, kind="training", gpus=job.shape.total_gpus, priority=job.priority,
            time_limit_s=job.time_limit, state="queued", submitted_at=now + timedelta(microseconds=self.made),
        )  # fmt: skip

    def _make_teams(self) -> dict[str, Team]:
        made: dict[str, Team] = {}
        for branch in workload.teams(self.size["nodes"] * self.size["gpus"]).teams:
            parent = made[branch.parent] if branch.parent else None
            made[branch.name] = Team.objects.create(
                slug=branch.name, name=branch.name, parent=parent, weight=branch.weight
            )
        return made

    def _make_quotas(self) -> None:
        for branch in workload.teams(self.size["nodes"] * self.size["gpus"]).teams:
            for quota in branch.quotas:
                TeamQuota.objects.create(
                    team=self.teams[branch.name], cluster=self.cluster, model=quota.model,
                    guaranteed=quota.guaranteed.value, limit=None if quota.limit is None else quota.limit.value,
                )  # fmt: skip


def spec_of(job: PendingJob) -> dict[str, Any]:
    """What a person would have written for a job of one group."""
    group = job.shape.groups[0]
    plain: dict[str, Any] = {
        "replicas": group.replicas, "gpus": group.gpus, "cpus": group.cpus_milli / 1000,
        "memory_gib": group.memory_mib / MIB_PER_GIB, "time_limit": job.time_limit, "command": ["true"],
    }  # fmt: skip
    if group.share:
        plain |= {"share": True, "vram_gib": group.vram_mib / MIB_PER_GIB}
    if group.models:
        plain["model"] = list(group.models)
    if group.selector:
        plain["node_selector"] = dict(group.selector)
    if group.tolerations:
        plain["tolerations"] = list(group.tolerations)
    return plain


def report(node: Any) -> NodeReport:
    """A node of the workload as a backend reports it."""
    cards = tuple(
        CardReport(f"GPU-{node.name}-{index}", index, node.vram_mib, virtual=True) for index in range(node.gpus)
    )
    return NodeReport(
        node.name, node.model, cards, node.cpus_milli // 1000, node.memory_mib, dict(node.labels), node.taints,
        node.rack, node.switch,
    )  # fmt: skip


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share of them does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def counted(into: list[str]) -> Iterator[None]:
    """Take down the statements that are sent inside."""

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        into.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield


def main(size: dict[str, int]) -> dict[str, Any]:
    """Everything; see the module."""
    call_command("migrate", interactive=False, verbosity=0)
    waking._send = lambda *_: None  # nobody else is there to be woken
    bench = Bench(size)
    bench.submit(size["pending"])
    burst = bench.fill()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    ends, cycles = size["ends"], size["cycles"]
    shallow = bench.churn(max(1, size["pending"] // 10), ends, cycles)
    deep = bench.churn(size["pending"], ends, cycles)
    busy = bench.churn(size["pending"], BUSY * ends, max(3, cycles // 4)).plain()
    low, full = shallow.plain(), deep.plain()
    return {
        "cycle_seconds_p95": full["cycle_seconds_p95"],
        "starts_per_second": busy["starts_per_second"],
        "queries_per_cycle": full["queries_per_cycle"],
        "cost_per_start_growth": full["cost_per_start"] / low["cost_per_start"],
        "burst": {**burst.plain(), "starts": sum(burst.starts), "cycles": burst.cycles},
        "shallow": low,
        "deep": full,
        "busy": busy,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
