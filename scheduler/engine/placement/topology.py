"""Topology: which parts of the cluster a job may lie in together, and how its replicas are evened out.

``require`` and ``prefer`` narrow the nodes to one domain (a node, an NVLink domain, a rack, a switch); ``spread`` keeps
the replicas of a job apart while they are placed.
"""

import math
from collections.abc import Iterator

from scheduler.engine.cluster import Inventory
from scheduler.engine.demand import Level, Topology
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit

WIDER = (Level.NODE, Level.NVLINK, Level.RACK, Level.SWITCH)
"""From the narrowest level to the widest."""


def areas(ledger: Ledger, fit: Fit, nodes: int, *, emptiest_first: bool) -> Iterator[int]:
    """Sets of nodes that keep what the job requires, the nearest to what it prefers first.

    Of the domains of one level those with the least free come first, or with ``emptiest_first`` those with the most.
    A preference that no single domain meets widens level by level, then to as few domains as hold the job.
    """
    topology = fit.shape.topology
    if topology.require is None:
        yield from _preferred(ledger, fit, nodes, topology.prefer, emptiest_first)
        return
    for domain in _domains(ledger, fit, nodes, topology.require, emptiest_first):
        yield from _preferred(ledger, fit, domain, topology.prefer, emptiest_first)


def _preferred(ledger: Ledger, fit: Fit, nodes: int, level: Level | None, emptiest_first: bool) -> Iterator[int]:
    if level is not None:
        for wider in WIDER[WIDER.index(level) :]:
            yield from _domains(ledger, fit, nodes, wider, emptiest_first)
        yield from _few_domains(ledger, fit, nodes, level)
    yield nodes


def _domains(ledger: Ledger, fit: Fit, nodes: int, level: Level, emptiest_first: bool) -> Iterator[int]:
    """The domains of a level with enough free cards for the job (a slice may find room where none is free)."""
    need = 0 if fit.slices else fit.cards
    found = [domain & nodes for domain in fit.inventory.domains(level) if domain & nodes]
    ranked = [(ledger.free_count(domain), position) for position, domain in enumerate(found)]
    ranked.sort(key=lambda each: (-each[0] if emptiest_first else each[0], each[1]))
    yield from (found[position] for free, position in ranked if free >= need)


def _few_domains(ledger: Ledger, fit: Fit, nodes: int, level: Level) -> Iterator[int]:
    """Growing unions of the domains with the most free cards, from the first that has enough."""
    found = [domain & nodes for domain in fit.inventory.domains(level) if domain & nodes]
    union = 0
    for domain in sorted(found, key=ledger.free_count, reverse=True):
        union |= domain
        if fit.slices or ledger.free_count(union) >= fit.cards:
            yield union


class Spread:
    """Keeps count of the replicas per domain while a job with ``topology.spread`` is placed."""

    def __init__(self, inventory: Inventory, topology: Topology, replicas: int) -> None:
        assert topology.spread is not None
        self._domains = inventory.domains(topology.spread)
        self._counts = [0] * len(self._domains)
        share = topology.max_per_domain
        self._most = replicas if share is None else max(1, math.floor(share * replicas + 1e-9))

    def tiers(self) -> Iterator[int]:
        """Sets of nodes for the next replica: the domains with the fewest replicas first, none that is full."""
        for count in sorted(set(self._counts)):
            if count < self._most:
                tier = 0
                for domain, here in zip(self._domains, self._counts, strict=True):
                    tier |= domain if here == count else 0
                yield tier

    def note(self, node: int) -> None:
        """Count a replica placed on a node."""
        for position, domain in enumerate(self._domains):
            if domain >> node & 1:
                self._counts[position] += 1
                return
