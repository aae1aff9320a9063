"""Binpack: the node with the fewest free cards that fits, the fullest card that fits. Keeps whole nodes whole."""

from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.strategy import Want, fewest_free, free_card, fullest_shared


class Binpack:
    """See the module."""

    spreads = False

    def choose_node(self, ledger: Ledger, want: Want, opened: int) -> int:
        """The node with the fewest free cards that fits."""
        return fewest_free(ledger, want)

    def choose_card(self, ledger: Ledger, want: Want, opened: int) -> tuple[int, int] | None:
        """The fullest shared card that fits, else a free card of the node with the fewest."""
        return fullest_shared(ledger, want) or free_card(ledger, fewest_free(ledger, want))
