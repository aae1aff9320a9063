"""The tick: one cycle of one cluster, in the one process that schedules it.

    LOOP.tick(cluster_id)       # catch up, decide, apply; nothing at all where nothing is new

The rosters live in this process alone and are only ever a copy of the rows: any doubt drops them, and the next tick
reads all rows again. A tick may come too often, too late, twice at once in two processes, or die anywhere: the epoch
of the cluster lets one of them write, and what was not written is found again the next time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter

import structlog
from django.utils import timezone

from scheduler.apply import Applied, Busy, NotApplied, apply
from scheduler.engine.cycle import decide
from scheduler.inventory.models import Cluster
from scheduler.load import Live, Superseded, catch_up, take_over
from scheduler.timings import TIMINGS, Timings

log = structlog.get_logger(__name__)
TRIES = 3
"""How often one tick decides again because what it decided on has changed meanwhile."""
AGAIN_S = 1.0
"""After how long a cycle is repeated of which a part could not be carried out."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one cycle did; seconds of its steps by ``load``, ``decide`` and ``apply``. ``all_read``: it read all rows"""

    applied: Applied
    seconds: dict[str, float]
    waiting_lanes: int
    all_read: bool


@dataclass(slots=True)
class _Place:
    """What a process remembers of one cluster. ``again``: decide although nothing seems to have changed."""

    live: Live | None = None
    again: bool = False
    began: float = 0.0
    slug: str = field(default="")


class Loop:
    """The rosters of this process. For one thread."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = timezone.now,
        dispatch: Callable[[int], None] = lambda _: None,
        timings: Timings = TIMINGS,
    ) -> None:
        """``dispatch`` is told the id of a cluster where there may be something to launch or to stop."""
        self._clock, self._dispatch, self._timings = clock, dispatch, timings
        self._places: dict[int, _Place] = {}

    def tick(self, cluster_id: int, *, asked_at: float | None = None) -> Turn | None:
        """One cycle, None where there was nothing to do.

        ``asked_at`` (unix seconds): what it was asked for was committed by then; a cycle that has begun since has
        seen it, and this one is not needed.
        """
        place = self._places.setdefault(cluster_id, _Place())
        if asked_at is not None and asked_at < place.began:
            return None
        place.began = time.time()
        with structlog.contextvars.bound_contextvars(cluster=place.slug or cluster_id):
            return self._try(cluster_id, place)

    def forget(self, cluster_id: int) -> None:
        """Drop what is known of a cluster; the next tick reads everything."""
        self._places.pop(cluster_id, None)

    def live(self, cluster_id: int) -> Live | None:
        """The roster of a cluster, to look at; None while there is none."""
        place = self._places.get(cluster_id)
        return None if place is None else place.live

    def _try(self, cluster_id: int, place: _Place) -> Turn | None:
        for _ in range(TRIES):
            try:
                return self._turn(cluster_id, place)
            except Busy:
                place.again = True  # somebody is at it this moment; the next tick will see what is left
                return None
            except NotApplied:
                place.again = True  # quotas, rules or the view have changed since: decide again with those
            except Superseded as error:
                log.warning("another process schedules this cluster too", why=str(error))
                self.forget(cluster_id)
                return None
            except Cluster.DoesNotExist:
                self.forget(cluster_id)
                return None
            except Exception:
                self.forget(cluster_id)
                raise
        return None

    def _turn(self, cluster_id: int, place: _Place) -> Turn | None:
        now = self._clock()
        seconds: dict[str, float] = {}
        # 1. Load: all rows when we take over, else what has changed.
        began = perf_counter()
        all_read = place.live is None
        live = place.live
        if live is None:
            live = take_over(cluster_id, now)
            place.slug = Cluster.objects.values_list("slug", flat=True).get(pk=cluster_id)
            place.live = live
            changed = True
        else:
            changed = catch_up(live, now)
        seconds["load"] = perf_counter() - began
        if not (changed or place.again or _is_due(live, now)):
            self._timings.count("cycles_skipped", place.slug)
            return None
        place.again = True  # until this cycle is through
        # 2. Decide.
        began = perf_counter()
        plan = decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())
        seconds["decide"] = perf_counter() - began
        # 3. Apply, in one transaction.
        began = perf_counter()
        applied = apply(live, plan, now)
        seconds["apply"] = perf_counter() - began
        place.again = False
        if applied.left_out or len(applied.stopping) < len(plan.preempts):
            # A row that somebody else held is not noted as changed when that comes to nothing.
            live.wake_at = min(live.wake_at or now.timestamp() + AGAIN_S, now.timestamp() + AGAIN_S)
        # 4. Let what is to start or to stop be told to the backend.
        self._dispatch(cluster_id)
        turn = Turn(applied, seconds, len(plan.waiting), all_read)
        self._note(place, turn)
        return turn

    def _note(self, place: _Place, turn: Turn) -> None:
        for step, seconds in turn.seconds.items():
            self._timings.note(f"cycle_{step}", place.slug, seconds)
        self._timings.note("cycle", place.slug, sum(turn.seconds.values()))
        self._timings.count("starts", place.slug, len(turn.applied.started))
        self._timings.count("stops", place.slug, len(turn.applied.stopping))
        if turn.all_read or turn.applied.started or turn.applied.stopping or turn.applied.left_out:
            log.info(
                "cycle",
                started=len(turn.applied.started),
                stopping=len(turn.applied.stopping),
                left_out=len(turn.applied.left_out),
                lanes_waiting=turn.waiting_lanes,
                all_read=turn.all_read,
                **{f"{step}_s": round(seconds, 4) for step, seconds in turn.seconds.items()},
            )


def _is_due(live: Live, now: datetime) -> bool:
    return live.wake_at is not None and live.wake_at <= now.timestamp()
