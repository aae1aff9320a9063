"""Who may do what with teams: pure questions about a standing, and their names for `user.has_perm(name, team)`."""

from __future__ import annotations

import rules
from django.contrib.auth.models import AnonymousUser

from teams.models import Team, User
from teams.selectors import Standing, standing_of


def may_see_team(standing: Standing, team_id: int) -> bool:
    """Members, leads above it and admins see what goes on in a team."""
    return standing.admin or team_id in standing.member or team_id in standing.lead


def may_lead_team(standing: Standing, team_id: int) -> bool:
    """Leads of the team, or of one above it, and admins look after its members and jobs."""
    return standing.admin or team_id in standing.lead


@rules.predicate
def is_admin(user: User | AnonymousUser) -> bool:
    """Whether the user runs the platform."""
    return bool(user.is_active and user.is_superuser)


@rules.predicate
def sees_team(user: User | AnonymousUser, team: Team) -> bool:
    """Whether the user may see what goes on in the team."""
    return may_see_team(standing_of(user), team.pk)


@rules.predicate
def leads_team(user: User | AnonymousUser, team: Team) -> bool:
    """Whether the user looks after the team."""
    return may_lead_team(standing_of(user), team.pk)


rules.add_perm("teams.create", is_admin)
rules.add_perm("teams.see", sees_team)
rules.add_perm("teams.manage_members", leads_team)
rules.add_perm("teams.change", is_admin)
rules.add_perm("teams.submit_to", sees_team)
