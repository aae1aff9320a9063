"""How a drive went: figures at once, the whole answer of the scenario reference when somebody asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.states import AttemptEnd
from scheduler.drive.driver import Driver
from scheduler.drive.hardware import NodeRecord
from scheduler.drive.meters import Readings
from scheduler.drive.records import Alert, AttemptRecord, JobRecord
from scheduler.drive.waits import Wait, WaitBook
from scheduler.engine.demand import MIB_PER_GIB
from scheduler.engine.plan import Piece

DIGITS = 6
"""Decimals of seconds and ratios in the answer: a microsecond."""
_TAKEN = (AttemptEnd.PREEMPTED, AttemptEnd.RECLAIMED)


class Spread(NamedTuple):
    """A few figures about many durations, in seconds; all 0 where there are none."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The figures of some durations; percentiles are interpolated linearly between the two nearest ranks."""
        if not values:
            return cls()
        ranked = sorted(values)
        return cls(sum(ranked) / len(ranked), _percentile(ranked, 0.5), _percentile(ranked, 0.95), ranked[-1])


def _percentile(ranked: Sequence[float], share: float) -> float:
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)


@dataclass(frozen=True)
class Result:
    """The outcome of a drive. Times in seconds since its start; `jobs` in the order of the file."""

    end: float
    jobs: dict[str, JobRecord]
    nodes: dict[str, NodeRecord]
    readings: Readings
    alerts: list[Alert]
    cycles: int
    wall_seconds: float
    _waits: WaitBook

    def wait_seconds(self) -> Spread:
        """From submission to the first start, of the jobs that started."""
        return Spread.of([job.started - job.submitted for job in self.jobs.values() if job.started is not None])

    def turnaround_seconds(self) -> Spread:
        """From submission to the end, of the jobs that started and came to their end."""
        return Spread.of([job.ended - job.submitted for job in self._done()])

    def makespan_seconds(self) -> float:
        """From the first submission to the last end."""
        first = min((job.submitted for job in self._submitted()), default=0.0)
        return max((job.ended for job in self._submitted() if job.ended is not None), default=first) - first

    def preemptions(self) -> int:
        """Attempts whose cards were taken for another job."""
        return sum(attempt.end in _TAKEN for job in self.jobs.values() for attempt in job.attempts)

    def waits_of(self, job: str) -> list[Wait]:
        """When and why a job waited."""
        return self._waits.of(job)

    def metrics(self) -> dict[str, Any]:
        """The `metrics` of the answer."""
        wait, turnaround, readings = self.wait_seconds(), self.turnaround_seconds(), self.readings
        return {
            "allocated_ratio": _short(readings.allocated_ratio),
            "wait_seconds": {
                "mean": _short(wait.mean), "p50": _short(wait.p50), "p95": _short(wait.p95), "max": _short(wait.most)
            },
            "turnaround_seconds": {
                "mean": _short(turnaround.mean), "p50": _short(turnaround.p50), "p95": _short(turnaround.p95)
            },
            "makespan_seconds": _short(self.makespan_seconds()),
            "preemptions": self.preemptions(),
            "fragmentation_ratio": _short(readings.fragmentation_ratio),
            "vram_fragmentation_ratio": _short(readings.vram_fragmentation_ratio),
            "idle_nodes": _short(readings.idle_nodes),
            "cycles": self.cycles,
            "wall_seconds": round(self.wall_seconds, 3),
        }  # fmt: skip

    def answer(self) -> dict[str, Any]:
        """The whole answer, as the scenario reference describes it."""
        return {
            "end": _short(self.end),
            "jobs": {name: self._job(job) for name, job in self.jobs.items()},
            "nodes": {name: _node(node) for name, node in self.nodes.items() if node.present or node.history},
            "teams": {
                name: {
                    "gpu_hours": _short(use.gpu_hours),
                    "borrowed_gpu_hours": _short(use.borrowed_gpu_hours),
                }
                for name, use in self.readings.teams.items()
            },
            "metrics": self.metrics(),
            "alerts": [_alert(alert) for alert in self.alerts],
        }

    def _submitted(self) -> list[JobRecord]:
        return [job for job in self.jobs.values() if job.state is not None]

    def _done(self) -> list[Any]:
        return [job for job in self.jobs.values() if job.started is not None and job.ended is not None]

    def _job(self, job: JobRecord) -> dict[str, Any]:
        row: dict[str, Any] = {
            "state": job.state or "queued",
            "submitted": _short(job.submitted),
            "started": _short(job.started),
            "ended": _short(job.ended),
            "attempts": [_attempt(attempt) for attempt in job.attempts],
            "waits": [
                {"from": _short(wait.begin), "to": _short(wait.end), "reason": wait.reason, "message": wait.message}
                for wait in self.waits_of(job.name)
            ],
        }
        if job.message:
            row["message"] = job.message
        return row


def result_of(driver: Driver, *, until: float | None, wall_seconds: float) -> Result:
    """Close the books of a drive: at `until`, else when its last job came to its end."""
    ends = [job.submitted if job.ended is None else job.ended for job in driver.jobs.values() if job.state is not None]
    end = max(ends, default=0.0) if until is None else until
    return Result(
        end=end,
        jobs=driver.jobs,
        nodes=driver.hardware.nodes,
        readings=driver.meters.read(end),
        alerts=driver.alerts,
        cycles=driver.cycles,
        wall_seconds=wall_seconds,
        _waits=driver.waits,
    )


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, DIGITS)


def _attempt(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "started": _short(attempt.started),
        "ended": _short(attempt.ended),
        "end": attempt.end,
        "placement": [_piece(piece) for piece in attempt.pieces],
        "resizes": [
            {"at": _short(at), "placement": [_piece(piece) for piece in pieces]} for at, pieces in attempt.resizes
        ],
    }


def _piece(piece: Piece) -> dict[str, Any]:
    row: dict[str, Any] = {
        "group": piece.group,
        "replica": piece.replica,
        "node": piece.node,
        "gpus": list(piece.gpus),
    }
    if piece.mib:
        row["vram_gib"] = piece.mib / MIB_PER_GIB
    return row


def _node(node: NodeRecord) -> dict[str, Any]:
    return {
        "state": node.state,
        "gpus_out": [],
        "history": [
            {"at": _short(change.at), "state": change.state, "by": change.by, "why": change.why}
            for change in node.history
        ],
    }


def _alert(alert: Alert) -> dict[str, Any]:
    row: dict[str, Any] = {"at": _short(alert.at), "kind": alert.kind}
    for key in ("job", "node", "message"):
        if value := getattr(alert, key):
            row[key] = value
    return row
