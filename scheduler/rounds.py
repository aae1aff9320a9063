"""The two ways between the rows and a backend, each for one cluster at a time: dispatch tells it, observe asks it.

Both converge: what a call could not do is due again, and a row is never changed by what was only intended. No call to
a backend happens inside a transaction. What is remembered here (the cursor of the last observation, since when a
backend does not answer) belongs to this process and may be lost at any time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.utils import timezone

from scheduler.backends.base import Backend, BackendError, Launch, PermanentError, TransientError
from scheduler.connect import Connections
from scheduler.inventory.models import BackendKind, Cluster
from scheduler.inventory.services import mark_unsynced
from scheduler.observing import Found, take_in
from scheduler.reconcile import (
    begin_launches,
    end_unlaunched,
    launch_again,
    note_launched,
    note_stop_sent,
    orders_for,
    refuse_launch,
)
from scheduler.timings import TIMINGS, Timings

log = structlog.get_logger(__name__)
BATCH = 50
"""Launches claimed at a time: as many wait for the claim to lapse when this process dies in their midst."""
ALL_EVERY_S = {BackendKind.LOCAL.value: 5.0}
ALL_EVERY_OTHERWISE_S = 30.0
"""How often everything is asked for although only changes are needed: what an earlier look could not take in."""
SILENT_S = 30.0
"""After so long without an answer nothing is started any more, until everything has been looked at again."""
LAUNCH_BACKOFF = (timedelta(seconds=1), timedelta(seconds=60))


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What was told to a backend: attempts launched, asked to stop, refused for good, to be tried again."""

    launched: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


@dataclass(slots=True)
class _Watch:
    """What this process remembers of one cluster's backend."""

    backend: Backend | None = None
    cursor: int | None = None
    all_at: float = float("-inf")


class Rounds:
    """See the module. Safe for several threads: each cluster's dispatch, and its observe, runs once at a time."""

    def __init__(
        self,
        *,
        connections: Connections | None = None,
        clock: Callable[[], datetime] = timezone.now,
        chance: Callable[[], float] = random.random,
        timings: Timings = TIMINGS,
    ) -> None:
        self._connections = connections or Connections()
        self._clock, self._chance, self._timings = clock, chance, timings
        self._watches: dict[int, _Watch] = {}
        self._turnstile = _Turnstile()

    def dispatch(self, cluster_id: int) -> bool:
        """Tell the backend what the rows want; False where another thread was at it, which then does it once more.

        Raises BackendError where the cluster has no usable backend.
        """
        return self._turnstile.run(("dispatch", cluster_id), lambda: self._dispatch(cluster_id))

    def observe(self, cluster_id: int) -> bool:
        """Ask the backend what is true, and write it down; see `dispatch`. A backend that does not answer is noted."""
        return self._turnstile.run(("observe", cluster_id), lambda: self._observe(cluster_id))

    def _dispatch(self, cluster_id: int) -> None:
        cluster = Cluster.objects.filter(pk=cluster_id).first()
        if cluster is None:
            return
        with _context(cluster), self._timings.measure("dispatch", cluster.slug):
            done = dispatch(cluster, self._connections.backend_of(cluster), clock=self._clock, chance=self._chance)
            for what, attempts in (("launches", done.launched), ("launches_again", done.again)):
                self._timings.count(what, cluster.slug, len(attempts))

    def _observe(self, cluster_id: int) -> None:
        cluster = Cluster.objects.filter(pk=cluster_id).first()
        if cluster is None:
            return
        watch = self._watches.setdefault(cluster_id, _Watch())
        with _context(cluster), self._timings.measure("observe", cluster.slug):
            try:
                backend = self._connections.backend_of(cluster)
                if backend is not watch.backend:
                    watch.backend, watch.cursor = backend, None
                self._look(cluster, backend, watch)
            except BackendError as error:
                self._no_answer(cluster, watch, error)

    def _look(self, cluster: Cluster, backend: Backend, watch: _Watch) -> None:
        now = time.monotonic()
        everything = not cluster.synced or now - watch.all_at >= ALL_EVERY_S.get(cluster.backend, ALL_EVERY_OTHERWISE_S)
        cursor = watch.cursor
        watch.cursor = None  # if what it says now cannot be taken in, all of it is asked for again
        seen_cursor, complete, found = observe(
            cluster, backend, None if everything else cursor, clock=self._clock, chance=self._chance
        )
        watch.cursor = seen_cursor
        if complete:
            watch.all_at = now
        if found.ended:
            self._timings.count("ends", cluster.slug, len(found.ended))

    def _no_answer(self, cluster: Cluster, watch: _Watch, error: BackendError) -> None:
        """Let nothing start where a backend is wrong, or has been silent for long."""
        watch.cursor = None
        self._timings.count("observe_failures", cluster.slug)
        silent = (self._clock() - (cluster.observed_at or cluster.created_at)).total_seconds()
        log.warning("the backend does not answer", error=str(error), for_s=round(silent, 1))
        if isinstance(error, PermanentError) or silent > SILENT_S or not cluster.synced:
            mark_unsynced(cluster_id=cluster.pk, why=str(error))


