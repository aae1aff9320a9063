"""The dashboard: what runs, what waits and why, how full and how scattered the clusters are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from django.utils import timezone

from frontend import live, words
from frontend.selectors.numbers import summed
from frontend.selectors.recent import recent_events
from frontend.views.page import PageRequest, page, show

EVENTS = 12


@page
def dashboard(request: PageRequest) -> HttpResponse:
    """All clusters, or the one that is named in the address."""
    now = timezone.now()
    live.watch()
    found = live.numbers(now)
    chosen = request.GET.get("cluster", "")
    clusters = found["clusters"]
    shown = {chosen: clusters[chosen]} if chosen in clusters else clusters
    whole = summed(shown.values())
    past = live.summed_history(shown)
    return show(
        request,
        "pages/dashboard.html",
        {
            "at": now,
            "clusters": list(shown.values()),
            "all_clusters": list(clusters.values()),
            "chosen": chosen if chosen in clusters else "",
            "whole": whole,
            "oldest": _moment(whole["jobs"]["oldest"]),
            "running": sum(whole["jobs"][state] for state in ("running", "starting", "stopping")),
            "waiting": whole["jobs"]["queued"],
            "reasons": reason_rows(whole),
            "sparks": {name: [sample[name] for sample in past] for name in ("running", "waiting", "cards", "free")},
            "history": chart(past, whole["cards"]["total"]),
            "histogram": histogram(whole["cards"]["by_free"]),
            "events": recent_events(request.user, EVENTS, chosen if chosen in clusters else ""),
        },
    )


def _moment(stamp: float | None) -> datetime | None:
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)


def reason_rows(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Reasons with their look and their share of all that wait."""
    total = sum(row["jobs"] for row in whole["reasons"]) or 1
    return [
        {
            "code": row["code"],
            "look": words.look(words.REASONS, row["code"]),
            "jobs": row["jobs"],
            "share": row["jobs"] / total,
        }
        for row in whole["reasons"]
    ]


def histogram(by_free: list[int]) -> list[dict[str, Any]]:
    """Nodes by how many of their cards are free, each with its height from 0 to 1."""
    most = max(by_free, default=0) or 1
    return [{"free": free, "nodes": nodes, "share": nodes / most} for free, nodes in enumerate(by_free)]


def chart(past: list[dict[str, float]], total: int) -> dict[str, Any]:
    """The last hour as columns for the browser's chart."""
    names = ("at", "cards", "running", "waiting")
    return {**{name: [round(sample[name], 2) for sample in past] for name in names}, "total": total}
