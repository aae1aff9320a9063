"""What has happened, newest first."""

from __future__ import annotations

from django.http import HttpResponse

from frontend import words
from frontend.selectors.recent import visible_events
from frontend.views.page import PageRequest, page, show
from scheduler.inventory.models import Cluster
from teams.selectors import teams_of

PAGE = 100


@page
def event_list(request: PageRequest) -> HttpResponse:
    """Events of the jobs that one may see, filtered, a page at a time."""
    kind, team, cluster = (request.GET.get(name, "")[:63] for name in ("kind", "team", "cluster"))
    before = request.GET.get("before", "")
    events = visible_events(request.user)
    for value, field in ((kind, "kind"), (team, "job__team__slug"), (cluster, "job__cluster__slug")):
        if value:
            events = events.filter(**{field: value})
    if before.isascii() and before.isdigit() and len(before) < 19:
        events = events.filter(id__lt=int(before))
    rows = list(events[: PAGE + 1])
    return show(
        request,
        "pages/events.html",
        {
            "events": rows[:PAGE],
            "older": rows[PAGE - 1].pk if len(rows) > PAGE else None,
            "kinds": [(name, look.title) for name, look in words.EVENTS.items()],
            "kind": kind,
            "team": team,
            "cluster": cluster,
            "before": before,
            "teams": teams_of(request.user),
            "clusters": Cluster.objects.order_by("slug").only("slug", "name"),
        },
    )
