"""The openb traces and their experiment: nodes, tasks, and the order in which tasks arrive.

The cluster is empty; the tasks of a list are shuffled, then drawn with replacement until what they ask for reaches a
multiple of the cluster's cards. They arrive one by one and never leave; one that does not fit is dropped. From
"Beware of Fragmentation" (Weng et al., USENIX ATC 2023), which publishes the means of ten seeds.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.report import Unavailable
from scheduler.engine.cluster import Node
from scheduler.engine.demand import Group

NODES = "openb_node_list_gpu_node.csv"
TASKS = "openb_pod_list_{}.csv"

CARD = 1_000
"""A card is modelled with so many MiB, none of them kept back: a thousandth of a card is one MiB."""

STREAM = 7
"""The second half of the seed of the order of arrival."""

PUBLISHED_FGD = MappingProxyType({"default": 95.39, "multigpu20": 95.65, "gpushare40": 94.15, "gpuspec33": 94.55})
PUBLISHED_BEST_FIT = MappingProxyType({"default": 93.08, "multigpu20": 93.93, "gpushare40": 91.69, "gpuspec33": 93.09})
"""Published: cards allocated in per cent of all, when 130 % have been asked for."""


class Task(NamedTuple):
    """A line of a list: ``milli`` thousandths of each of ``gpus`` cards; without ``models`` any will do."""

    cpus_milli: int
    memory_mib: int
    gpus: int
    milli: int
    models: tuple[str, ...]

    @property
    def wanted(self) -> int:
        """Thousandths of cards in all."""
        return self.gpus * self.milli

    def group(self) -> Group:
        """The task as a job's only group: a part of a card is a slice of its memory."""
        share = 0 < self.milli < CARD
        return Group(
            gpus=self.gpus, cpus_milli=self.cpus_milli, memory_mib=self.memory_mib, share=share,
            vram_mib=self.milli if share else 0, models=self.models,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Openb:
    """A cluster and one of its lists."""

    nodes: tuple[Node, ...]
    tasks: tuple[Task, ...]

    @property
    def capacity(self) -> int:
        """Thousandths of cards of the cluster."""
        return CARD * sum(node.gpus for node in self.nodes)

    def arrivals(self, seed: int, ratio: float) -> list[Task]:
        """The tasks in the order in which they arrive, until they ask for ``ratio`` times the capacity."""
        draw = np.random.default_rng([seed, STREAM])
        wanted = [task.wanted for task in self.tasks]
        order: list[int] = draw.permutation(len(self.tasks)).tolist()
        goal, total = ratio * self.capacity, sum(wanted)
        while total > goal:
            total -= wanted[order.pop()]
        while total + wanted[drawn := int(draw.integers(len(wanted)))] <= goal:
            total += wanted[drawn]
            order.append(drawn)
        return [self.tasks[number] for number in order]

    def renamed(self, seed: int) -> "Openb":
        """The same with names, and so the order among equal nodes, dealt out anew."""
        numbers = np.random.default_rng(seed).permutation(len(self.nodes)).tolist()
        named = [(number, node) for number, node in zip(numbers, self.nodes, strict=True)]
        return Openb(tuple(_renamed(node, f"node-{number}") for number, node in sorted(named)), self.tasks)


def read(folder: Path, tasks: str) -> Openb:
    """A cluster and a list. Raises Unavailable where a file is missing or is no such table."""
    nodes = tuple(
        Node(
            name=row["sn"], gpus=int(row["gpu"]), model=row["model"], vram_mib=CARD, reserve_mib=0,
            cpus_milli=int(row["cpu_milli"]), memory_mib=int(row["memory_mib"]),
        )
        for row in _rows(folder / NODES, ("sn", "gpu", "model", "cpu_milli", "memory_mib"))
    )  # fmt: skip
    rows = _rows(folder / TASKS.format(tasks), ("num_gpu", "cpu_milli", "memory_mib"))
    listed = tuple(_task(row) for row in rows)
    if not any(task.wanted for task in listed):
        raise Unavailable(f"{folder / TASKS.format(tasks)}: no task asks for a card")
    return Openb(nodes, listed)


def lists(folder: Path) -> list[str]:
    """The lists that a folder has, by name."""
    before, after = TASKS.split("{}")
    return sorted(path.name.removeprefix(before).removesuffix(after) for path in folder.glob(TASKS.format("*")))


def allocated(
    arrivals: Sequence[Task], placed: NDArray[np.bool_], capacity: int, points: Sequence[float]
) -> list[float]:
    """Cards allocated, in per cent of the capacity, when so much (a share of it) has been asked for; the last at the
    end where it is never reached."""
    wanted = np.array([task.wanted for task in arrivals], np.int64)
    asked, given = np.cumsum(wanted), np.cumsum(wanted * placed)
    at = np.minimum(np.searchsorted(asked, np.array(points) * capacity), len(wanted) - 1)
    return [100.0 * float(each) / capacity for each in given[at]]


def _rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            missing = [name for name in needed if name not in (table.fieldnames or ())]
            if missing:
                raise Unavailable(f"{path}: there is no column {missing[0]}")
            return list(table)
    except FileNotFoundError:
        raise Unavailable(
            f"there is no {path}: name the folder with --data, or in ROTA_SHARED the folder that holds data/openb"
        ) from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None


def _task(row: dict[str, str]) -> Task:
    """Lists of the family lack columns: without ``gpu_milli`` cards are whole, without ``gpu_spec`` any will do."""
    gpus = int(row["num_gpu"] or 0)
    milli = min(int(row.get("gpu_milli") or CARD), CARD) if gpus else 0
    models = tuple(name for name in (row.get("gpu_spec") or "").split("|") if name) if gpus else ()
    return Task(int(row["cpu_milli"] or 0), int(row["memory_mib"] or 0), gpus, milli, models)


def _renamed(node: Node, name: str) -> Node:
    return Node(name, node.gpus, node.model, node.vram_mib, node.reserve_mib, node.cpus_milli, node.memory_mib)
