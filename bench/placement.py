"""`rota bench placement`: plays the openb experiment through the real engine, and looks at how full the cluster gets.

All tasks of the order of arrival wait as jobs of one team, in one line, and one decision plays them: it takes them in
that order, and a job that does not fit holds up nobody. As nothing ever leaves, that is what arriving one by one and
being dropped comes to. Where the placement looks at the workload, the mix is that of the tasks that arrive.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.fgd import FragmentationDescent
from bench.gates import Bar, Gate, Target
from bench.openb import NODES, PUBLISHED_BEST_FIT, PUBLISHED_FGD, Openb, Task, allocated, lists, read
from bench.report import Report, Unavailable
from bench.stopwatch import Timed, timed
from quotas.limits import QuotaTree, Team
from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob, Shape
from scheduler.engine.plan import Plan
from scheduler.engine.policy import Elastic, Placement, Policy, Preemption, Queueing, Reclaim
from scheduler.engine.roster import Roster

ROOT = Path(__file__).resolve().parent.parent

RATIO = 1.3
"""The published figures are of so much asked for, as a share of the cluster."""

PUBLISHED: Mapping[Placement, Mapping[str, float]] = MappingProxyType(
    {Placement.FRAGMENTATION: PUBLISHED_FGD, Placement.BINPACK: PUBLISHED_BEST_FIT}
)
"""What each placement is held to."""

MOST_BELOW, MOST_BELOW_FEW, MANY = 0.3, 0.8, 10
"""Points that the mean of MANY seeds, or of fewer, may lie below what is published: one seed moves it by 0.2."""

LEAST_RATIO, RATIO_AIM = 3.0, 5.0
"""Decisions per second, in times of the reference's."""

