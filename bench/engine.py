"""`rota bench engine`: how fast one decision is on the mixed load, beside a plain NumPy best fit in the same run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import workload
from bench.gates import Bar, Gate, Target
from bench.reference import BestFit
from bench.report import Report
from bench.stopwatch import Timed, timed, timed_in_turn
from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob
from scheduler.engine.plan import Plan
from scheduler.engine.policy import Placement, Policy
from scheduler.engine.roster import Roster

GATED = Placement.HYBRID
"""The placement that a cluster has unless somebody changes it; its figures are held to the gates."""

PLACEMENTS_PER_SECOND, DECIDE_SECONDS, DECIDE_SECONDS_DISTINCT = 50_000, 0.05, 0.25
"""The budgets of the design, for 1,250 nodes of 8 cards and 10,000 waiting jobs on 2 cores."""

LEAST_RATIO, LEAST_RATIO_SMALL, SMALL = 1.25, 0.3, 1_000
"""The gates on the ratio to the reference, and the number of nodes below which the second one holds.

The reference looks at every node for every replica, the engine does not: the fewer nodes, the better the reference.
"""

MOST_DECIDE, MOST_DECIDE_DISTINCT = 0.5, 3.0
"""A decision on the full cluster, in times of what the reference takes to fill the empty one (about 0.1 s)."""

MOST_GROWTH = 1.3
"""Time may grow by at most this power of the number of nodes."""

LEAST_ALIKE = 0.9
"""The reference has to place about the same replicas, or its speed says nothing."""


@dataclass(frozen=True, slots=True)
class Size:
    """What is measured: the cluster, how many jobs wait in how many shapes, and the sizes that show the growth."""

    nodes: int = 1_250
    gpus: int = 8
    pending: int = 10_000
    shapes: int = 200
    repeats: int = 11
    growth: tuple[int, ...] = (100, 300, 1_000, 3_000, 10_000)


FULL = Size()
QUICK = Size(nodes=100, pending=1_000, repeats=3, growth=(100, 1_000))


def measure(size: Size) -> Report:
    """Measure everything; see the module."""
    empty = _roster(size.nodes, size.gpus)
    _submit(empty, workload.jobs(size.pending, size.shapes, size.gpus))
    others = {each: timed(partial(_fill, empty, each), size.repeats) for each in Placement if each is not GATED}
    plan = _fill(empty, GATED)
    shapes = [job.shape for start in plan.starts if (job := empty.waiting(start.job)) is not None]
    fill, reference = timed_in_turn(
        partial(_fill, empty, GATED), lambda: BestFit(empty.inventory.nodes).place_all(shapes), size.repeats
    )
    full, distinct = _decide_on_full(size, size.shapes), _decide_on_full(size, size.pending)
    fills = {GATED: fill, **others}
    figures: dict[str, Any] = {
        **_headline(_replicas(plan), fill.seconds, full.seconds, distinct.seconds),
        "ratio_to_reference": _replicas(plan) / fill.cpu_seconds / (reference.result / reference.cpu_seconds),
        "cpu": _headline(_replicas(plan), fill.cpu_seconds, full.cpu_seconds, distinct.cpu_seconds),
        "first": _headline(_replicas(plan), fill.first.wall, full.first.wall, distinct.first.wall),
        "fill": {str(each): _rate(_replicas(run.result), run.seconds) for each, run in fills.items()},
        "reference": _rate(reference.result, reference.seconds),
        "waiting": {"decide": _waiting(full.result), "decide_distinct": _waiting(distinct.result)},
        "growth": _growth(size),
        "size": asdict(size),
    }
    starts_when_full = len(full.result.starts) + len(distinct.result.starts)
    return Report("engine", figures, _bars(figures, size, starts_when_full, reference.cpu_seconds))


def _bars(figures: dict[str, Any], size: Size, starts_when_full: int, yardstick: float) -> tuple[Bar, ...]:
    """``yardstick``: the seconds in which the reference fills the empty cluster, by the processor's clock."""
    growth, placed = figures["growth"]["exponent"], figures["fill"][GATED]["placements"]
    least_ratio = LEAST_RATIO if size.nodes >= SMALL else LEAST_RATIO_SMALL
    bars: list[Bar] = [
        Gate("ratio to the reference", figures["ratio_to_reference"], "at_least", least_ratio),
        Gate("share the reference places too", figures["reference"]["placements"] / placed, "at_least", LEAST_ALIKE),
        Gate("starts on the full cluster", starts_when_full, "at_most", 0),
    ]
    if len(size.growth) > 1:
        bars += [Gate(f"growth with nodes, {what}", power, "at_most", MOST_GROWTH) for what, power in growth.items()]
    if (size.nodes, size.gpus, size.pending) != (FULL.nodes, FULL.gpus, FULL.pending):
        return tuple(bars)  # the budgets speak of that size only
    bars += [
        Gate(
            "decide, beside the reference's filling",
            figures["cpu"]["decide_seconds"] / yardstick,
            "at_most",
            MOST_DECIDE,
        ),
        Gate(
            "decide, all distinct, beside the reference's filling",
            figures["cpu"]["decide_seconds_distinct"] / yardstick,
            "at_most",
            MOST_DECIDE_DISTINCT,
        ),
        Target("placements", figures["placements_per_second"], "at_least", PLACEMENTS_PER_SECOND, "/s"),
        Target("decide", figures["decide_seconds"], "at_most", DECIDE_SECONDS, "s"),
        Target("decide, all distinct", figures["decide_seconds_distinct"], "at_most", DECIDE_SECONDS_DISTINCT, "s"),
    ]
    return tuple(bars)


