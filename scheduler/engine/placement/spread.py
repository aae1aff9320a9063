"""Spread: the node with the most free cards, the card with the most memory left. Evens out load and heat."""

from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.strategy import Want, emptiest_shared, free_card, most_free


class Spread:
    """See the module."""

    spreads = True

    def choose_node(self, ledger: Ledger, want: Want, opened: int) -> int:
        """The node with the most free cards."""
        return most_free(ledger, want)

    def choose_card(self, ledger: Ledger, want: Want, opened: int) -> tuple[int, int] | None:
        """A free card of the node with the most, else the shared card with the most memory left."""
        return free_card(ledger, most_free(ledger, want)) or emptiest_shared(ledger, want)
