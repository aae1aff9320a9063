"""The contract between Rota and whatever really runs its jobs.

Every backend is *level-triggered* and *idempotent*: each call is keyed by the attempt, may be repeated, doubled or
lost, and `observe` tells what is true now, whoever caused it. The caller decides and retries; a backend never does.

Words: an *attempt* is one try to run a job; it has one *replica* per process group that the job asked for; all of them
start together and end together. Times are seconds on the backend's own clock: Unix time for real ones, seconds since
the start of the scenario for the simulated one. Memory is integer MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

AttemptKey: TypeAlias = str
"""Deterministic and unique for ever, such as `<job>.<n>`: 1 to 200 of `A-Z a-z 0-9 . _ -`, not a dot first."""


class BackendError(Exception):
    """Something between Rota and the cluster went wrong; the text is one line for people."""


class TransientError(BackendError):
    """May work when tried again: time-outs, a busy or restarting server, a full disk. The caller retries."""


class PermanentError(BackendError):
    """Will fail the same way again: a refused value, a missing right. The caller ends the attempt and says why."""


RESERVED_ENV = frozenset({"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"})
RESERVED_ENV_PREFIX = "ROTA_"


def refused_env(env: Mapping[str, str]) -> str | None:
    """Name the first variable that a job may not set itself, or None: which cards it sees is not its own choice."""
    for key in env:
        if key in RESERVED_ENV or key.startswith(RESERVED_ENV_PREFIX):
            return key
    return None


class Phase(StrEnum):
    """Where an attempt, or one replica of it, is. `exited` and `lost` are ends and never change again."""

    STARTING = "starting"  # taken in, not every replica's command runs yet
    RUNNING = "running"  # every replica's command has been started and at least one process of the attempt is alive
    EXITED = "exited"  # every process it started is gone, and how it ended is known
    LOST = "lost"  # every process is gone (or fenced), how it ended is not known: its shim was killed, its node is gone

    @property
    def ended(self) -> bool:
        """True once nothing of it runs any more: its cards are free."""
        return self in (Phase.EXITED, Phase.LOST)


class Cause(StrEnum):
    """Who ended an attempt or a replica; the first that did counts."""

    NONE = ""  # it has not ended
    SELF = "self"  # its own command ended (well or badly, or by a signal from outside)
    STOPPED = "stopped"  # `stop` was called; the report's `note` holds its `why`
    TIME_LIMIT = "time_limit"  # it ran into `Launch.time_limit_s`
    PEER = "peer"  # (replicas only) another replica of the gang failed, so it was ended too
    LOST = "lost"  # its shim or node vanished


@dataclass(frozen=True, slots=True)
class ReplicaLaunch:
    """One replica: where it runs and which cards it gets."""

    group: str  # name of the job's group
    index: int  # within the group, from 0
    rank: int  # within the attempt, 0 … len(replicas) - 1
    node: str  # name of the node, as in NodeReport
    gpus: tuple[int, ...] = ()  # card indexes on the node; empty when it takes none or the backend picks them
    gpu_count: int = 0  # how many cards it gets; len(gpus) where gpus is given
    mib: int = 0  # memory it may use on each card, in MiB; 0: the whole card


@dataclass(frozen=True, slots=True)
class Launch:
    """The order to start one attempt. `command`, `env` and `cwd` are the same for every replica."""

    attempt: AttemptKey
    job: str
    replicas: tuple[ReplicaLaunch, ...]  # in order of rank
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # the user's; see `refused_env`
    cwd: str | None = None  # absolute; None: the backend's default
    grace_s: float = 30.0  # from the request to end until SIGKILL, where `stop` names no other
    time_limit_s: float | None = None  # from the command's start; None: unbounded
    checkpoint_signal: int | None = None  # sent to the command first; SIGTERM follows when 0.8 of the grace is over
    profile: object | None = None  # what the simulated backend plays (how long, exit code, …); real ones ignore it


@dataclass(frozen=True, slots=True)
class CardReport:
    """One GPU of a node."""

    uuid: str  # as NVML says it (`GPU-…`), or a stable id of a virtual card
    index: int  # on its node, from 0 without gaps
    memory_mib: int  # all of its memory, before any reserve
    virtual: bool = False  # no such hardware: shown as virtual everywhere
    model: str = ""  # empty: the node's


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One machine, as the backend sees it now."""

    name: str
    model: str  # of its GPUs, such as `NVIDIA H100 80GB HBM3`; empty without GPUs
    gpus: tuple[CardReport, ...]  # in order of index
    cpus: int
    memory_mib: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    rack: str = ""  # empty: not known
    switch: str = ""
    nvlink: str = ""  # empty: the node itself is one NVLink domain
    ready: bool = True  # False: the backend has lost contact with it or the cluster calls it down
    note: str = ""  # one line for people when not ready


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica, as the backend sees it now."""

    rank: int
    group: str
    index: int
    node: str
    phase: Phase
    at: float  # when it entered the phase
    exit_code: int | None = None  # None unless exited; 128 + signal where a signal ended it, as shells say it
    signal: int | None = None  # that signal
    cause: Cause = Cause.NONE
    gpus: tuple[str, ...] = ()  # UUIDs of the cards that it really holds (confirmed), empty while not known
    note: str = ""  # one line for people: "command not found: …", why it was stopped, …


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One attempt, as the backend sees it now.

    The exit code of an ended attempt is that of the replica that failed first by itself, 0 where all ended well. Where
    none failed by itself (stopped, time limit) it is that of the first that did not end with 0, else 0.
    """

    attempt: AttemptKey
    phase: Phase
    at: float  # when it entered the phase
    started: float | None = None  # when its phase became running, None if it never did
    exit_code: int | None = None  # None unless exited
    signal: int | None = None  # of the replica whose exit code it is
    cause: Cause = Cause.NONE
    note: str = ""
    replicas: tuple[ReplicaReport, ...] = ()  # in order of rank


