"""How much of what is left on a node the workload mix could not use: the measure of the fragmentation strategy."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from scheduler.engine.cluster import Inventory, flags
from scheduler.engine.placement.mix import Mix

STEPS = 100
"""Growth is told apart in so many steps between endlessly less and endlessly more."""

FAR = 50.0
"""Cards of growth from which on all are alike."""


class _Demand(NamedTuple):
    """What the classes that find enough CPUs on a node ask for there.

    Those of one card: ``useful[i]`` of them, by weight, can use a card with at least ``levels[i - 1]`` MiB left and
    less than ``levels[i]``. The others: (MiB, cards, weight), the first at most the memory of a card.
    """

    levels: tuple[int, ...]
    useful: tuple[int, ...]
    several: tuple[tuple[int, int, int], ...]


class Kind:
    """Nodes that are alike to the mix: the same classes may use them, and their cards have ``usable`` MiB.

    CPUs count by their *level*: how many of the amounts that classes ask for (``amounts``) a number of them reaches.
    ``scale`` is what a whole card counts for in ``Cards.left``.
    """

    def __init__(
        self, mix: Mix, usable: int, member: Sequence[bool], amounts: Sequence[int], scale: float = 1.0
    ) -> None:
        self.usable = usable
        self.scale = scale
        self.total = mix.total
        self._tasks = [
            (task, weight)
            for (task, weight), may in zip(mix.classes, member, strict=True)
            if may and task.gpus and task.mib <= usable
        ]
        self._amounts = amounts
        self._demands: dict[int, _Demand] = {}
        self._known: dict[tuple[int, ...], Cards] = {}

    def cards(self, residuals: tuple[int, ...]) -> "Cards":
        """The state of the cards of a node, by the MiB left on each that has any, least first; one value a state."""
        found = self._known.get(residuals)
        if found is None:
            found = self._known[residuals] = Cards(self, residuals)
        return found

    def demand(self, level: int) -> _Demand:
        """What is asked of nodes with CPUs of ``level``."""
        found = self._demands.get(level)
        if found is None:
            found = self._demands[level] = self._demand(level)
        return found

    def _demand(self, level: int) -> _Demand:
        single: dict[int, int] = {}
        several: dict[tuple[int, int], int] = {}
        for task, weight in self._tasks:
            if bisect_right(self._amounts, task.cpus_milli) > level:
                continue
            mib = task.mib or self.usable
            if task.gpus == 1:
                single[mib] = single.get(mib, 0) + weight
            else:
                several[mib, task.gpus] = several.get((mib, task.gpus), 0) + weight
        levels = tuple(sorted(single))
        useful = [0]
        for mib in levels:
            useful.append(useful[-1] + single[mib])
        return _Demand(levels, tuple(useful), tuple((mib, gpus, w) for (mib, gpus), w in sorted(several.items())))


class Cards:
    """The cards of one node: what is left on each, and what of it is wasted."""

    __slots__ = ("_waste", "free", "kind", "left", "most", "residuals")

    def __init__(self, kind: Kind, residuals: tuple[int, ...]) -> None:
        self.kind = kind
        self.residuals = residuals
        self.free = residuals.count(kind.usable)
        self.most = residuals[-1] if residuals else 0
        self.left = int(kind.scale * sum(residuals) / max(1, kind.usable))
        self._waste: dict[int, int] = {}

    def without_cards(self, gpus: int) -> "Cards":
        """With so many whole cards less."""
        kept = len(self.residuals) - gpus
        return self.kind.cards(self.residuals[:kept])

    def without_slice(self, left: int, mib: int) -> "Cards":
        """With ``mib`` less on a card that has ``left``."""
        residuals = list(self.residuals)
        residuals.remove(left)
        if left > mib:
            residuals.append(left - mib)
            residuals.sort()
        return self.kind.cards(tuple(residuals))

    def waste(self, level: int) -> int:
        """The fragmentation of a node with CPUs of ``level``: MiB, times the weight of all classes.

        For each class it is what is left on all cards where the class cannot be placed or wants none, else what is
        left on the cards that are too full for it; whole numbers, so that equal states are exactly equal.
        """
        found = self._waste.get(level)
        if found is None:
            found = self._waste[level] = self._reckon(self.kind.demand(level))
        return found

    def _reckon(self, demand: _Demand) -> int:
        total, levels, useful = self.kind.total, demand.levels, demand.useful
        waste = sum([left * (total - useful[bisect_right(levels, left)]) for left in self.residuals])
        for mib, gpus, weight in demand.several:
            fitting = [left for left in self.residuals if left >= mib]
            if len(fitting) >= gpus:
                waste -= weight * sum(fitting)
        return waste


class Growth(NamedTuple):
    """What a placing does to a node: ``step`` of growth, the fewer the better, and the MiB left on the card it takes.

    The card is of meaning for slices only.
    """

    step: int
    left: int


def growth(cards: Cards, before: int, after: int, gpus: int, mib: int) -> Growth:
    """The growth where a replica is put on the best of these cards; CPUs go from level ``before`` to ``after``.

    The caller has seen that it fits. Of equally good cards the fullest is taken.
    """
    kind, waste = cards.kind, cards.waste(before)
    scale = kind.total * max(1, kind.usable)
    if not mib:
        rest = cards.without_cards(gpus) if gpus else cards
        return Growth(_step((rest.waste(after) - waste) / scale), kind.usable)
    best: Growth | None = None
    for left in dict.fromkeys(cards.residuals):
        if left >= mib:
            step = _step((cards.without_slice(left, mib).waste(after) - waste) / scale)
            if best is None or step < best.step:
                best = Growth(step, left)
    assert best is not None, "the caller has seen that it fits"
    return best


def _step(cards: float) -> int:
    """Growth in cards, told apart in integer steps: 100 × sigmoid(-growth), as schedulers score nodes, turned round."""
    return STEPS - math.floor(STEPS / (1.0 + math.exp(max(-FAR, min(FAR, cards)))))


@lru_cache(maxsize=4)
def kinds_of(inventory: Inventory, sets: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[tuple[int, bytes], ...]]:
    """Per node its kind, and per kind the MiB of its cards and which of some sets of nodes hold it, a byte each."""
    columns = np.array([flags(nodes, len(inventory)) for nodes in sets], np.uint8).reshape(len(sets), len(inventory))
    by_node = np.ascontiguousarray(columns.T)
    numbers: dict[tuple[int, bytes], int] = {}
    kinds = tuple(
        numbers.setdefault((usable, member.tobytes()), len(numbers))
        for usable, member in zip(inventory.usable_mib.tolist(), by_node, strict=True)
    )
    return kinds, tuple(numbers)
