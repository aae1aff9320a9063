"""Hybrid: small jobs pack, large jobs and gangs take wholly free nodes, as few as possible."""

from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.strategy import (
    Want,
    fewest_free,
    free_card,
    fullest_shared,
    with_host,
)


class Hybrid:
    """See the module."""

    spreads = False

    def choose_node(self, ledger: Ledger, want: Want, opened: int) -> int:
        """Packs a small job; else a node the job has opened, else a wholly free one, else packs."""
        if want.packs:
            return fewest_free(ledger, want)
        node = fewest_free(ledger, want, opened) if opened else -1
        if node < 0:
            node = _whole_node(ledger, want)
        return node if node >= 0 else fewest_free(ledger, want)

    def choose_card(self, ledger: Ledger, want: Want, opened: int) -> tuple[int, int] | None:
        """Slices always pack, so that whole cards stay whole."""
        return fullest_shared(ledger, want) or free_card(ledger, fewest_free(ledger, want))


def _whole_node(ledger: Ledger, want: Want) -> int:
    """The smallest wholly free node that takes all remaining replicas, else the largest; -1 if there is none."""
    whole = ledger.untouched & want.nodes
    if not whole:
        return -1
    counts = range(want.gpus, len(ledger.by_free))
    enough = [count for count in counts if count >= want.remaining * want.gpus]
    short = [count for count in reversed(counts) if count < want.remaining * want.gpus]
    for count in enough + short:
        found = ledger.by_free[count] & whole
        if found:
            node = with_host(ledger, found, want)
            if node >= 0:
                return node
    return -1
