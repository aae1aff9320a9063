"""capacity: teams below their guaranteed share first, by used ÷ guaranteed; then the rest as under fair."""

from scheduler.engine.accounts import Accounts
from scheduler.engine.snapshot import Lane


def capacity(lane: Lane, accounts: Accounts) -> tuple[int, float]:
    """(0, used ÷ guaranteed) below the guaranteed share of the models the lane may use, (1, fair standing) above."""
    share = accounts.guaranteed_share(lane)
    if share is not None and share < 1:
        return (0, share)
    return (1, accounts.fair_standing(lane.team))
