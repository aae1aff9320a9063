"""Fragmentation: the node, and for a slice the card, where the least is made useless for the work that is asked for.

After "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (Weng et al.,
USENIX ATC 2023). With R_g what is left of each GPU g of a node n, the fragmentation of n for a class m of replicas is

    F_n(m) = sum of all R_g                        where m cannot be placed on n, or wants no GPU,
             sum of the R_g that are too small     otherwise,

and for the mix M of classes with shares p_m of the workload F_n(M) = sum of p_m F_n(m). A replica goes where F grows
least. What is left of a GPU is MiB of card memory, counted in cards, so that a free card is 1. CPUs count: a class that
finds too few of them cannot be placed.

Growth is told apart in steps only, then the best fit decides, then the lowest name. Exact growth would decide between
nodes by differences that mean nothing, and leaving ties to chance loses more than the measure wins: CPU-only work then
uses up the CPUs beside free GPUs.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from scheduler.engine.cluster import Inventory, flags
from scheduler.engine.ledger import Ledger, lowest
from scheduler.engine.placement.mix import Mix
from scheduler.engine.placement.strategy import Want, fullest_shared
from scheduler.engine.placement.waste import Cards, Growth, Kind, growth, kinds_of

NEVER = 1 << 62
"""The rank of a node that cannot take a replica."""

STEP, CARDS, CPUS = 1 << 52, 1 << 50, 1 << 30
"""Weights in a rank: of a step of growth, and in the best fit of all the cards and of all the CPUs of a large node."""

BOARDS = 4
"""Ledgers of one decision that are remembered: its own, and those it plays what-if on."""


class Fragmentation:
    """See the module. Made for one decision: it remembers what it has worked out for the states of nodes."""

    spreads = False

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self._boards: list[_Board] = []
        self._measure: _Measure | None = None

    def choose_node(self, ledger: Ledger, want: Want, opened: int) -> int:
        """The node whose fragmentation grows least."""
        return self._board(ledger).choose(want)[0]

    def choose_card(self, ledger: Ledger, want: Want, opened: int) -> tuple[int, int] | None:
        """The card by which fragmentation grows least."""
        node, left = self._board(ledger).choose(want)
        if node < 0:
            return fullest_shared(ledger, want) if want.caps else None
        if left == ledger.inventory.nodes[node].usable_mib:
            return node, lowest(ledger.free[node], 1)[0]
        return node, ledger.shared_gpu(node, left)

    def _board(self, ledger: Ledger) -> "_Board":
        for board in self._boards:
            if board.ledger is ledger:
                return board
        if self._measure is None or self._measure.inventory is not ledger.inventory:
            self._measure = _Measure(ledger.inventory, self.mix)
        board = _Board(ledger, self._measure)
        self._boards = [*self._boards[:1], board, *self._boards[1 : BOARDS - 1]]
        return board


class _Measure:
    """What the states of nodes are measured by; shared by all ledgers of an inventory."""

    def __init__(self, inventory: Inventory, mix: Mix) -> None:
        self.inventory = inventory
        sets = tuple(dict.fromkeys(task.nodes for task, _ in mix.classes))
        numbers, found = kinds_of(inventory, sets)
        place = [sets.index(task.nodes) for task, _ in mix.classes]
        self.amounts = sorted({task.cpus_milli for task, _ in mix.classes if task.gpus})
        scale = CARDS / max(1, inventory.width)
        kinds = [Kind(mix, usable, [bool(member[at]) for at in place], self.amounts, scale) for usable, member in found]
        self.kinds = [kinds[number] for number in numbers]
        self._growths: dict[tuple[int, int], dict[tuple[Cards, int, int], Growth]] = {}

    def growths(self, gpus: int, mib: int) -> dict[tuple[Cards, int, int], Growth]:
        """What is known of replicas of this size: growth by cards, and levels of CPUs before and after."""
        return self._growths.setdefault((gpus, mib), {})


class _Row:
    """The ranks of the nodes for one kind of replica, as of place ``seen`` in the changes of its board."""

    __slots__ = ("growths", "inside", "nodes", "ranks", "seen")

    def __init__(self, nodes: int, growths: dict[tuple[Cards, int, int], Growth]) -> None:
        self.ranks: NDArray[np.int64] = np.full(nodes, NEVER, np.int64)
        self.inside = bytearray(nodes)
        self.nodes = 0
        self.seen = 0
        self.growths = growths


class _Board:
    """The ranks of one ledger's nodes, kept up to date: only nodes that have changed are looked at again."""

    def __init__(self, ledger: Ledger, measure: _Measure) -> None:
        self.ledger = ledger
        self._measure = measure
        self._size = len(ledger.inventory)
        self._most_cpus = max(1, int(ledger.inventory.cpus_milli.max(initial=0)), *ledger.cpus)
        self._cards: list[Cards | None] = [None] * self._size
        self._levels = [0] * self._size
        self._changes: list[int] = []
        self._seen = len(ledger.touched)
        self._rows: dict[tuple[int, int, int, int], _Row] = {}

    def choose(self, want: Want) -> tuple[int, int]:
        """The best node for a replica (-1: none), and the MiB left on the best card for a slice."""
        row = self._row(want)
        ranks = row.ranks
        if want.nodes != row.nodes:
            ranks = np.where(flags(want.nodes, self._size), ranks, NEVER)
        while True:
            node = int(ranks.argmin()) if self._size else -1
            if node < 0 or ranks[node] == NEVER:
                return -1, 0
            left = self._growth(row, want, node).left if want.mib else 0
            shared = want.mib and left < self._measure.kinds[node].usable
            if not want.caps or shared or want.caps.get(node, want.gpus) >= want.gpus:
                return node, left
            if ranks is row.ranks:
                ranks = ranks.copy()
            ranks[node] = NEVER  # its free cards are reserved for others

    def _row(self, want: Want) -> _Row:
        """The row of a replica's kind, with every node of ``want.nodes`` up to date."""
        touched, changes = self.ledger.touched, self._changes
        if self._seen < len(touched):
            for node in set(touched[self._seen :]):
                self._cards[node] = None
                changes.append(node)
            self._seen = len(touched)
        key = (want.gpus, want.mib, want.cpus_milli, want.memory_mib)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(self._size, self._measure.growths(want.gpus, want.mib))
        if row.seen < len(changes):
            inside = row.inside
            self._rank(row, want, [node for node in set(changes[row.seen :]) if inside[node]])
        row.seen = len(changes)
        new = want.nodes & ~row.nodes
        if new:
            row.nodes |= new
            row.inside = bytearray(flags(row.nodes, self._size).tobytes())
            self._rank(row, want, np.flatnonzero(flags(new & self._able(want), self._size)).tolist())
        return row

    def _able(self, want: Want) -> int:
        """The nodes that have the cards, whatever their CPUs and memory."""
        able = 0
        for held in self.ledger.by_free[max(want.gpus, 1) if want.mib else want.gpus :]:
            able |= held
        if want.mib:
            for left in self.ledger.fitting_lefts(want.mib):
                able |= self.ledger.by_left[left]
        return able

    def _rank(self, row: _Row, want: Want, nodes: list[int]) -> None:
        """Work out the ranks of some nodes. The loop of all decisions: names are kept at hand."""
        ledger, states, levels, ranks, known = self.ledger, self._cards, self._levels, row.ranks, row.growths
        cpus, memory, amounts = ledger.cpus, ledger.memory, self._measure.amounts
        per_cpu = (CARDS if want.gpus else CPUS) // self._most_cpus
        gpus, mib, need_cpus, need_memory = want.gpus, want.mib, want.cpus_milli, want.memory_mib
        for node in nodes:
            has = cpus[node]
            if has < need_cpus or memory[node] < need_memory:
                ranks[node] = NEVER
                continue
            cards = states[node] or self._look(node)
            if cards.most < mib if mib else cards.free < gpus:
                ranks[node] = NEVER
                continue
            key = (cards, levels[node], bisect_right(amounts, has - need_cpus))
            found = known.get(key)
            if found is None:
                found = known[key] = growth(*key, gpus, mib)
            ranks[node] = found.step * STEP + cards.left + per_cpu * has

    def _growth(self, row: _Row, want: Want, node: int) -> Growth:
        cards = self._cards[node] or self._look(node)
        after = bisect_right(self._measure.amounts, self.ledger.cpus[node] - want.cpus_milli)
        return row.growths[cards, self._levels[node], after]

    def _look(self, node: int) -> Cards:
        """The state of a node's cards; its level of CPUs is noted too."""
        ledger, inventory, kind = self.ledger, self._measure.inventory, self._measure.kinds[node]
        self._levels[node] = bisect_right(self._measure.amounts, ledger.cpus[node])
        whole = ledger.free[node].bit_count()
        residuals = [kind.usable] * whole
        if whole < inventory.nodes[node].gpus and ledger.shared:
            first, working = node * inventory.width, ledger.working[node]
            for gpu in range(inventory.nodes[node].gpus):
                left = ledger.shared.get(first + gpu, 0)
                if left > 0 and working >> gpu & 1:
                    residuals.append(left)
            residuals.sort()
        cards = self._cards[node] = kind.cards(tuple(residuals))
        return cards
