"""What is free on each node right now, and the four moves that change it: take and give, of cards and of slices."""

from bisect import bisect_left, insort
from itertools import count
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scheduler.engine.cluster import Inventory, bitset_of, members


class Ledger:
    """Free cards, card memory, CPUs and host memory per node.

    ``free[n]`` is a bit set of the cards of node n that nobody holds and that are fit for work; ``by_free[k]`` the set
    of nodes with exactly k of them; ``untouched`` the nodes all of whose working cards are free. A card in shared use
    is in ``shared`` (card number -> MiB left, card number = node × width + index); ``by_left`` has, by the MiB left,
    the set of nodes with such a card, and ``lefts`` its keys in order. CPUs and memory may go below zero when
    hardware shrinks. ``health`` is a number that no two states of readiness and work share. ``touched`` names the nodes
    that were changed, one after the other, since this ledger was made or copied: whoever remembers something about
    nodes reads on there.
    """

    __slots__ = (
        "by_free", "by_left", "cpus", "free", "health", "inventory", "lefts", "memory", "ready", "shared", "touched",
        "untouched", "working",
    )  # fmt: skip

    def __init__(self, inventory: Inventory) -> None:
        """All free, all nodes ready, all cards working."""
        self.inventory = inventory
        self.working = [(1 << node.gpus) - 1 for node in inventory.nodes]
        self.free = list(self.working)
        self.cpus: list[int] = inventory.cpus_milli.tolist()
        self.memory: list[int] = inventory.memory_mib.tolist()
        self.by_free = [bitset_of(np.flatnonzero(inventory.gpus == k).tolist()) for k in range(inventory.width + 1)]
        self.untouched = inventory.all
        self.ready = inventory.all
        self.health = next(_HEALTH)
        self.shared: dict[int, int] = {}
        self.by_left: dict[int, int] = {}
        self.lefts: list[int] = []
        self.touched: list[int] = []

    def copy(self) -> Self:
        """An independent ledger."""
        other = object.__new__(type(self))
        other.inventory = self.inventory
        other.working = self.working[:]
        other.free = self.free[:]
        other.cpus = self.cpus[:]
        other.memory = self.memory[:]
        other.by_free = self.by_free[:]
        other.untouched = self.untouched
        other.ready = self.ready
        other.health = self.health
        other.shared = self.shared.copy()
        other.by_left = self.by_left.copy()
        other.lefts = self.lefts[:]
        other.touched = []
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__ if name not in {"health", "touched"}
        )

    __hash__ = None  # type: ignore[assignment]

    def emptied(self) -> Self:
        """The same hardware in the same health, with nothing on it."""
        other = type(self)(self.inventory)
        other.ready = self.ready
        for node, cards in enumerate(self.working):
            if cards != other.working[node]:
                other.working[node] = cards
                other._set_free(node, cards)
        other.health = self.health
        return other

    def card(self, node: int, gpu: int) -> int:
        """The number of a card."""
        return node * self.inventory.width + gpu

    def free_count(self, nodes: int) -> int:
        """Whole free cards on a set of nodes."""
        return sum(k * (held & nodes).bit_count() for k, held in enumerate(self.by_free) if k)

    def take_cards(self, node: int, number: int) -> tuple[int, ...]:
        """Hold the ``number`` lowest free cards of a node; the caller has seen that they are there."""
        gpus = lowest(self.free[node], number)
        self.hold_cards(node, gpus)
        return gpus

    def hold_cards(self, node: int, gpus: tuple[int, ...]) -> None:
        """Hold exactly these cards, free or not (a running job found on them)."""
        self._set_free(node, self.free[node] & ~bitset_of(gpus))

    def give_cards(self, node: int, gpus: tuple[int, ...]) -> None:
        """Free cards that were held whole."""
        self._set_free(node, self.free[node] | bitset_of(gpus) & self.working[node])

    def take_slice(self, node: int, gpu: int, mib: int) -> None:
        """Hold ``mib`` of one card, which becomes a shared one if it was free."""
        card = self.card(node, gpu)
        left = self.shared.get(card)
        if left is None:
            left = self.inventory.nodes[node].usable_mib
            self._set_free(node, self.free[node] & ~(1 << gpu))
        else:
            self._unlist(card, left)
        self._list(card, left - mib)

    def give_slice(self, node: int, gpu: int, mib: int) -> None:
        """Free ``mib`` of a shared card; the last slice makes it a whole free card again."""
        card = self.card(node, gpu)
        left = self.shared[card]
        self._unlist(card, left)
        if left + mib >= self.inventory.nodes[node].usable_mib:
            self._set_free(node, self.free[node] | (1 << gpu) & self.working[node])
        else:
            self._list(card, left + mib)

    def take_host(self, node: int, cpus_milli: int, memory_mib: int) -> None:
        """Hold CPUs and host memory; negative amounts give them back."""
        self.touched.append(node)
        self.cpus[node] -= cpus_milli
        self.memory[node] -= memory_mib

    def set_working(self, node: int, gpu: int, *, working: bool, held: bool) -> None:
        """Say whether a card is fit for work; ``held`` whether a job holds it whole at this moment."""
        bit = 1 << gpu
        if working == bool(self.working[node] & bit) or gpu >= self.inventory.nodes[node].gpus:
            return
        self.working[node] ^= bit
        self.health = next(_HEALTH)
        shared = self.card(node, gpu) in self.shared
        usable = working and not held and not shared
        self._set_free(node, self.free[node] | bit if usable else self.free[node] & ~bit)

    def set_ready(self, node: int, *, ready: bool) -> None:
        """Say whether a node takes new work."""
        bit = self.inventory.bits[node]
        self.ready = self.ready | bit if ready else self.ready & ~bit
        self.health = next(_HEALTH)

    def slice_left(self, node: int, gpu: int) -> int:
        """MiB that a new slice could have on a card; 0 where the card is held whole or does not work."""
        if not self.working[node] >> gpu & 1:
            return 0
        if self.free[node] >> gpu & 1:
            return self.inventory.nodes[node].usable_mib
        return max(0, self.shared.get(self.card(node, gpu), 0))

    def host_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Free CPUs (milli) and memory (MiB) per node, none below zero."""
        return np.maximum(np.array(self.cpus, np.int64), 0), np.maximum(np.array(self.memory, np.int64), 0)

    def card_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of all working cards that are free or shared: node positions, and the MiB left on each, none below zero."""
        usable, width = self.inventory.usable_mib.tolist(), self.inventory.width
        free = [(node, usable[node]) for node, cards in enumerate(self.free) for _ in range(cards.bit_count())]
        shared = [
            (node, max(0, left))
            for card, left in self.shared.items()
            if self.working[node := card // width] >> card % width & 1
        ]
        table = np.array(free + shared, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def fitting_lefts(self, mib: int) -> list[int]:
        """Amounts left on shared cards, smallest first, that hold ``mib``."""
        return self.lefts[bisect_left(self.lefts, max(mib, 1)) :]

    def shared_gpu(self, node: int, left: int) -> int:
        """The lowest working card of ``node`` with exactly ``left`` MiB left in shared use; -1 where there is none."""
        first = node * self.inventory.width
        for gpu in range(self.inventory.width):
            if self.shared.get(first + gpu) == left and self.working[node] >> gpu & 1:
                return gpu
        return -1

    def _set_free(self, node: int, cards: int) -> None:
        bit = self.inventory.bits[node]
        before, after = self.free[node].bit_count(), cards.bit_count()
        self.free[node] = cards
        self.touched.append(node)
        if before != after:
            self.by_free[before] ^= bit
            self.by_free[after] ^= bit
        if cards == self.working[node]:
            self.untouched |= bit
        elif self.untouched & bit:
            self.untouched ^= bit

    def _list(self, card: int, left: int) -> None:
        self.shared[card] = left
        node = card // self.inventory.width
        self.touched.append(node)
        bit = self.inventory.bits[node]
        nodes = self.by_left.get(left)
        if nodes is None:
            insort(self.lefts, left)
            self.by_left[left] = bit
        else:
            self.by_left[left] = nodes | bit

    def _unlist(self, card: int, left: int) -> None:
        del self.shared[card]
        node = card // self.inventory.width
        first = node * self.inventory.width
        if any(self.shared.get(other) == left for other in range(first, first + self.inventory.width)):
            return
        nodes = self.by_left[left] ^ self.inventory.bits[node]
        if nodes:
            self.by_left[left] = nodes
        else:
            del self.by_left[left]
            del self.lefts[bisect_left(self.lefts, left)]


_HEALTH = count(1)
_LOWEST: dict[tuple[int, int], tuple[int, ...]] = {}


def lowest(cards: int, number: int) -> tuple[int, ...]:
    """The ``number`` lowest members of a small bit set."""
    found = _LOWEST.get((cards, number))
    if found is None:
        found = tuple(members(cards))[:number]
        if len(_LOWEST) < 1 << 16:
            _LOWEST[cards, number] = found
    return found
