"""Reading teams and memberships."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from teams.models import Membership, Revision, Role, Team, User


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person is in the tree of teams: ``member`` of these, ``lead`` of these (with all below), admin or not."""

    admin: bool = False
    member: frozenset[int] = frozenset()
    lead: frozenset[int] = frozenset()


NOBODY = Standing()


def live_teams() -> QuerySet[Team]:
    """The teams that are not archived, by slug."""
    return Team.objects.filter(archived_at=None).order_by("slug")


def revision() -> int:
    """The number of the last change of any team or quota."""
    return Revision.objects.values_list("number", flat=True).first() or 0


def ancestors(team: Team) -> list[Team]:
    """The team itself and those above it, itself first."""
    line = [team]
    while (parent := line[-1].parent) is not None:
        line.append(parent)
    return line


def with_descendants(ids: Iterable[int]) -> frozenset[int]:
    """The ids of these teams and of all below them, archived ones too."""
    children: dict[int | None, list[int]] = {}
    for team, parent in Team.objects.values_list("id", "parent_id"):
        children.setdefault(parent, []).append(team)
    found: set[int] = set()
    left = list(ids)
    while left:
        team = left.pop()
        if team not in found:
            found.add(team)
            left += children.get(team, ())
    return frozenset(found)


def with_ancestors(ids: Iterable[int]) -> frozenset[int]:
    """The ids of these teams and of all above them; one query."""
    parents = dict(Team.objects.values_list("id", "parent_id"))
    found: set[int] = set()
    for team in ids:
        at: int | None = team
        while at is not None and at not in found:
            found.add(at)
            at = parents.get(at)
    return frozenset(found)


def standing_of(user: User | AnonymousUser, now: datetime | None = None) -> Standing:
    """What ``user`` is at this moment, in two queries; an inactive or anonymous one is nobody."""
    if not isinstance(user, User) or not user.is_active:
        return NOBODY
    current = Q(until=None) | Q(until__gt=now or timezone.now())
    rows = Membership.objects.filter(current, user=user).values_list("team_id", "role")
    leads = [team for team, role in rows if role == Role.LEAD]
    return Standing(
        admin=user.is_superuser,
        member=frozenset(team for team, _ in rows),
        lead=with_descendants(leads) if leads else frozenset(),
    )


def teams_of(user: User) -> QuerySet[Team]:
    """The live teams that ``user`` may submit to: those it is a member of or leads; all for an admin."""
    standing = standing_of(user)
    return live_teams() if standing.admin else live_teams().filter(id__in=standing.member | standing.lead)
