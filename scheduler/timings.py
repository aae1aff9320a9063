"""How long the loops take: sums and counts by step, kept in each process and published for the metrics page.

They are facts about processes, not about jobs: losing them does no harm, so they are in the cache and never in rows.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from django.core.cache import cache

log = structlog.get_logger(__name__)
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram, seconds; one more bucket holds the rest."""
PUBLISH_EVERY_S, KEPT_S = 5.0, 60
INDEX = "timings:index"


class Timings:
    """Histograms of what one process did. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], dict[str, Any]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._published = 0.0

    @contextmanager
    def measure(self, what: str, cluster: str) -> Iterator[None]:
        """Count what happens inside as one ``what`` of a cluster, also where it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.note(what, cluster, time.perf_counter() - began)

    def note(self, what: str, cluster: str, seconds: float) -> None:
        """Count one ``what`` that took so many seconds."""
        place = next((number for number, bound in enumerate(BUCKETS_S) if seconds <= bound), len(BUCKETS_S))
        with self._lock:
            kept = self._kept.setdefault(
                (what, cluster), {"count": 0, "sum": 0.0, "last": 0.0, "buckets": [0] * (len(BUCKETS_S) + 1)}
            )
            kept["count"] += 1
            kept["sum"] += seconds
            kept["last"] = seconds
            kept["buckets"][place] += 1

    def count(self, what: str, cluster: str, number: int = 1) -> None:
        """Add to a plain number: starts, retries, failures."""
        with self._lock:
            self._counts[what, cluster] = self._counts.get((what, cluster), 0) + number

    def publish(self) -> None:
        """Let others see the numbers of this process, every few seconds; a cache that is away is no trouble."""
        now = time.monotonic()
        with self._lock:
            if now - self._published < PUBLISH_EVERY_S:
                return
            self._published = now
            plain = self.plain()
        me = f"{socket.gethostname()}:{os.getpid()}"
        try:
            cache.set(f"timings:{me}", plain, KEPT_S)
            known: dict[str, float] = cache.get(INDEX) or {}
            alive = {name: at for name, at in known.items() if at > time.time() - KEPT_S}
            cache.set(INDEX, alive | {me: time.time()}, None)
        except Exception as error:  # whatever is wrong with the cache
            log.debug("timings were not published", error=str(error))

    def plain(self) -> dict[str, Any]:
        """All numbers as plain data: ``{"steps": {what: {cluster: histogram}}, "counts": {what: {cluster: n}}}``."""
        steps: dict[str, dict[str, Any]] = {}
        counts: dict[str, dict[str, int]] = {}
        for (what, cluster), kept in self._kept.items():
            steps.setdefault(what, {})[cluster] = {**kept, "buckets": list(kept["buckets"])}
        for (what, cluster), number in self._counts.items():
            counts.setdefault(what, {})[cluster] = number
        return {"steps": steps, "counts": counts}


TIMINGS = Timings()
"""Those of this process."""


def published() -> Mapping[str, dict[str, Any]]:
    """What every process has published within the last minute, by its name."""
    names = list(cache.get(INDEX) or {})
    found = cache.get_many([f"timings:{name}" for name in names])
    return {key.removeprefix("timings:"): value for key, value in found.items()}
