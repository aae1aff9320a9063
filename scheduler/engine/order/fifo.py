"""fifo: one line, by submission."""

from scheduler.engine.accounts import Accounts
from scheduler.engine.snapshot import Lane


def fifo(_lane: Lane, _accounts: Accounts) -> tuple[int, float]:
    """The same for all, so that submission decides."""
    return (0, 0.0)


def one_line(_lane: Lane, _accounts: Accounts) -> None:
    """All lanes stand in one line."""