def dispatch(
    cluster: Cluster, backend: Backend, *, clock: Callable[[], datetime], chance: Callable[[], float]
) -> Dispatched:
    """Tell a backend what the rows want of it, once. One attempt that goes wrong does not stop the others."""
    # 1. What was to stop before anything of it could exist is over.
    end_unlaunched(cluster.pk, now=clock(), chance=chance)
    orders = orders_for(cluster.pk, clock())
    # 2. Stops first: they make room.
    stopped = [stop.attempt for stop in orders.stops if _stop(backend, stop.attempt, stop.grace_s, stop.why)]
    if stopped:
        note_stop_sent(stopped, clock())
    # 3. Launches, claimed in small batches.
    launched: list[str] = []
    again: list[str] = []
    refused = list(orders.unreadable)
    for attempt, why in orders.unreadable.items():
        refuse_launch(attempt, why, now=clock(), chance=chance)
    for first in range(0, len(orders.launches), BATCH):
        batch = orders.launches[first : first + BATCH]
        claimed = begin_launches([order.attempt for order in batch], clock())
        fine: list[str] = []
        for order in batch:
            if order.attempt in claimed:
                _launch(backend, order, fine, again, refused, clock=clock, chance=chance)
        note_launched(fine, clock())
        launched += fine
    return Dispatched(tuple(launched), tuple(stopped), tuple(refused), tuple(again))


def observe(
    cluster: Cluster,
    backend: Backend,
    cursor: int | None,
    *,
    clock: Callable[[], datetime],
    chance: Callable[[], float],
) -> tuple[int, bool, Found]:
    """Ask a backend once, write down what it says, and end what it should not have.

    Returns the cursor for the next time, whether it has told everything, and what has changed. Raises BackendError.
    """
    begun = clock()
    seen = backend.observe(cursor)
    found = take_in(cluster.pk, seen, begun=begun, now=clock(), chance=chance)
    for attempt in found.orphans:
        log.warning("an attempt runs that nobody here knows as alive: it is ended", attempt=attempt)
        _stop(backend, attempt, 0.0, "no such attempt is alive")
    for attempt in found.leftovers:
        _forget(backend, attempt)
    for ended in found.ended:
        log.info("ended", attempt=ended.attempt, end=ended.end.value, job_state=ended.state.value)
    return seen.cursor, seen.complete, found


def _launch(
    backend: Backend, order: Launch, fine: list[str], again: list[str], refused: list[str], *,
    clock: Callable[[], datetime], chance: Callable[[], float],
) -> None:  # fmt: skip
    with structlog.contextvars.bound_contextvars(attempt=order.attempt):
        try:
            backend.launch(order)
        except TransientError as error:
            log.warning("a launch has failed for now", error=str(error))
            launch_again(order.attempt, str(error), now=clock(), shortest=LAUNCH_BACKOFF[0], longest=LAUNCH_BACKOFF[1])
            again.append(order.attempt)
        except PermanentError as error:
            log.warning("a launch is refused", error=str(error))
            refuse_launch(order.attempt, str(error), now=clock(), chance=chance)
            refused.append(order.attempt)
        except Exception as error:  # a bug of a backend: nobody else's launch waits for it
            log.exception("a launch has broken")
            launch_again(order.attempt, f"{type(error).__name__}: {error}", now=clock(),
                         shortest=LAUNCH_BACKOFF[1], longest=LAUNCH_BACKOFF[1])  # fmt: skip
            again.append(order.attempt)
        else:
            fine.append(order.attempt)


def _stop(backend: Backend, attempt: str, grace_s: float | None, why: str) -> bool:
    """Ask for an end; False where that has failed for now: it is due again the next time."""
    try:
        backend.stop(attempt, grace_s=grace_s, why=why)
    except BackendError as error:
        log.warning("a stop has failed", attempt=attempt, error=str(error))
        return False
    return True


def _forget(backend: Backend, attempt: str) -> None:
    try:
        backend.forget(attempt)
    except BackendError as error:
        log.warning("records could not be dropped", attempt=attempt, error=str(error))


class _Turnstile:
    """Lets one caller at a time do a thing; whoever comes meanwhile makes it be done once more, and goes on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: dict[object, bool] = {}

    def run(self, key: object, act: Callable[[], None]) -> bool:
        """Do it, and again as long as somebody else wanted it meanwhile; False where another is at it."""
        with self._lock:
            if key in self._busy:
                self._busy[key] = True
                return False
            self._busy[key] = False
        try:
            while True:
                act()
                with self._lock:
                    if not self._busy[key]:
                        del self._busy[key]
                        return True
                    self._busy[key] = False
        except BaseException:
            with self._lock:
                del self._busy[key]
            raise


@contextmanager
def _context(cluster: Cluster) -> Iterator[None]:
    with structlog.contextvars.bound_contextvars(cluster=cluster.slug):
        yield
