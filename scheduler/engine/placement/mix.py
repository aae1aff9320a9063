"""The workload mix: which kinds of replica a cluster is asked for, and how often. What fragments it is measured by it.

The mix of a snapshot is what waits and what runs: the recent past and the near future as far as anybody knows them.
Taken from the snapshot alone, it is the same after a restart.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from scheduler.engine.cluster import Inventory
from scheduler.engine.demand import Shape
from scheduler.engine.placement.fit import eligible, slice_mib
from scheduler.engine.snapshot import Snapshot

POPULAR = 0.95
"""The mix is made of the most asked-for classes that together are this share of all replicas."""

MOST_CLASSES = 256
"""And of so many at most, where every job is another."""


class TaskClass(NamedTuple):
    """Replicas that are alike to a node: cards, MiB of each (0: whole), CPUs, and the set of nodes they may use."""

    gpus: int
    mib: int
    cpus_milli: int
    nodes: int


class Mix(NamedTuple):
    """The classes, each with the number of its replicas, most asked-for first; ``total`` is their sum, at least 1."""

    classes: tuple[tuple[TaskClass, int], ...] = ()
    total: int = 1


def mix_of(snapshot: Snapshot, headroom: float) -> Mix:
    """The mix of what waits and what holds cards. Host memory is no part of it, as it is no part of the measure."""
    counts: Counter[TaskClass] = Counter()
    for lane in snapshot.lanes:
        for each in lane.fit.groups:
            group = each.group
            task = TaskClass(group.gpus, each.mib, group.cpus_milli, each.nodes)
            counts[task] += group.replicas * len(lane.jobs)
    for task, replicas in _classes(snapshot.shapes.items(), snapshot.inventory, headroom):
        counts[task] += replicas
    return most_popular(counts)


def most_popular(counts: Counter[TaskClass]) -> Mix:
    """The classes that make up the popular share; equally popular ones in a fixed order."""
    enough = POPULAR * counts.total()
    kept: list[tuple[TaskClass, int]] = []
    covered = 0
    for task, replicas in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if covered >= enough or len(kept) == MOST_CLASSES:
            break
        kept.append((task, replicas))
        covered += replicas
    return Mix(tuple(kept), max(1, covered))


def _classes(
    shapes: Iterable[tuple[Shape, int]], inventory: Inventory, headroom: float
) -> Iterable[tuple[TaskClass, int]]:
    for shape, jobs in shapes:
        for group in shape.groups:
            mib = slice_mib(group, headroom)
            task = TaskClass(group.gpus, mib, group.cpus_milli, eligible(inventory, group, mib))
            yield task, group.replicas * jobs
