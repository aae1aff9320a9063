"""The hardware of one cluster: nodes and their cards, laid out for fast questions about sets of nodes.

Sets of nodes are Python integers used as bit sets (bit i = node i): an intersection of 10,000 nodes costs about a
microsecond, and the lowest bit is the lowest name. Columns of numbers are NumPy arrays.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scheduler.engine.demand import Group, Level


class NodeState(StrEnum):
    """Only a ready node takes new work; the others keep what they have until it is moved or lost."""

    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DOWN = "down"
    SYNCING = "syncing"


class CardState(StrEnum):
    """Only an ok card takes new work."""

    OK = "ok"
    SUSPECT = "suspect"
    OUT = "out"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: ``gpus`` cards of one model with ``vram_mib`` each, of which the driver keeps ``reserve_mib``."""

    name: str
    gpus: int
    model: str
    vram_mib: int
    reserve_mib: int = 1024
    cpus_milli: int = 128_000
    memory_mib: int = 2048 * 1024
    rack: str = "rack0"
    switch: str = "switch0"
    nvlink: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[str, ...] = ()

    @property
    def usable_mib(self) -> int:
        """Memory of each card that jobs may have, in MiB."""
        return max(0, self.vram_mib - self.reserve_mib)

    def domain(self, level: Level) -> str:
        """The name of the domain of ``level`` that the node lies in."""
        if level is Level.RACK:
            return self.rack
        if level is Level.SWITCH:
            return self.switch
        return self.nvlink or self.name if level is Level.NVLINK else self.name


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key under which n2 comes before n10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part)


def members(nodes: int) -> Iterator[int]:
    """The positions in a bit set, lowest first."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low


def bitset(flags: NDArray[np.bool_]) -> int:
    """The bit set of the positions that are true."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def flags(nodes: int, count: int) -> NDArray[np.bool_]:
    """The inverse of :func:`bitset`: ``count`` flags."""
    octets = np.frombuffer(nodes.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").view(np.bool_)


def bitset_of(positions: Iterable[int]) -> int:
    """A bit set of the given positions."""
    found = 0
    for position in positions:
        found |= 1 << position
    return found


class Inventory:
    """The nodes of a cluster by natural name order. Never changes; a node that joins or leaves makes a new one."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: tuple[Node, ...] = tuple(sorted(nodes, key=lambda node: natural(node.name)))
        self.names = tuple(node.name for node in self.nodes)
        self.index = {name: position for position, name in enumerate(self.names)}
        if len(self.index) != len(self.nodes):
            raise ValueError("a node name is used twice")
        self.gpus = np.array([node.gpus for node in self.nodes], dtype=np.int64)
        self.vram_mib = np.array([node.vram_mib for node in self.nodes], dtype=np.int64)
        self.usable_mib = np.array([node.usable_mib for node in self.nodes], dtype=np.int64)
        self.cpus_milli = np.array([node.cpus_milli for node in self.nodes], dtype=np.int64)
        self.memory_mib = np.array([node.memory_mib for node in self.nodes], dtype=np.int64)
        self.width = max((node.gpus for node in self.nodes), default=0)
        self.all = (1 << len(self.nodes)) - 1
        self.bits = tuple(1 << position for position in range(len(self.nodes)))
        self._domains: dict[Level, tuple[int, ...]] = {}
        self._having: dict[tuple[str, object], int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inventory) and self.nodes == other.nodes

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def cards(self) -> dict[str, int]:
        """How many cards of each model there are."""
        totals: dict[str, int] = {}
        for node in self.nodes:
            totals[node.model] = totals.get(node.model, 0) + node.gpus
        return totals

    @cached_property
    def smallest_card(self) -> dict[str, int]:
        """MiB of the smallest card of each model."""
        smallest: dict[str, int] = {}
        for node in self.nodes:
            smallest[node.model] = min(node.vram_mib, smallest.get(node.model, node.vram_mib))
        return smallest

    @cached_property
    def weakest_host(self) -> tuple[int, int]:
        """CPUs (milli) and memory (MiB) that every node has at least."""
        if not self.nodes:
            return 0, 0
        return int(self.cpus_milli.min()), int(self.memory_mib.min())

    @cached_property
    def at_least(self) -> tuple[int, ...]:
        """``at_least[n]``: the nodes with n or more cards, for n from 0 to ``width`` + 1."""
        return tuple(bitset(self.gpus >= count) for count in range(self.width + 2))

    @cached_property
    def model_of(self) -> tuple[str, ...]:
        """The model of each node."""
        return tuple(node.model for node in self.nodes)

    def of_model(self, models: tuple[str, ...]) -> int:
        """Nodes of one of ``models``; all nodes where it is empty."""
        return self._memo("model", models, lambda node: not models or node.model in models)

    def with_memory(self, group: Group, mib: int) -> int:
        """Nodes whose cards have the memory that ``group`` asks for (a slice of ``mib``, or a whole card)."""
        if group.share:
            return self._memo("slice", mib, lambda node: node.usable_mib >= mib)
        return self._memo("vram", group.vram_mib, lambda node: node.vram_mib >= group.vram_mib)

    def with_labels(self, selector: tuple[tuple[str, str], ...]) -> int:
        """Nodes that carry every label of ``selector``."""
        return self._memo("labels", selector, lambda node: set(selector) <= set(node.labels))

    def tolerated(self, tolerations: tuple[str, ...]) -> int:
        """Nodes all of whose taints are in ``tolerations``."""
        return self._memo("taints", tolerations, lambda node: set(node.taints) <= set(tolerations))

    def models_of(self, nodes: int) -> tuple[str, ...]:
        """The models found on a set of nodes, by the lowest name that has each."""
        on = {model: found & -found for model in self.cards if (found := self.of_model((model,)) & nodes)}
        return tuple(sorted(on, key=on.__getitem__))

    def domains(self, level: Level) -> tuple[int, ...]:
        """The domains of a topology level as sets of nodes, by the lowest name in each."""
        found = self._domains.get(level)
        if found is None:
            domains: dict[str, int] = {}
            for bit, node in zip(self.bits, self.nodes, strict=True):
                name = node.domain(level)
                domains[name] = domains.get(name, 0) | bit
            found = self._domains[level] = tuple(domains.values())
        return found

    def named(self, names: Iterable[str]) -> int:
        """The nodes of these names that exist."""
        return bitset_of(self.index[name] for name in names if name in self.index)

    def _memo(self, kind: str, key: object, test: Callable[[Node], bool]) -> int:
        found = self._having.get((kind, key))
        if found is None:
            found = bitset(np.fromiter((test(node) for node in self.nodes), np.bool_, len(self.nodes)))
            self._having[kind, key] = found
        return found
