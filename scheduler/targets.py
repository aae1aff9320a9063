"""Which cluster a submission goes to, as `jobs.submission` wants to know it."""

from __future__ import annotations

from jobs.submission import Target
from scheduler.inventory.selectors import cluster_for
from scheduler.policies import policy_of
from teams.models import Team, User


def target_for(*, user: User, team: Team, cluster: str | None = None) -> Target:
    """The cluster named, or the default one of the team. Raises NotFound, Forbidden where it is closed to the team."""
    found = cluster_for(user, team, cluster)
    limit = policy_of(found).backpressure.max_pending_per_team
    return Target(found.pk, found.slug, found.tick_group, limit)
