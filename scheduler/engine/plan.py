"""The plan: what one decision wants done. Values only; the shell performs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from scheduler.engine.demand import PendingJob
from scheduler.engine.reasons import Hold


class Piece(NamedTuple):
    """Where one replica lies: card indexes on a node; ``mib`` is the slice of each card, 0 for whole cards."""

    group: str
    replica: int
    node: str
    gpus: tuple[int, ...]
    mib: int = 0


class Start(NamedTuple):
    """Start a waiting job with all its replicas at once."""

    job: str
    pieces: tuple[Piece, ...]


class Cause(StrEnum):
    """By what right a running job is ended for another."""

    PREEMPTION = "preempted"
    RECLAIM = "reclaimed"


class Preempt(NamedTuple):
    """End a running job so that ``winner`` can start."""

    job: str
    winner: str
    cause: Cause


class Resize(NamedTuple):
    """Give an elastic job, or a slice, its whole new placement."""

    job: str
    pieces: tuple[Piece, ...]


class Claim(NamedTuple):
    """Cards kept for a waiting job while those who hold them leave."""

    winner: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, why the others wait, and when to look again.

    ``claims`` are all that hold from now on; the owner of the roster gives them back with the next snapshot.

    ``gated`` has a hold for each job that is stopped by itself (held, back-off, a time, another job). ``waiting`` has
    one per *lane* (team, shape); :meth:`hold_of` joins the two. ``wake_at`` is the next moment (seconds) at which
    anything can change without any input, None if there is none.
    """

    starts: tuple[Start, ...] = ()
    preempts: tuple[Preempt, ...] = ()
    resizes: tuple[Resize, ...] = ()
    claims: tuple[Claim, ...] = ()
    gated: Mapping[str, Hold] = field(default_factory=lambda: MappingProxyType({}))
    waiting: Mapping[int, Hold] = field(default_factory=lambda: MappingProxyType({}))
    wake_at: float | None = None

    def hold_of(self, job: PendingJob, lane: int) -> Hold | None:
        """Why ``job`` of lane number ``lane`` waits; None when it starts."""
        return self.gated.get(job.key) or self.waiting.get(lane)
