"""`rota bench wait`: plays a month of a public trace on the virtual clock and looks at how long people wait.

The very engine and driver of `rota simulate` play it; a strict FIFO replay of a few lines waits beside it.
"""

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from bench.gates import Bar, Gate, Target
from bench.reference import read_trace, strict_fifo
from bench.report import Report, Unavailable
from jobs.states import JobState
from scheduler.drive.convert import PRESETS, Columns, convert_rows, rows_of
from scheduler.drive.convert import Target as Cluster
from scheduler.drive.result import Result
from scheduler.drive.scenario import Scenario, parse_scenario
from scheduler.drive.simulate import Progress, simulate

ROOT = Path(__file__).resolve().parent.parent
PHILLY = "timeseries/philly_pollux.csv"
PHILLY_FROM, PHILLY_TO = "2017-10-02", "2017-10-29"

DISCIPLINES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fifo": {"queueing": "fifo", "backfill": False},
        "greedy": {"queueing": "fifo", "backfill": True, "reserve_for": 0},
        "fair": {"queueing": "fair", "backfill": True},
        "capacity": {"queueing": "capacity", "backfill": True},
    }
)
"""The parts of the policy that make each discipline."""

REPLAYED = "fifo"
"""The discipline that the reference plays too."""

BIG = 8
"""From so many cards on a job is big: it takes a whole node at least."""

SECONDS = 60.0
"""The budget for all of it, on a machine with two cores."""

MOST_OFF = 0.05
"""How far, as a share, the mean wait may lie off the reference's."""

EVENTS_PER_JOB, MOST_CYCLES_PER_EVENT = 2, 1.0
"""A job arrives and ends; nothing else may cause a decision."""

MOST_TO_REFERENCE = 150.0
"""How many times the processor time of the reference it may take, which keeps no books, reasons, teams or limits."""

TIES = 5
"""How often the reference plays with ties left to chance, to show how far luck alone moves its mean."""

MINUTE, MOMENT = 60.0, 1e-3


@dataclass(frozen=True, slots=True)
class Experiment:
    """A cut of a trace and the cluster it is played on. ``first`` and ``last`` as the trace writes its times.

    A ``last`` that is a day is inclusive. ``rules`` are more keys of the policy; placing is best fit, as the
    reference's.
    """

    trace: Path | None = None
    columns: Columns = PRESETS["philly"]
    first: str | None = PHILLY_FROM
    last: str | None = PHILLY_TO
    nodes: int = 80
    gpus: int = 8
    disciplines: tuple[str, ...] = ("fifo",)
    rules: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({"placement": "binpack"}))

    @property
    def path(self) -> Path:
        """The trace, or where the public one lies unless said."""
        if self.trace is not None:
            return self.trace
        return Path(os.environ.get("ROTA_SHARED", ROOT.parent / "shared")) / "data" / PHILLY


FULL = Experiment()
QUICK = Experiment(last="2017-10-05", nodes=48)


