"""Claims: cards kept for a job while those who hold them leave."""

from typing import NamedTuple

from scheduler.engine.cluster import bitset_of
from scheduler.engine.demand import Shape
from scheduler.engine.ledger import Ledger
from scheduler.engine.plan import Piece


class Where(NamedTuple):
    """A piece against an inventory: node by position, and the host resources of its group."""

    node: int
    piece: Piece
    cpus_milli: int
    memory_mib: int


def locate(ledger: Ledger, shape: Shape, pieces: tuple[Piece, ...]) -> list[Where] | None:
    """The pieces on this inventory; None where one of their nodes or cards is no longer there."""
    groups = {group.name: group for group in shape.groups}
    found = []
    for piece in pieces:
        node = ledger.inventory.index.get(piece.node)
        if node is None or any(gpu >= ledger.inventory.nodes[node].gpus for gpu in piece.gpus):
            return None
        group = groups[piece.group]
        found.append(Where(node, piece, group.cpus_milli, group.memory_mib))
    return found


def in_service(ledger: Ledger, spots: list[Where]) -> bool:
    """Whether every card is one that new work may be put on."""
    return all(
        ledger.ready >> spot.node & 1 and all(ledger.working[spot.node] >> gpu & 1 for gpu in spot.piece.gpus)
        for spot in spots
    )


def vacant(ledger: Ledger, spots: list[Where]) -> bool:
    """Whether the job could be put there right now."""
    cpus: dict[int, int] = {}
    memory: dict[int, int] = {}
    slices: dict[tuple[int, int], int] = {}
    for spot in spots:
        piece = spot.piece
        if piece.mib:
            for gpu in piece.gpus:
                slices[spot.node, gpu] = slices.get((spot.node, gpu), 0) + piece.mib
        elif bitset_of(piece.gpus) & ~ledger.free[spot.node]:
            return False
        cpus[spot.node] = cpus.get(spot.node, 0) + spot.cpus_milli
        memory[spot.node] = memory.get(spot.node, 0) + spot.memory_mib
    return (
        all(ledger.slice_left(node, gpu) >= mib for (node, gpu), mib in slices.items())
        and all(ledger.cpus[node] >= need for node, need in cpus.items())
        and all(ledger.memory[node] >= need for node, need in memory.items())
    )


def hold(ledger: Ledger, spots: list[Where]) -> None:
    """Keep the cards from others: those that are free now, and the memory, or all of it, of those in shared use."""
    for spot in spots:
        piece = spot.piece
        ledger.take_host(spot.node, spot.cpus_milli, spot.memory_mib)
        if not piece.mib:
            ledger.hold_cards(spot.node, piece.gpus)
        for gpu in piece.gpus:
            shared = ledger.card(spot.node, gpu) in ledger.shared
            if shared and not piece.mib:
                ledger.take_slice(spot.node, gpu, ledger.shared[ledger.card(spot.node, gpu)])
            elif shared or (piece.mib and ledger.free[spot.node] >> gpu & 1):
                ledger.take_slice(spot.node, gpu, piece.mib)


def release(ledger: Ledger, spots: list[Where]) -> None:
    """Free what a running job holds there."""
    for spot in spots:
        piece = spot.piece
        ledger.take_host(spot.node, -spot.cpus_milli, -spot.memory_mib)
        if piece.mib:
            for gpu in piece.gpus:
                ledger.give_slice(spot.node, gpu, piece.mib)
        else:
            ledger.give_cards(spot.node, piece.gpus)
