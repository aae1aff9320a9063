"""Plain replays to measure Rota against in the same run: what anybody would write first with NumPy.

They know no teams, no order of urgency, no reasons and no gangs' preferences; they place and they wait. Neither shares
a line with the engine, so that a fault of one cannot hide in the other.
"""

import csv
import heapq
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from scheduler.engine.cluster import Node
from scheduler.engine.demand import Group, Shape


class BestFit:
    """Places replicas one by one on the node, or the shared card, that has the least left of what fits.

    ``left`` is MiB per node and card (a whole job takes all of it), ``free`` the untouched cards per node. Which nodes
    a group may ever use is looked up once per group.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        width = max(node.gpus for node in nodes)
        usable = np.array([node.vram_mib - node.reserve_mib for node in nodes], np.int64)
        there = np.arange(width) < np.array([[node.gpus] for node in nodes])
        self.nodes = nodes
        self.usable = usable
        self.left: NDArray[np.int64] = np.where(there, usable[:, None], 0)
        self.free = there.sum(axis=1)
        self.cpus = np.array([node.cpus_milli for node in nodes], np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], np.int64)
        self._eligible: dict[Group, NDArray[np.bool_]] = {}

    def place_all(self, shapes: Iterable[Shape]) -> int:
        """Place jobs in the order given, each whole or not at all; returns how many replicas were placed."""
        return sum(shape.replicas for shape in shapes if self.place(shape))

    def place(self, shape: Shape) -> bool:
        """Place one job, if all of it fits."""
        held: list[tuple[Group, int, NDArray[np.int64]]] = []
        for group in shape.groups:
            for _ in range(group.replicas):
                spot = self._slice(group) if group.share else self._cards(group)
                if spot is None:
                    self._undo(held)
                    return False
                held.append((group, *spot))
        return True

    def _able(self, group: Group) -> NDArray[np.bool_]:
        eligible = self._eligible.get(group)
        if eligible is None:
            eligible = self._eligible[group] = np.array([_may_use(node, group) for node in self.nodes])
        return eligible & (self.cpus >= group.cpus_milli) & (self.memory >= group.memory_mib)

    def _cards(self, group: Group) -> tuple[int, NDArray[np.int64]] | None:
        """The node with the fewest free cards that has enough of them."""
        fits = self._able(group) & (self.free >= group.gpus)
        node = int(np.where(fits, self.free, np.iinfo(np.int64).max).argmin())
        if not fits[node]:
            return None
        cards = np.flatnonzero(self.left[node] == self.usable[node])[: group.gpus]
        self.left[node, cards] = 0
        self._take(group, node, len(cards))
        return node, cards

    def _slice(self, group: Group) -> tuple[int, NDArray[np.int64]] | None:
        """The card with the least memory left that has enough of it."""
        fits = self._able(group)[:, None] & (self.left >= group.vram_mib)
        node, card = np.divmod(np.where(fits, self.left, np.iinfo(np.int64).max).argmin(), self.left.shape[1])
        if not fits[node, card]:
            return None
        fresh = self.left[node, card] == self.usable[node]
        self.left[node, card] -= group.vram_mib
        self._take(group, int(node), int(fresh))
        return int(node), np.array([card])

    def _take(self, group: Group, node: int, cards: int) -> None:
        self.free[node] -= cards
        self.cpus[node] -= group.cpus_milli
        self.memory[node] -= group.memory_mib

    def _undo(self, held: list[tuple[Group, int, NDArray[np.int64]]]) -> None:
        for group, node, cards in held:
            self.left[node, cards] += group.vram_mib if group.share else self.usable[node]
            again = (self.left[node, cards] == self.usable[node]).sum()
            self._take(group, node, -int(again))
            self.cpus[node] += 2 * group.cpus_milli
            self.memory[node] += 2 * group.memory_mib


def _may_use(node: Node, group: Group) -> bool:
    return (
        (not group.models or node.model in group.models)
        and set(group.selector) <= set(node.labels)
        and set(node.taints) <= set(group.tolerations)
        and node.vram_mib - (node.reserve_mib if group.share else 0) >= group.vram_mib
    )


class TraceJob(NamedTuple):
    """One job of a trace: seconds, and whole cards."""

    submitted: float
    duration: float
    gpus: int


def read_trace(
    file: TextIO, submit: str, duration: str, gpus: str, since: str | None, until: str | None
) -> list[TraceJob]:
    """The jobs with cards of a CSV file, by submission, from ``since`` to before ``until``, both as the file writes."""
    jobs = [
        TraceJob(_seconds(row[submit]), float(row[duration]), int(row[gpus]))
        for row in csv.DictReader(file)
        if int(row[gpus]) > 0
    ]
    first = -np.inf if since is None else _seconds(since)
    beyond = np.inf if until is None else _seconds(until)
    return sorted((job for job in jobs if first <= job.submitted < beyond), key=lambda job: job.submitted)


def _seconds(written: str) -> float:
    try:
        return float(written)
    except ValueError:
        return datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()


def strict_fifo(
    jobs: Sequence[TraceJob], nodes: int, per_node: int, ties: np.random.Generator | None = None
) -> NDArray[np.float64]:
    """When each job starts, in seconds, if jobs start strictly in the order given and nobody overtakes the first.

    ``jobs`` are in order of submission and each fits on the empty cluster. A job of at most ``per_node`` cards lies on
    the node with the fewest free ones that fits; a larger one takes wholly free nodes and one more for the remainder.
    Equal nodes fall to the lowest number, or to chance with ``ties``. As the order of starts is known, time goes from
    start to start and no queue is needed.
    """
    free = np.full(nodes, per_node)
    running: list[tuple[float, int, list[tuple[int, int]]]] = []
    starts = np.zeros(len(jobs))
    now = 0.0
    for number, job in enumerate(jobs):
        now = max(now, job.submitted)
        while running and running[0][0] <= now:
            _give(free, heapq.heappop(running)[2])
        while (spots := _spots(free, job.gpus, per_node, ties)) is None:
            now = running[0][0]
            while running and running[0][0] == now:
                _give(free, heapq.heappop(running)[2])
        for node, cards in spots:
            free[node] -= cards
        starts[number] = now
        heapq.heappush(running, (now + job.duration, number, spots))
    return starts


def _spots(
    free: NDArray[np.int64], gpus: int, per_node: int, ties: np.random.Generator | None
) -> list[tuple[int, int]] | None:
    """The (node, cards) that a job takes, None if it has to wait."""
    whole, rest = divmod(gpus, per_node)
    spots: list[tuple[int, int]] = []
    if whole:
        wholly_free = np.flatnonzero(free == per_node)[:whole]
        if len(wholly_free) < whole:
            return None
        spots = [(int(node), per_node) for node in wholly_free]
    if rest:
        left = free.copy()
        left[[node for node, _ in spots]] = 0
        left[left < rest] = per_node + 1
        node = int((left if ties is None else left + ties.random(len(left)) / 2).argmin())
        if left[node] > per_node:
            return None
        spots.append((node, rest))
    return spots


def _give(free: NDArray[np.int64], spots: list[tuple[int, int]]) -> None:
    for node, cards in spots:
        free[node] += cards
