"""The tree of teams as somebody sees it, with who is in it and what it uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, Sum

from jobs.models import LIVE_STATES, Job
from jobs.states import JobState
from teams.models import Membership, Team, User
from teams.selectors import live_teams, standing_of


@dataclass(slots=True)
class Branch:
    """A team in the tree: how deep it lies, its members, and what its jobs and those below it hold and ask for."""

    team: Team
    depth: int
    visible: bool
    members: int = 0
    running: int = 0
    gpus: int = 0
    waiting: int = 0


def tree_for(user: User, now: datetime) -> list[Branch]:
    """The teams that ``user`` sees and, by name alone, those above them, in the order of a tree; five queries."""
    standing = standing_of(user)
    teams = {team.pk: team for team in live_teams()}
    seen = set(teams) if standing.admin else (standing.member | standing.lead) & set(teams)
    shown = set(seen)
    for pk in seen:
        above = teams[pk].parent_id
        while above is not None and above in teams and above not in shown:
            shown.add(above)
            above = teams[above].parent_id
    branches = {pk: Branch(teams[pk], 0, pk in seen) for pk in shown}
    _count(branches, now)
    return list(_walk(branches))


def _count(branches: dict[int, Branch], now: datetime) -> None:
    current = Q(until=None) | Q(until__gt=now)
    for team, members in Membership.objects.filter(current).values_list("team_id").annotate(members=Count("id")):
        if team in branches:
            branches[team].members = members
    active = Q(state__in=LIVE_STATES)
    rows = (
        Job.objects.filter(state__in=(*LIVE_STATES, JobState.QUEUED.value))
        .order_by()
        .values("team_id")
        .annotate(
            running=Count("id", filter=active), cards=Sum("gpus", filter=active), waiting=Count("id", filter=~active)
        )
    )
    for row in rows:
        at: int | None = row["team_id"]
        while at is not None and at in branches:
            branch = branches[at]
            branch.running += row["running"]
            branch.gpus += row["cards"] or 0
            branch.waiting += row["waiting"]
            at = branch.team.parent_id


def _walk(branches: dict[int, Branch], parent: int | None = None, depth: int = 0) -> Iterable[Branch]:
    here = [branch for branch in branches.values() if branch.team.parent_id == parent]
    for branch in sorted(here, key=lambda branch: branch.team.slug):
        branch.depth = depth
        yield branch
        yield from _walk(branches, branch.team.pk, depth + 1)


def members_of(team: Team) -> list[Membership]:
    """Who is in a team, leads first; one query."""
    return list(team.memberships.select_related("user").order_by("role", "user__username"))
