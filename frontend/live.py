"""What is live: the numbers published once a second, their version, their short history, and who is told of what.

One process publishes; sockets hear "version n" and pull the latest, so a slow reader costs nothing. All of it can be
lost at any time: the rows are the truth, and whoever finds nothing published reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.core.cache import cache
from django.db.models import Count, Max
from django.utils import timezone

from frontend.selectors.gpumap import gpu_bytes
from frontend.selectors.numbers import cluster_numbers
from jobs.models import JobEvent
from scheduler.inventory.models import Cluster, Gpu, Node
from scheduler.models import LaneHold

GROUP: Final = "live"
NUMBERS, VERSION, HISTORY, SEEN, WATCHED = (
    f"live:{name}" for name in ("numbers", "version", "history", "seen", "watched")
)
FRESH_S = 3
HISTORY_STEP_S = 10
HISTORY_LENGTH = 360
JOBS_NAMED_MOST = 200
WATCHED_S = 90


def map_key(cluster_id: int) -> str:
    """Where a cluster's map is kept: a pair of its version and its bytes."""
    return f"live:map:{cluster_id}"


def numbers(now: datetime | None = None) -> dict[str, Any]:
    """The published numbers if they are fresh, else read anew."""
    now = now or timezone.now()
    found: dict[str, Any] | None = cache.get(NUMBERS)
    if found is not None and now.timestamp() - found["at"] <= FRESH_S:
        return found
    return refreshed(now)


def refreshed(now: datetime | None = None) -> dict[str, Any]:
    """The numbers of this moment, read anew."""
    found = cluster_numbers(now or timezone.now())
    cache.set(NUMBERS, found, FRESH_S)
    return found


def version() -> int:
    """The version published last; 0 before the first."""
    return int(cache.get(VERSION) or 0)


def history(slug: str) -> list[dict[str, float]]:
    """The last hour of a cluster, oldest first, a sample every ten seconds: ``held``, ``running``, ``waiting``, …"""
    found: list[dict[str, float]] = cache.get(f"{HISTORY}:{slug}") or []
    return found


def gpu_map(cluster_id: int) -> tuple[int, bytes]:
    """The version and the bytes of a cluster's map."""
    found: tuple[int, bytes] | None = cache.get(map_key(cluster_id))
    if found is None:
        found = (version(), gpu_bytes(cluster_id))
        cache.set(map_key(cluster_id), found, FRESH_S)
    return found


def watch() -> None:
    """Say that somebody looks: without that the numbers are read only for the history."""
    cache.set(WATCHED, 1, WATCHED_S)


def publish(now: datetime) -> dict[str, Any] | None:
    """Read what has changed since the last time, publish it, and tell the sockets; None where nothing is new.

    Called once a second from one place. Doubled or left out it does no harm.
    """
    before: dict[str, Any] = cache.get(SEEN) or {}
    seen, changed = _changes(before, now)
    sampled = now.timestamp() - before.get("sampled", 0.0) >= HISTORY_STEP_S
    news = seen["mark"] != before.get("mark")
    if not sampled and not (news and cache.get(WATCHED)):
        return None
    found = cluster_numbers(now)
    cache.set(NUMBERS, found, HISTORY_STEP_S * 3)
    if sampled:
        _remember(found)
        seen["sampled"] = now.timestamp()
    else:
        seen["sampled"] = before.get("sampled", 0.0)
    cache.set(SEEN, seen, None)
    number = _next_version()
    if cache.get(WATCHED):
        for cluster in found["clusters"].values():
            cache.set(map_key(cluster["id"]), (number, gpu_bytes(cluster["id"])), HISTORY_STEP_S * 3)
        tell({"version": number, **changed})
    return found


def tell(news: dict[str, Any]) -> None:
    """Send one message to every socket: the version, and the keys of the jobs that changed (None: too many to name)."""
    layer = get_channel_layer()
    if layer is not None:
        async_to_sync(layer.group_send)(GROUP, {"type": "live.news", **news})


def _changes(before: dict[str, Any], now: datetime) -> tuple[dict[str, Any], dict[str, Any]]:
    """What marks this moment, and which jobs have had an event since the last; a few short index look-ups."""
    last = JobEvent.objects.aggregate(last=Max("id"))["last"] or 0
    holds = list(LaneHold.objects.values_list("cluster_id").annotate(at=Max("since")).order_by("cluster_id"))
    of_cluster = Node.objects.values_list("cluster_id").order_by("cluster_id")
    nodes = list(of_cluster.annotate(at=Max("contact_at"), on=Max("cordon_at"), cordoned=Count("cordon_at")))
    cards = Gpu.objects.aggregate(at=Max("state_at"))["at"]
    clusters = list(Cluster.objects.order_by("id").values_list("id", "version", "synced", "sync_problem"))
    after = before.get("event", last)
    events = JobEvent.objects.filter(id__gt=after, at__gt=now - timedelta(minutes=5))
    keys = list(events.order_by().values_list("job__key", flat=True).distinct()[: JOBS_NAMED_MOST + 1])
    seen = {"event": last, "mark": repr((last, holds, nodes, cards, clusters))}
    # Without a last time, as after a restart of Valkey, everything may have changed.
    named = "event" in before and len(keys) <= JOBS_NAMED_MOST
    return seen, {"jobs": keys if named else None}


def _next_version() -> int:
    cache.add(VERSION, 0, None)
    return cache.incr(VERSION)


def _remember(found: dict[str, Any]) -> None:
    for slug, cluster in found["clusters"].items():
        cards, jobs = cluster["cards"], cluster["jobs"]
        sample = {
            "at": found["at"],
            "held": cards["held_share"],
            "free": cards["free"],
            "cards": cards["held"],
            "fragmentation": cards["fragmentation"],
            "running": jobs["running"] + jobs["starting"] + jobs["stopping"],
            "waiting": jobs["queued"] + jobs["held"],
        }
        cache.set(f"{HISTORY}:{slug}", [*history(slug), sample][-HISTORY_LENGTH:], 2 * HISTORY_LENGTH * HISTORY_STEP_S)


def summed_history(slugs: Iterable[str]) -> list[dict[str, float]]:
    """The history of several clusters as one: the samples of the same moment added up."""
    moments: dict[float, dict[str, float]] = {}
    for slug in slugs:
        for sample in history(slug):
            whole = moments.setdefault(sample["at"], dict.fromkeys(sample, 0.0))
            for name, value in sample.items():
                whole[name] = value if name == "at" else whole[name] + value
    return [moments[at] for at in sorted(moments)]
