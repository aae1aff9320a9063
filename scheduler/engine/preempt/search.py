"""The smallest set of running work that lets one job start.

The candidates come in the order in which they should be given up. The shortest run of them that is enough is found by
doubling and halving; then those are spared, the last first, without which it is still enough. For a job of whole cards
on one node that takes by priority, the cheapest choice is found node by node, exactly.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from scheduler.engine.cluster import members
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit
from scheduler.engine.placement.gang import Placed, place, undo
from scheduler.engine.placement.strategy import Strategy
from scheduler.engine.plan import Piece
from scheduler.engine.preempt.claims import Where, release

TRIED_AT_MOST = 16
"""Nodes on which the cheapest choice is tried in earnest: CPUs, memory or a limit may stand against it."""
SPARED_AT_MOST = 64
"""Candidates that are tried one by one for being superfluous, beyond those that plainly are."""


class Unit(NamedTuple):
    """Something to give up: a whole job, or one replica of an elastic one. ``lost`` in GPU-seconds."""

    job: str
    whole: bool
    pieces: tuple[Piece, ...]
    spots: list[Where]
    amounts: tuple[tuple[str, int], ...]
    team: int
    started: float
    lost: float


class Found(NamedTuple):
    """What has to be given up, and where the job then lies."""

    units: tuple[Unit, ...]
    placed: list[Placed]


Loss = tuple[float, int, int]

AllowedNodes = Callable[[Sequence[Unit]], int]
"""The nodes that limits leave to the job once these units are given up; 0 where they leave none."""
Unreserved = Callable[[Sequence[Unit]], Mapping[int, int]]
"""The free cards that reservations leave to the job on their nodes once these units are given up."""


class Search:
    """One job against the future ledger: what is free once those who are already leaving have left."""

    def __init__(self, future: Ledger, fit: Fit, strategy: Strategy, allowed: AllowedNodes, caps: Unreserved) -> None:
        self._future = future
        self._fit = fit
        self._strategy = strategy
        self._allowed = allowed
        self._caps = caps

    def smallest(self, units: Sequence[Unit]) -> Found | None:
        """See the module; None where not even all of them are enough."""
        enough = self._shortest(units)
        if enough is None:
            return None
        taken, placed = list(units[:enough]), self._place(units[:enough])
        assert placed is not None
        if enough and self._allowed([]) == self._allowed(taken):
            taken = [unit for unit in taken if _touches(unit, placed)]
        for unit in reversed(taken[-SPARED_AT_MOST:]):
            fewer = [other for other in taken if other is not unit]
            without = self._place(fewer)
            if without is not None:
                taken, placed = fewer, without
        return Found(tuple(taken), placed)

    def cheapest_node(self, units: Sequence[Unit]) -> Found | None:
        """The least lost work on any one node; only for one replica of whole cards."""
        each = self._fit.groups[0]
        by_node: dict[int, list[Unit]] = {}
        for unit in units:
            for node in {spot.node for spot in unit.spots if not spot.piece.mib}:
                by_node.setdefault(node, []).append(unit)
        choices: list[tuple[Loss, int, tuple[Unit, ...]]] = []
        for node in members(each.nodes & self._future.ready & ~self._fit.excluded):
            short = each.group.gpus - self._future.free[node].bit_count()
            some = cheapest_cover(short, [(_cards_on(unit, node), unit) for unit in by_node.get(node, ())])
            if some is None:
                continue
            choices.append((loss(some), node, some))
        for _, node, some in sorted(choices, key=itemgetter(0, 1))[:TRIED_AT_MOST]:
            placed = self._place(some, only=1 << node)
            if placed is not None:
                return Found(some, placed)
        return None

    def _shortest(self, units: Sequence[Unit]) -> int | None:
        """How many of the units, from the first, are enough."""
        high = 0
        while self._place(units[:high]) is None:
            if high == len(units):
                return None
            high = min(len(units), max(1, 2 * high))
        low = high // 2 if high > 1 else high - 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._place(units[:middle]) is None:
                low = middle
            else:
                high = middle
        return high

    def _place(self, units: Sequence[Unit], only: int = -1) -> list[Placed] | None:
        nodes = self._allowed(units) & only
        if not nodes:
            return None
        if not units:
            placed = place(self._future, self._fit, self._strategy, nodes, self._caps(units))
            if placed is not None:
                undo(self._future, placed)
            return placed
        trial = self._future.copy()
        for unit in units:
            release(trial, unit.spots)
        return place(trial, self._fit, self._strategy, nodes, self._caps(units))


def cheapest_cover(cards: int, choices: Sequence[tuple[int, Unit]]) -> tuple[Unit, ...] | None:
    """The units that free at least ``cards`` cards for the least :func:`loss`; None if they cannot."""
    table: list[tuple[Loss, tuple[Unit, ...]] | None] = [((0.0, 0, 0), ())] + [None] * max(0, cards)
    for freed, unit in choices:
        for have in range(len(table) - 2, -1, -1):
            entry = table[have]
            if entry is None:
                continue
            reach = min(len(table) - 1, have + freed)
            some = (*entry[1], unit)
            candidate = (loss(some), some)
            known = table[reach]
            if known is None or candidate[0] < known[0]:
                table[reach] = candidate
    entry = table[-1]
    return None if entry is None else entry[1]


def loss(units: Sequence[Unit]) -> Loss:
    """What a set costs: GPU-seconds of work, then jobs that end rather than shrink, then how many give way."""
    return sum(unit.lost for unit in units), sum(unit.whole for unit in units), len(units)


def _cards_on(unit: Unit, node: int) -> int:
    return sum(len(spot.piece.gpus) for spot in unit.spots if spot.node == node and not spot.piece.mib)


def _touches(unit: Unit, placed: list[Placed]) -> bool:
    """Whether the job lies on a card that the unit gives up, or leans on the CPUs and memory of its node."""
    nodes = {each.node for each in placed}
    return any(spot.node in nodes for spot in unit.spots)
