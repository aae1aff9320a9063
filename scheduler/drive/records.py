"""What is kept of each job, attempt and node over a drive. Values without rules of their own."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

from jobs.spec import JobSpec
from jobs.states import AttemptEnd, JobState, Tally
from scheduler.backends.base import AttemptKey, ReplicaLaunch
from scheduler.drive.scenario import JobProfile
from scheduler.engine.plan import Piece

_ODD = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(slots=True)
class AttemptRecord:
    """One attempt: from placing (`started`) until its cards are free (`ended`)."""

    number: int
    key: AttemptKey
    started: float
    pieces: tuple[Piece, ...]
    ended: float | None = None
    end: AttemptEnd | None = None
    resizes: list[tuple[float, tuple[Piece, ...]]] = field(default_factory=list)
    exit_code: int | None = None
    note: str = ""

    @property
    def nodes(self) -> frozenset[str]:
        """Where it lies."""
        return frozenset(piece.node for piece in self.present)

    @property
    def present(self) -> tuple[Piece, ...]:
        """Its pieces as they are now."""
        return self.resizes[-1][1] if self.resizes else self.pieces

    @property
    def replicas(self) -> tuple[ReplicaLaunch, ...]:
        """The same as a launch order names them, in order of rank."""
        return tuple(
            ReplicaLaunch(piece.group, piece.replica, rank, piece.node, piece.gpus, len(piece.gpus), piece.mib)
            for rank, piece in enumerate(self.present)
        )


@dataclass(slots=True)
class JobRecord:
    """One job from its submission on.

    `state` None: not submitted yet. `stop` is what an attempt that was told to end will have ended as. `message` says
    why it is where it is (rejected, held, failed). `queued` counts its entries into the queue.
    """

    spec: JobSpec
    profile: JobProfile
    sequence: int
    submitted: float
    state: JobState | None = None
    started: float | None = None
    ended: float | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    stop: AttemptEnd | None = None
    message: str = ""
    backoff_until: float = 0.0
    avoided: frozenset[str] = frozenset()
    evicted_from: frozenset[str] = frozenset()
    queued: int = 0

    @property
    def name(self) -> str:
        """What people call it, and its key."""
        return self.spec.name

    @property
    def attempt(self) -> AttemptRecord:
        """The latest attempt."""
        return self.attempts[-1]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something people are told at `at` seconds."""

    at: float
    kind: str
    job: str | None = None
    node: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node changed its state: when, to what, by whose hand and why."""

    at: float
    state: str
    by: str
    why: str


def attempt_key(job: str, number: int) -> AttemptKey:
    """A key that every backend takes: the job's name where it can be used as it is, else made so and told apart."""
    plain = _ODD.sub("-", job)
    if plain != job or len(job) > 150:
        plain = f"{plain[:150]}-{zlib.crc32(job.encode()):08x}"
    return f"{plain}.{number}"
