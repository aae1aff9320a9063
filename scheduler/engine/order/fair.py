"""fair: the team with the least decayed GPU time per weight first, cards held at this moment included."""

from scheduler.engine.accounts import Accounts
from scheduler.engine.snapshot import Lane


def fair(lane: Lane, accounts: Accounts) -> tuple[int, float]:
    """The standing of the lane's team."""
    return (0, accounts.fair_standing(lane.team))


def one_per_team(lane: Lane, _accounts: Accounts) -> int:
    """The lanes of a team stand alike."""
    return lane.team
