"""What has happened lately, as far as somebody may see it."""

from __future__ import annotations

from django.db.models import QuerySet

from jobs.models import JobEvent
from teams.models import User
from teams.selectors import standing_of


def visible_events(user: User) -> QuerySet[JobEvent]:
    """The events of the jobs that ``user`` may see, with job, team, cluster and person, newest first."""
    standing = standing_of(user)
    events = JobEvent.objects.select_related("job__team", "job__cluster", "job__user", "user").order_by("-id")
    return events if standing.admin else events.filter(job__team__in=standing.member | standing.lead)


def recent_events(user: User, count: int, cluster: str = "") -> list[JobEvent]:
    """The newest events, of one cluster or of all."""
    events = visible_events(user)
    return list((events.filter(job__cluster__slug=cluster) if cluster else events)[:count])
