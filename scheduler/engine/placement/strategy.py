"""What a placement strategy answers, and the searches that strategies share."""

from typing import Protocol

from scheduler.engine.cluster import members
from scheduler.engine.ledger import Ledger


class Want:
    """What one replica needs, and the nodes it may still use.

    ``caps`` bounds, per node, how many more free cards the job may take there: the rest is reserved for others.

    ``nodes`` shrinks as nodes turn out to lack CPUs or memory: within one decision nothing is given back, so a node
    that failed once need not be asked again. ``packs`` is whether hybrid packs this job; ``remaining`` counts the
    replicas of the group still to be placed.
    """

    __slots__ = ("caps", "cpus_milli", "gpus", "memory_mib", "mib", "nodes", "packs", "remaining")

    def __init__(self, gpus: int, mib: int, cpus_milli: int, memory_mib: int, nodes: int, packs: bool) -> None:
        self.gpus = gpus
        self.mib = mib
        self.cpus_milli = cpus_milli
        self.memory_mib = memory_mib
        self.nodes = nodes
        self.packs = packs
        self.remaining = 1
        self.caps: dict[int, int] = {}

    def spend(self, node: int, cards: int) -> None:
        """Note that free cards of a node are taken."""
        if node in self.caps:
            self.caps[node] -= cards


class Strategy(Protocol):
    """Chooses among nodes that fit; equal choices fall to the lowest name.

    ``spreads`` is whether it prefers what is empty, for the choice among topology domains too.
    """

    spreads: bool

    def choose_node(self, ledger: Ledger, want: Want, opened: int) -> int:
        """The node for one replica of whole cards, -1 if none fits; ``opened`` are those its job has already used."""

    def choose_card(self, ledger: Ledger, want: Want, opened: int) -> tuple[int, int] | None:
        """The (node, card) for a replica of one slice, None if none fits."""


def with_host(ledger: Ledger, candidates: int, want: Want, *, opening: bool = True) -> int:
    """The lowest of ``candidates`` with the CPUs and memory wanted, -1 if none has; forgets those without.

    ``opening``: free cards are wanted, so that those reserved for others do not count.
    """
    while candidates:
        low = candidates & -candidates
        node = low.bit_length() - 1
        if ledger.cpus[node] >= want.cpus_milli and ledger.memory[node] >= want.memory_mib:
            if not opening or not want.caps or want.caps.get(node, want.gpus) >= want.gpus:
                return node
        else:
            want.nodes &= ~low
        candidates ^= low
    return -1


def fewest_free(ledger: Ledger, want: Want, within: int = -1) -> int:
    """The node with the fewest free cards that fits, among ``within``; -1 if none does."""
    for held in ledger.by_free[want.gpus :]:
        found = held & want.nodes & within
        if found:
            node = with_host(ledger, found, want)
            if node >= 0:
                return node
    return -1


def without_cards(ledger: Ledger, want: Want) -> int:
    """A node without any cards for a replica that wants none, the one with the fewest CPUs free; -1 if none has room.

    Work that wants no cards keeps off the CPUs beside cards where it can.
    """
    best = -1
    for node in members(want.nodes & ~ledger.inventory.at_least[1]):
        fits = ledger.cpus[node] >= want.cpus_milli and ledger.memory[node] >= want.memory_mib
        if fits and (best < 0 or ledger.cpus[node] < ledger.cpus[best]):
            best = node
    return best


def most_free(ledger: Ledger, want: Want, within: int = -1) -> int:
    """The node with the most free cards that fits, among ``within``; -1 if none does."""
    by_free = ledger.by_free
    for count in range(len(by_free) - 1, want.gpus - 1, -1):
        found = by_free[count] & want.nodes & within
        if found:
            node = with_host(ledger, found, want)
            if node >= 0:
                return node
    return -1


def fullest_shared(ledger: Ledger, want: Want) -> tuple[int, int] | None:
    """The shared card with the least memory left that still holds the slice."""
    for left in ledger.fitting_lefts(want.mib):
        card = _card_with(ledger, want, left)
        if card is not None:
            return card
    return None


def emptiest_shared(ledger: Ledger, want: Want) -> tuple[int, int] | None:
    """The shared card with the most memory left that holds the slice."""
    for left in reversed(ledger.fitting_lefts(want.mib)):
        card = _card_with(ledger, want, left)
        if card is not None:
            return card
    return None


def _card_with(ledger: Ledger, want: Want, left: int) -> tuple[int, int] | None:
    candidates = ledger.by_left[left] & want.nodes
    while candidates:
        node = with_host(ledger, candidates, want, opening=False)
        if node < 0:
            return None
        gpu = ledger.shared_gpu(node, left)
        if gpu >= 0:
            return node, gpu
        candidates &= want.nodes & ~ledger.inventory.bits[node]
    return None


def free_card(ledger: Ledger, node: int) -> tuple[int, int] | None:
    """The lowest free card of a node, None for no node (-1)."""
    if node < 0:
        return None
    cards = ledger.free[node]
    return node, (cards & -cards).bit_length() - 1


def several_slices(ledger: Ledger, want: Want) -> tuple[int, tuple[int, ...]] | None:
    """A node with ``want.gpus`` cards that each hold the slice, the fullest such cards; None if there is none.

    While more replicas follow, the emptiest cards are taken: each replica needs distinct ones, and a card filled
    early would leave too few for the last. Looks at every node: slices of several cards are rare.
    """
    best: tuple[int, int] | None = None
    chosen: tuple[int, ...] = ()
    for node in members(want.nodes & ledger.inventory.at_least[min(want.gpus, ledger.inventory.width + 1)]):
        if node in want.caps:
            continue  # some of its cards are reserved
        if ledger.cpus[node] < want.cpus_milli or ledger.memory[node] < want.memory_mib:
            continue
        lefts = sorted(
            (left, gpu) for gpu in range(ledger.inventory.width) if (left := ledger.slice_left(node, gpu)) >= want.mib
        )
        if want.remaining > 1:
            lefts.sort(key=lambda each: (-each[0], each[1]))
        score = (sum(left for left, _ in lefts[: want.gpus]), node)
        if len(lefts) >= want.gpus and (best is None or score < best):
            best, chosen = score, tuple(sorted(gpu for _, gpu in lefts[: want.gpus]))
    return None if best is None else (best[1], chosen)