SEED, TEAM = 42, "openb"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One list under one placement; ``shuffled`` deals the names of the nodes, and so the order of equals, anew."""

    data: Path | None = None
    tasks: str = "default"
    placement: Placement = Placement.FRAGMENTATION
    seeds: tuple[int, ...] = (SEED,)
    ratio: float = RATIO
    shuffled: bool = False
    repeats: int = 2
    reference: bool = True

    @property
    def folder(self) -> Path:
        """Where the lists are; the folder above them will do."""
        if self.data is None:
            return Path(os.environ.get("ROTA_SHARED", ROOT.parent / "shared")) / "data" / "openb"
        return self.data if (self.data / NODES).exists() else self.data / "openb"

    @property
    def name(self) -> str:
        """What is told apart from other experiments."""
        return f"{self.tasks}, {self.placement}{', nodes shuffled' if self.shuffled else ''}"


class Played(NamedTuple):
    """Which tasks have found a place, and how long the deciding took."""

    placed: NDArray[np.bool_]
    time: Timed[Plan]


def measure(experiment: Experiment) -> Report:
    """Play an experiment. Raises Unavailable without the data."""
    figures = _figures(experiment)
    return Report("placement", figures, tuple(_bars(experiment, figures)))


def measure_lists(seeds: int, tasks: Sequence[str] | None = None) -> Report:
    """Play the published lists that are there, or those named, under what is held to a published figure."""
    folder = Experiment().folder
    if not (folder / NODES).exists():
        raise Unavailable(f"there is no {folder / NODES}: name in ROTA_SHARED the folder that holds data/openb")
    found = [name for name in tasks or lists(folder) if name in PUBLISHED_FGD]
    plain = Experiment(seeds=tuple(range(SEED, SEED + seeds)), repeats=0)
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    for name in found:
        descent = replace(plain, tasks=name, repeats=2 if seeds == 1 else 0)
        packing = replace(plain, tasks=name, placement=Placement.BINPACK, reference=False)
        for each in (descent, replace(descent, shuffled=True, reference=False), packing):
            figures[each.name] = _figures(each)
            bars += _bars(each, figures[each.name])
    return Report("placement", figures, tuple(bars))


def play(cluster: Openb, arrivals: Sequence[Task], placement: Placement, repeats: int = 0) -> Played:
    """Let the engine decide on the tasks in their order; ``repeats`` decisions more, to time them."""
    roster = Roster(QuotaTree((Team(TEAM),)), _policy(placement), cluster.nodes)
    shapes = {task: Shape((task.group(),)) for task in dict.fromkeys(arrivals)}
    for number, task in enumerate(arrivals):
        roster.submit(PendingJob(str(number), TEAM, shapes[task], submitted=float(number), sequence=number))
    snapshot = roster.snapshot(0.0)
    time = timed(partial(decide, snapshot, roster.policy, 0.0), repeats)
    placed = np.zeros(len(arrivals), np.bool_)
    placed[[int(start.job) for start in time.result.starts]] = True
    return Played(placed, time)


def _policy(placement: Placement) -> Policy:
    """One line in which nobody waits for another, and nobody takes from another."""
    return Policy(
        queueing=Queueing.FIFO, backfill=True, reserve_for=0, placement=placement,
        preemption=Preemption(enabled=False), reclaim=Reclaim(enabled=False), elastic=Elastic(enabled=False),
    )  # fmt: skip


def _figures(experiment: Experiment) -> dict[str, Any]:
    cluster = read(experiment.folder, experiment.tasks)
    points = (1.0, experiment.ratio)
    at, speeds, cpu_speeds, drawn = [], [], [], 0
    for seed in experiment.seeds:
        arrivals = cluster.arrivals(seed, experiment.ratio)
        drawn += len(arrivals)
        board = cluster.renamed(seed) if experiment.shuffled else cluster
        played = play(board, arrivals, experiment.placement, experiment.repeats)
        at.append(allocated(arrivals, played.placed, cluster.capacity, points))
        speeds.append(len(arrivals) / played.time.seconds)
        cpu_speeds.append(len(arrivals) / played.time.cpu_seconds)
    names = [_at(point) for point in points]
    figures: dict[str, Any] = {
        **{name: mean(column) for name, column in zip(names, zip(*at, strict=True), strict=True)},
        "decisions_per_second": median(speeds),
        "cpu": {"decisions_per_second": median(cpu_speeds)},
        "decisions": drawn,
        "by_seed": {
            str(seed): dict(zip(names, row, strict=True)) for seed, row in zip(experiment.seeds, at, strict=True)
        },
    }
    if experiment.reference:
        figures["reference"] = _reference(cluster, cluster.arrivals(experiment.seeds[-1], experiment.ratio), points)
        beside = figures["reference"]["cpu"]["decisions_per_second"]
        figures["ratio_to_reference"] = figures["cpu"]["decisions_per_second"] / beside
    figures["size"] = {
        "tasks": experiment.tasks, "policy": str(experiment.placement), "ratio": experiment.ratio,
        "nodes": len(cluster.nodes), "cards": sum(node.gpus for node in cluster.nodes),
        "shuffled": experiment.shuffled,
    }  # fmt: skip
    return figures


def _at(point: float) -> str:
    return f"allocated_at_{round(100 * point)}"


def _reference(cluster: Openb, arrivals: Sequence[Task], points: Sequence[float]) -> dict[str, Any]:
    """The plain replay of fragmentation gradient descent on the same tasks, whatever the placement."""
    time = timed(lambda: FragmentationDescent(cluster.nodes, cluster.tasks).place_all(arrivals), 0)
    reached = allocated(arrivals, time.result, cluster.capacity, points)
    return {
        **{_at(point): value for point, value in zip(points, reached, strict=True)},
        "decisions_per_second": len(arrivals) / time.seconds,
        "cpu": {"decisions_per_second": len(arrivals) / time.cpu_seconds},
    }


def _bars(experiment: Experiment, figures: Mapping[str, Any]) -> Iterable[Bar]:
    published = PUBLISHED.get(experiment.placement, {}).get(experiment.tasks)
    if published is not None and experiment.ratio == RATIO:
        below = MOST_BELOW if len(experiment.seeds) >= MANY else MOST_BELOW_FEW
        yield Gate(f"{experiment.name}: allocated", figures[_at(RATIO)], "at_least", round(published - below, 2), "%")
    if experiment.reference and experiment.placement is Placement.FRAGMENTATION:
        ratio = figures["ratio_to_reference"]
        yield Gate(f"{experiment.name}: speed beside the reference's", ratio, "at_least", LEAST_RATIO)
        yield Target(f"{experiment.name}: speed beside the reference's", ratio, "at_least", RATIO_AIM)
