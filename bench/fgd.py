"""A plain replay of fragmentation gradient descent in NumPy, to measure Rota's against in the same run.

As anybody would write it from the paper ("Beware of Fragmentation", Weng et al., USENIX ATC 2023), with growth in
integer steps and ties to the best fit. Of each kind of task it remembers the growth per node, and works it out again
only where a node has changed. It shares no line with the engine.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.openb import CARD, Task
from scheduler.engine.cluster import Node

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHARE = 0.95
"""The classes that the mix is made of are this share of all tasks."""


class FragmentationDescent:
    """An empty cluster and the mix of tasks to expect; ``left`` is thousandths per node and card."""

    def __init__(self, nodes: Sequence[Node], tasks: Sequence[Task]) -> None:
        width = max(node.gpus for node in nodes)
        self.models = np.array([node.model for node in nodes])
        self.cpus: Ints = np.array([node.cpus_milli for node in nodes], np.int64)
        self.memory: Ints = np.array([node.memory_mib for node in nodes], np.int64)
        there = np.arange(width) < np.array([[node.gpus] for node in nodes])
        self.left: Ints = np.where(there, CARD, 0).astype(np.int64)
        self.most = (width * CARD, int(self.cpus.max()))
        self._mix(tasks)
        self._changes: Ints = np.zeros(len(nodes), np.int64)
        self._known: dict[Task, tuple[Ints, Floats, Ints]] = {}

    def _mix(self, tasks: Sequence[Task]) -> None:
        counts = Counter((task.cpus_milli, task.gpus, task.milli, task.models) for task in tasks)
        popular, covered = [], 0
        for kind, count in counts.most_common():
            if covered >= SHARE * len(tasks):
                break
            popular.append((kind, count))
            covered += count
        asking = [(kind, count) for kind, count in popular if kind[1]]
        self._need_cpus: Ints = np.array([kind[0] for kind, _ in asking], np.int64)
        self._need_gpus: Ints = np.array([kind[1] for kind, _ in asking], np.int64)
        self._levels, self._level = np.unique([kind[2] for kind, _ in asking], return_inverse=True)
        self._may = np.array([self._able(kind[3]) for kind, _ in asking]).T
        self._weight: Floats = np.array([count for _, count in asking], np.float64) / covered

    def _able(self, models: tuple[str, ...]) -> NDArray[np.bool_]:
        return np.isin(self.models, models) if models else np.ones(len(self.models), np.bool_)

    def place_all(self, tasks: Sequence[Task]) -> NDArray[np.bool_]:
        """Place tasks in the order given; returns which have found a place."""
        return np.array([self.place(task) for task in tasks], np.bool_)

    def place(self, task: Task) -> bool:
        """Place one task, if it fits."""
        fits = self._able(task.models) & (self.cpus >= task.cpus_milli) & (self.memory >= task.memory_mib)
        fits &= (self.left >= task.milli).sum(axis=1) >= task.gpus
        nodes = np.flatnonzero(fits)
        if not nodes.size:
            return False
        growth, card = self._growth(task, nodes)
        best = nodes[growth[nodes] == growth[nodes].min()]
        spare = self.left[best].sum(axis=1) / self.most[0]
        node = int(best[np.argmin(spare + self.cpus[best] / self.most[1] if task.gpus else spare)])
        level = card[node] if task.milli < CARD else CARD
        self.left[node, np.flatnonzero(self.left[node] == level)[: task.gpus]] -= task.milli
        self.cpus[node] -= task.cpus_milli
        self.memory[node] -= task.memory_mib
        self._changes[node] += 1
        return True

    def _growth(self, task: Task, nodes: Ints) -> tuple[Floats, Ints]:
        """Steps of growth per node, and what is left on the card to take; right for ``nodes`` only."""
        if task not in self._known:
            size = len(self.cpus)
            self._known[task] = (np.full(size, -1, np.int64), np.zeros(size), np.zeros(size, np.int64))
        seen, growth, card = self._known[task]
        old = nodes[seen[nodes] != self._changes[nodes]]
        if old.size:
            growth[old], card[old] = self._work_out(task, old)
            seen[old] = self._changes[old]
        return growth, card

    def _work_out(self, task: Task, nodes: Ints) -> tuple[Floats, Ints]:
        before = self._waste(nodes, self.cpus[nodes], self.left[nodes])
        cpus, left = self.cpus[nodes] - task.cpus_milli, np.sort(self.left[nodes], axis=1)
        if task.gpus != 1 or task.milli == CARD:
            if task.gpus:
                left[:, left.shape[1] - task.gpus :] -= task.milli
            return _steps(self._waste(nodes, cpus, left) - before), np.full(len(nodes), CARD)
        best, card = np.full(len(nodes), np.inf), np.zeros(len(nodes), np.int64)
        for gpu in range(left.shape[1]):
            rows = np.flatnonzero(left[:, gpu] >= task.milli)
            if not rows.size:
                continue
            taken = left[rows]
            taken[:, gpu] -= task.milli
            steps = _steps(self._waste(nodes[rows], cpus[rows], taken) - before[rows])
            better = steps < best[rows]
            best[rows[better]], card[rows[better]] = steps[better], left[rows[better], gpu]
        return best, card

    def _waste(self, nodes: Ints, cpus: Ints, left: Ints) -> Floats:
        """The fragmentation of nodes in a state, in thousandths of cards."""
        large = left[:, :, None] >= self._levels
        count, usable = large.sum(axis=1), (left[:, :, None] * large).sum(axis=1)
        able = (count[:, self._level] >= self._need_gpus) & (cpus[:, None] >= self._need_cpus) & self._may[nodes]
        waste: Floats = left.sum(axis=1) - (able * usable[:, self._level]) @ self._weight
        return waste


def _steps(growth: Floats) -> Floats:
    steps: Floats = -np.floor(100 / (1 + np.exp(np.round(growth, 6) / CARD)))
    return steps
