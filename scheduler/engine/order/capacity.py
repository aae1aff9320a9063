"""capacity: teams below their guaranteed share first, by used ÷ guaranteed; then the rest as under fair."""

from scheduler.engine.accounts import Accounts
from scheduler.engine.snapshot import Lane


def capacity(lane: Lane, accounts: Accounts) -> tuple[int, float]:
    """(0, used ÷ guaranteed) below the guaranteed share of the models the lane may use, (1, fair standing) above."""
    share = accounts.guaranteed_share(lane)
    if share is not None and share < 1:
        return (0, share)
    return (1, accounts.fair_standing(lane.team))


def one_per_share(lane: Lane, accounts: Accounts) -> tuple[int, tuple[int, ...]]:
    """The lanes of a team stand alike whose models have the same guaranteed share."""
    share = accounts.guaranteed(lane.team, lane.fit.models)
    return lane.team, () if share is None else share.slots
