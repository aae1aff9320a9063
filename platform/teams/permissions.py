"""Who may do what with teams: pure questions about a standing, and their names for `user.has_perm(name, team)`."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from rules.permissions import add_perm
from rules.predicates import predicate

from teams.models import Team, User
from teams.selectors import Standing, standing_of


def may_see_team(standing: Standing, team_id: int) -> bool:
    """Members, leads above it and admins see what goes on in a team."""
    return standing.admin or team_id in standing.member or team_id in standing.lead


def may_lead_team(standing: Standing, team_id: int) -> bool:
    """Leads of the team, or of one above it, and admins look after its members and jobs."""
    return standing.admin or team_id in standing.lead


def is_admin(user: User | AnonymousUser) -> bool:
    """Whether the user runs the platform."""
    return bool(user.is_active and user.is_superuser)


def sees_team(user: User | AnonymousUser, team: Team) -> bool:
    """Whether the user may see what goes on in the team."""
    return may_see_team(standing_of(user), team.pk)


def leads_team(user: User | AnonymousUser, team: Team) -> bool:
    """Whether the user looks after the team."""
    return may_lead_team(standing_of(user), team.pk)


add_perm("teams.create", predicate(is_admin))
add_perm("teams.see", predicate(sees_team))
add_perm("teams.manage_members", predicate(leads_team))
add_perm("teams.change", predicate(is_admin))
add_perm("teams.submit_to", predicate(sees_team))
