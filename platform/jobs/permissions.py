"""Who may do what with a job: pure questions about a standing, and their names for `user.has_perm(name, job)`."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from rules.permissions import add_perm
from rules.predicates import predicate

from jobs.models import Job
from jobs.states import Actor
from teams.models import User
from teams.permissions import may_lead_team, may_see_team
from teams.selectors import Standing, standing_of


def may_see_job(standing: Standing, team_id: int) -> bool:
    """Whoever sees the team sees its jobs; who has left it does not, not even the own ones."""
    return may_see_team(standing, team_id)


def acts_as(standing: Standing, user_id: int, *, team_id: int, owner_id: int) -> Actor | None:
    """As what a person may change a job: its owner (while in the team), a lead, an admin; None: not at all."""
    if user_id == owner_id and may_see_team(standing, team_id):
        return Actor.USER
    if may_lead_team(standing, team_id):
        return Actor.ADMIN if standing.admin else Actor.LEAD
    return None


def sees_job(user: User | AnonymousUser, job: Job) -> bool:
    """Whether the user may see the job."""
    return may_see_job(standing_of(user), job.team_id)


def changes_job(user: User | AnonymousUser, job: Job) -> bool:
    """Whether the user may cancel, hold or release the job."""
    return user.pk is not None and (
        acts_as(standing_of(user), user.pk, team_id=job.team_id, owner_id=job.user_id) is not None
    )


add_perm("jobs.see", predicate(sees_job))
add_perm("jobs.change", predicate(changes_job))
