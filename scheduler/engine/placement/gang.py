"""Placing a whole job: every replica of every group, or nothing at all."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from scheduler.engine.demand import Group
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, GroupFit
from scheduler.engine.placement.strategy import Strategy, Want, several_slices, without_cards
from scheduler.engine.placement.topology import Spread, areas
from scheduler.engine.plan import Piece


class Placed(NamedTuple):
    """One replica put down on the ledger; ``node`` by position."""

    each: GroupFit
    replica: int
    node: int
    gpus: tuple[int, ...]


NO_CAPS: Mapping[int, int] = MappingProxyType({})


def place(
    ledger: Ledger, fit: Fit, strategy: Strategy, allowed: int, caps: Mapping[int, int] = NO_CAPS
) -> list[Placed] | None:
    """Put a job on ready nodes of ``allowed`` and return where; None, with the ledger as it was, if it does not fit.

    A gang stays on one model while one has room for it, and off the nodes it should avoid while the others do. Groups
    that share nodes are tried the most demanding first, then the least choosy last. ``caps`` bounds how many free
    cards of a node it may take.
    """
    nodes = allowed & ledger.ready & ~fit.excluded
    topology = fit.shape.topology
    together = topology.require is not None or topology.prefer is not None
    for choice in _choices(fit, nodes):
        for area in areas(ledger, fit, choice, emptiest_first=strategy.spreads) if together else (choice,):
            for groups in _orders(fit):
                spread = Spread(ledger.inventory, topology, fit.shape.replicas) if topology.spread else None
                placed = _place_groups(ledger, groups, strategy, area, spread, caps)
                if placed is not None:
                    return placed
    return None


def undo(ledger: Ledger, placed: list[Placed]) -> None:
    """Take a placing back."""
    for each, _, node, gpus in reversed(placed):
        if each.mib:
            for gpu in gpus:
                ledger.give_slice(node, gpu, each.mib)
        else:
            ledger.give_cards(node, gpus)
        ledger.take_host(node, -each.group.cpus_milli, -each.group.memory_mib)


def pieces(ledger: Ledger, groups: tuple[Group, ...], placed: list[Placed]) -> tuple[Piece, ...]:
    """The placing as the plan tells it, by group and replica as the job lists them."""
    names = ledger.inventory.names
    if placed[0].each is not placed[-1].each:
        listed = {group.name: place for place, group in enumerate(groups)}
        placed = sorted(placed, key=lambda put: (listed[put.each.group.name], put.replica))
    return tuple(Piece(each.group.name, replica, names[node], gpus, each.mib) for each, replica, node, gpus in placed)


def _choices(fit: Fit, nodes: int) -> Iterator[int]:
    """Sets of nodes to try in turn, the preferred first."""
    preferred = nodes & ~fit.avoided
    for choice in (preferred, nodes) if preferred != nodes else (nodes,):
        if not fit.solo and len(fit.models) > 1:
            for model in fit.models:
                yield choice & fit.inventory.of_model((model,))
        yield choice


def _orders(fit: Fit) -> Iterator[tuple[GroupFit, ...]]:
    yield fit.groups
    if len(fit.groups) > 1:
        choosy_first = tuple(sorted(fit.groups, key=lambda each: each.nodes.bit_count()))
        if choosy_first != fit.groups:
            yield choosy_first


def _place_groups(
    ledger: Ledger,
    groups: tuple[GroupFit, ...],
    strategy: Strategy,
    nodes: int,
    spread: Spread | None,
    caps: Mapping[int, int],
) -> list[Placed] | None:
    placed: list[Placed] = []
    opened = 0
    left = dict(caps) if caps else {}
    for each in groups:
        group = each.group
        want = Want(group.gpus, each.mib, group.cpus_milli, group.memory_mib, each.nodes & nodes, each.packs)
        want.caps = left
        for replica in range(group.replicas):
            want.remaining = group.replicas - replica
            if spread is None:
                spot = _spot(ledger, want, strategy, opened)
            else:
                spot = _apart(ledger, want, strategy, opened, spread)
            if spot is None:
                undo(ledger, placed)
                return None
            node, gpus = spot
            ledger.take_host(node, group.cpus_milli, group.memory_mib)
            placed.append(Placed(each, replica, node, gpus))
            opened |= ledger.inventory.bits[node]
    return placed


def _apart(
    ledger: Ledger, want: Want, strategy: Strategy, opened: int, spread: Spread
) -> tuple[int, tuple[int, ...]] | None:
    """Find and hold cards for one replica in the domain with the fewest of its job."""
    nodes, spot = want.nodes, None
    for tier in spread.tiers():
        want.nodes = nodes & tier
        spot = _spot(ledger, want, strategy, opened)
        nodes &= ~tier | want.nodes
        if spot is not None:
            spread.note(spot[0])
            break
    want.nodes = nodes
    return spot


def _spot(ledger: Ledger, want: Want, strategy: Strategy, opened: int) -> tuple[int, tuple[int, ...]] | None:
    """Find and hold cards for one replica."""
    if not want.mib:
        node = without_cards(ledger, want) if not want.gpus else -1
        if node < 0 and want.gpus < len(ledger.by_free):
            node = strategy.choose_node(ledger, want, opened)
        if node < 0:
            return None
        if want.caps:
            want.spend(node, want.gpus)
        return node, ledger.take_cards(node, want.gpus)
    if want.gpus == 1:
        card = strategy.choose_card(ledger, want, opened)
        if card is None:
            return None
        if want.caps and ledger.free[card[0]] >> card[1] & 1:
            want.spend(card[0], 1)
        ledger.take_slice(*card, want.mib)
        return card[0], (card[1],)
    several = several_slices(ledger, want)
    if several is not None:
        for gpu in several[1]:
            ledger.take_slice(several[0], gpu, want.mib)
    return several