def _roster(nodes: int, gpus: int) -> Roster:
    return Roster(workload.teams(nodes * gpus), Policy(placement=GATED), workload.cluster(nodes, gpus))


def _submit(roster: Roster, jobs: Sequence[PendingJob]) -> None:
    for job in jobs:
        roster.submit(job)


def _fill(roster: Roster, placement: Placement) -> Plan:
    """The decision that fills the empty cluster."""
    return decide(roster.snapshot(0.0), Policy(placement=placement), 0.0)


def _decide(roster: Roster) -> Plan:
    return decide(roster.snapshot(0.0), roster.policy, 0.0)


def _replicas(plan: Plan) -> int:
    return sum(len(start.pieces) for start in plan.starts)


def _headline(placements: int, fill: float, full: float, distinct: float) -> dict[str, float]:
    return {
        "placements_per_second": placements / fill,
        "decide_seconds": full,
        "decide_seconds_distinct": distinct,
    }


def _rate(placements: int, seconds: float) -> dict[str, float]:
    return {"placements": placements, "placements_per_second": placements / seconds}


def _waiting(plan: Plan) -> dict[str, int]:
    """How many lanes wait for which reason."""
    counts = Counter(str(why.reason) for why in plan.waiting.values())
    return {"lanes": len(plan.waiting), **dict(counts.most_common())}


def _decide_on_full(size: Size, shapes: int) -> Timed[Plan]:
    """Time a decision on the cluster filled with the mixed load, on which nothing more can start.

    The first one is as if the teams had just been edited: nothing is remembered of the shapes.
    """
    roster = full_roster(size.nodes, size.gpus, size.pending, shapes, filling_shapes=size.shapes)
    roster.set_tree(roster.tree)
    return timed(partial(_decide, roster), size.repeats)


def full_roster(nodes: int, gpus: int, pending: int, shapes: int, *, filling_shapes: int) -> Roster:
    """A roster that has started what fits, with ``pending`` more jobs in ``shapes`` shapes waiting.

    Jobs that could start still are let start, and others queued in their stead.
    """
    roster = _roster(nodes, gpus)
    _submit(roster, workload.jobs(nodes * gpus, filling_shapes, gpus))
    _start_all(roster)
    for key in [job.key for lane in roster.snapshot(0.0).lanes for job in lane.jobs]:
        roster.withdraw(key)
    waiting, queued, batch = 0, nodes * gpus, 0
    while waiting < pending:
        missing, batch = pending - waiting, batch + 1
        distinct = shapes == pending
        seed = batch if distinct else 1
        _submit(roster, workload.jobs(missing, missing if distinct else shapes, gpus, seed, first=queued))
        queued += missing
        waiting = pending - _start_all(roster)
    return roster


def _start_all(roster: Roster) -> int:
    """Start what fits until nothing does; returns how many jobs started."""
    started = 0
    while plan := _decide(roster).starts:
        for start in plan:
            roster.start(start.job, start.pieces, 0.0)
        started += len(plan)
    return started


def _growth(size: Size) -> dict[str, Any]:
    """The same for other sizes of cluster, with as many waiting jobs as cards, and the power of the nodes it grows by.

    Of each size the best of a few runs counts: what disturbs a run has nothing to do with the size.
    """
    seconds: dict[str, list[float]] = {what: [] for what in (*(f"fill, {each}" for each in Placement), "decide")}
    for nodes in size.growth:
        repeats = max(1, min(size.repeats, 3_000 // nodes))
        roster = _roster(nodes, size.gpus)
        _submit(roster, workload.jobs(nodes * size.gpus, size.shapes, size.gpus))
        for placement in Placement:
            seconds[f"fill, {placement}"].append(timed(partial(_fill, roster, placement), repeats).best_cpu_seconds)
        packed = full_roster(nodes, size.gpus, nodes * size.gpus, size.shapes, filling_shapes=size.shapes)
        seconds["decide"].append(timed(partial(_decide, packed), repeats).best_cpu_seconds)
    exponents = {what: exponent(size.growth, each) for what, each in seconds.items()}
    return {"nodes": list(size.growth), "seconds": seconds, "exponent": exponents}


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """The power of the size that the time grows by: least squares on both logarithms. None for fewer than two sizes."""
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