class Played(NamedTuple):
    """Of each job that came to its end: seconds of submission, start and end, and its cards; in order of submission."""

    submitted: NDArray[np.float64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    gpus: NDArray[np.int64]

    def figures(self, capacity: int) -> dict[str, Any]:
        """Wait and turnaround in minutes, and the use of ``capacity`` cards from the first to the last submission."""
        if not len(self.gpus):
            return {}
        waits, big = self.starts - self.submitted, self.gpus >= BIG
        opens, closes = self.submitted[0], self.submitted[-1]
        held = np.clip(self.ends, opens, closes) - np.clip(self.starts, opens, closes)
        return {
            "wait_minutes": _spread(waits),
            "turnaround_minutes": _spread(self.ends - self.submitted),
            "wait_minutes_big": float(waits[big].mean()) / MINUTE if big.any() else 0.0,
            "use_ratio": float(held @ self.gpus) / (capacity * (closes - opens)) if closes > opens else 0.0,
        }


def measure(experiment: Experiment, progress: Callable[[str], Progress | None] = lambda _: None) -> Report:
    """Play each discipline and the reference. Raises Unavailable without the trace, SpecError where it is unusable.

    ``progress`` is asked for one observer per discipline.
    """
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    for discipline in experiment.disciplines:
        begin = time.perf_counter()
        scenario = load(experiment, discipline)
        loaded = time.perf_counter() - begin
        worked = time.process_time()
        result = _play(scenario, progress(discipline))
        worked = time.process_time() - worked
        played = _played(result)
        figures[discipline] = {
            **played.figures(experiment.nodes * experiment.gpus),
            "jobs": len(result.jobs),
            "succeeded": sum(job.state is JobState.SUCCEEDED for job in result.jobs.values()),
            "cycles": result.cycles,
            "load_seconds": loaded,
            "wall_seconds": result.wall_seconds,
            "cpu_seconds": worked,
        }
        bars += bars_of(discipline, figures[discipline])
        if discipline == REPLAYED:
            figures["reference"] = _reference(experiment, played)
            bars += _bars_beside(figures[discipline], figures["reference"])
    figures["size"] = {
        "trace": experiment.path.name, "from": experiment.first, "to": experiment.last, "nodes": experiment.nodes,
        "gpus": experiment.gpus,
    }  # fmt: skip
    return Report("wait", figures, tuple(bars))


def load(experiment: Experiment, discipline: str) -> Scenario:
    """The cut as a scenario with the policy of a discipline."""
    cluster = Cluster(
        nodes=experiment.nodes,
        gpus=experiment.gpus,
        since=experiment.first,
        until=until(experiment.last),
        policy={**experiment.rules, **DISCIPLINES[discipline]},
    )
    with opened(experiment.path) as file:
        scenario = convert_rows(rows_of(file), experiment.columns, cluster).scenario
    return parse_scenario(scenario)


def _play(scenario: Scenario, progress: Progress | None) -> Result:
    """Play it as `rota simulate` does: without the collector, as all values live to the end."""
    gc.collect()
    gc.disable()
    try:
        return simulate(scenario, progress=progress)
    finally:
        gc.enable()


def opened(trace: Path) -> TextIO:
    """The trace, open for reading. Raises Unavailable."""
    try:
        return trace.open(encoding="utf-8-sig", newline="")
    except FileNotFoundError:
        raise Unavailable(
            f"there is no trace {trace}: name one with --trace, or in ROTA_SHARED the folder that holds data/"
        ) from None
    except OSError as error:
        raise Unavailable(f"{trace}: {error.strerror}") from None


def until(last: str | None) -> str | None:
    """The first moment that no longer belongs to a cut: the day after ``last`` where that is a day."""
    if last is None or "-" not in last:
        return last
    try:
        return (date.fromisoformat(last) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return last


def _played(result: Result) -> Played:
    jobs = [job for job in result.jobs.values() if job.started is not None and job.ended is not None]
    return Played(
        np.array([job.submitted for job in jobs], np.float64),
        np.array([job.started for job in jobs], np.float64),
        np.array([job.ended for job in jobs], np.float64),
        np.array([sum(group.total_gpus for group in job.spec.groups) for job in jobs], np.int64),
    )


def _reference(experiment: Experiment, played: Played) -> dict[str, Any]:
    """What the strict FIFO replay makes of the same cut, and how many jobs start at the same moment in both."""
    columns = experiment.columns
    with opened(experiment.path) as file:
        jobs = read_trace(
            file, columns.submit, columns.duration or "", columns.gpus, experiment.first, until(experiment.last)
        )
    submitted = np.array([job.submitted for job in jobs], np.float64)
    durations = np.array([job.duration for job in jobs], np.float64)
    gpus = np.array([job.gpus for job in jobs], np.int64)
    seconds, means = [], []
    for seed in (None, *range(TIES)):
        ties = None if seed is None else np.random.default_rng(seed)
        begin = time.process_time()
        starts = strict_fifo(jobs, experiment.nodes, experiment.gpus, ties)
        seconds.append(time.process_time() - begin)
        means.append(float((starts - submitted).mean()) / MINUTE)
        if seed is None:
            beside = Played(submitted, starts, starts + durations, gpus)
    same = len(starts) == len(played.starts) and np.abs(beside.starts - beside.submitted[0] - played.starts) < MOMENT
    return {
        **beside.figures(experiment.nodes * experiment.gpus),
        "jobs": len(jobs),
        "same_start": int(np.sum(same)),
        "wait_minutes_by_luck": sorted(means[1:]),
        "cpu_seconds": median(seconds),
    }


def _spread(seconds: NDArray[np.float64]) -> dict[str, float]:
    p50, p95 = np.percentile(seconds, (50, 95))
    return {"mean": float(seconds.mean()) / MINUTE, "p50": float(p50) / MINUTE, "p95": float(p95) / MINUTE}


def bars_of(discipline: str, figures: Mapping[str, Any]) -> list[Bar]:
    """What every discipline is held to."""
    cycles = figures["cycles"] / (EVENTS_PER_JOB * figures["jobs"])
    return [
        Gate(f"{discipline}: jobs that did not succeed", figures["jobs"] - figures["succeeded"], "at_most", 0),
        Gate(f"{discipline}: decisions per arrival or end", cycles, "at_most", MOST_CYCLES_PER_EVENT),
        Target(
            f"{discipline}: to read and play it",
            figures["load_seconds"] + figures["wall_seconds"],
            "at_most",
            SECONDS,
            "s",
        ),
    ]


def _bars_beside(figures: Mapping[str, Any], reference: Mapping[str, Any]) -> list[Bar]:
    mean, expected = figures["wait_minutes"]["mean"], reference["wait_minutes"]["mean"]
    times = figures["cpu_seconds"] / reference["cpu_seconds"]
    off = abs(mean - expected) / expected if expected else mean
    return [
        Gate(f"{REPLAYED}: jobs of the trace that were left out", reference["jobs"] - figures["jobs"], "at_most", 0),
        Gate(f"{REPLAYED}: mean wait off the reference's", off, "at_most", MOST_OFF),
        Gate(f"{REPLAYED}: processor time beside the reference's", times, "at_most", MOST_TO_REFERENCE),
    ]