@dataclass(frozen=True, slots=True)
class Observation:
    """What is true (complete) or what has changed since a cursor (not complete).

    Only a complete one proves absence: an attempt that it does not list does not exist. In one that is not complete,
    `nodes` and `attempts` hold only those that changed, each whole.
    """

    complete: bool
    cursor: int  # give it to the next `observe`
    nodes: tuple[NodeReport, ...] = ()  # in order of name
    attempts: tuple[AttemptReport, ...] = ()  # in order of key


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a replica's output, stdout and stderr as one stream."""

    data: bytes
    offset: int  # where `data` really begins: above the offset asked for, what lies between was rotated away
    next_offset: int  # ask with this one next; offsets count from the replica's first byte and never go back
    eof: bool  # the replica has ended and this is all of it: nothing will follow


@runtime_checkable
class Backend(Protocol):
    """What every backend does. Any call may raise TransientError or PermanentError, and nothing else by design."""

    @property
    def name(self) -> str:
        """`local`, `simulated`, …"""

    @property
    def chooses_gpu(self) -> bool:
        """True where Rota names the cards (`ReplicaLaunch.gpus`); False where the node picks and reports them later."""

    def observe(self, cursor: int | None = None) -> Observation:
        """Tell what is true.

        None asks for everything; a cursor for what changed since the observation that gave it. A cursor that this
        backend cannot honour any more (too old, from before a restart) is answered with everything.
        """

    def launch(self, order: Launch) -> None:
        """Start an attempt and return at once; `observe` tells what became of it.

        Of an attempt that lives or has ended this does nothing. What is wrong with the command itself (not found, no
        such folder) is no error here but the end of the attempt: exit code 127 or 126 and a line in its log.

        Raises:
            PermanentError: the order itself is refused (reserved variable, unknown node or card, bad key).
            TransientError: it could not be started now; launching the same order again is safe.
        """

    @property
    def resizes(self) -> bool:
        """Whether a running attempt can be given other replicas; where not, elastic jobs keep their size."""

    def resize(self, order: Launch) -> None:
        """Make a running attempt have exactly the replicas of `order`; PermanentError where it never can.

        Unknown or ended: does nothing.
        """

    def stop(self, attempt: AttemptKey, *, grace_s: float | None = None, why: str = "") -> None:
        """Ask an attempt to end, return at once: SIGTERM, after `grace_s` seconds (None: the order's) SIGKILL.

        Again: does nothing, but a shorter grace counts from the new call on. Unknown or ended: does nothing.
        """

    def forget(self, attempt: AttemptKey) -> None:
        """Drop the records and logs of an ended attempt. Unknown: does nothing.

        Raises:
            PermanentError: it has not ended.
        """

    def logs(self, attempt: AttemptKey, *, replica: int = 0, offset: int = 0, limit: int = 65536) -> LogChunk:
        """Read up to `limit` bytes of the output of the replica with that rank, from `offset` on.

        Unknown attempts and replicas have an empty log that is at its end.
        """
