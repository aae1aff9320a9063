"""What a job asks for: groups of replicas, their topology, and the *shape* that alike jobs share."""

from dataclasses import dataclass
from datetime import time
from enum import StrEnum

MIB_PER_GIB = 1024


class Kind(StrEnum):
    """What a workload is for; only inference gets head room on a shared card."""

    TRAINING = "training"
    INFERENCE = "inference"
    INTERACTIVE = "interactive"


class Level(StrEnum):
    """Topology levels from the narrowest to the widest domain."""

    NODE = "node"
    NVLINK = "nvlink"
    RACK = "rack"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Topology:
    """How replicas lie to one another.

    ``require`` and ``prefer`` name a level whose single domain must, or should, hold all replicas; ``spread`` names a
    level over whose domains they are evened out, with at most ``max_per_domain`` (a share, 0 < x <= 1) in one.
    """

    require: Level | None = None
    prefer: Level | None = None
    spread: Level | None = None
    max_per_domain: float | None = None


@dataclass(frozen=True, slots=True)
class ScaleWindow:
    """A time of day, ``start`` inclusive to ``end`` exclusive, over midnight when ``end`` is the earlier one.

    While it is open the job has ``replicas`` replicas, or its slices ``vram_mib`` MiB each; None leaves that as it is.
    """

    start: time
    end: time
    replicas: int | None = None
    vram_mib: int | None = None

    def is_open(self, clock: time) -> bool:
        """Whether the wall clock ``clock`` lies in the window."""
        if self.start < self.end:
            return self.start <= clock < self.end
        return clock >= self.start or clock < self.end


@dataclass(frozen=True, slots=True)
class Group:
    """Replicas of one kind.

    ``gpus``, ``cpus_milli`` (1000 = one CPU) and ``memory_mib`` are per replica, ``vram_mib`` is per GPU (0: any card
    will do). With ``share`` a replica takes that much memory of each of its cards and others may use the rest.
    Empty ``models`` means any model. ``min_replicas`` and ``max_replicas`` differ from ``replicas`` for elastic jobs.
    """

    name: str = "main"
    replicas: int = 1
    gpus: int = 1
    cpus_milli: int = 1000
    memory_mib: int = 4 * MIB_PER_GIB
    vram_mib: int = 0
    share: bool = False
    models: tuple[str, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[str, ...] = ()
    kind: Kind = Kind.TRAINING
    min_replicas: int | None = None
    max_replicas: int | None = None

    @property
    def total_gpus(self) -> int:
        """Cards (whole or shared) that all replicas touch together."""
        return self.replicas * self.gpus


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about a job that decides where it fits. Jobs of one shape and team wait for the same reason.

    ``excluded`` nodes are never used; ``avoided`` ones only when nothing else fits.
    """

    groups: tuple[Group, ...] = (Group(),)
    topology: Topology = Topology()
    excluded: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()

    @property
    def total_gpus(self) -> int:
        """Cards that all groups touch together."""
        return sum(group.total_gpus for group in self.groups)

    @property
    def replicas(self) -> int:
        """Replicas of all groups."""
        return sum(group.replicas for group in self.groups)


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job that waits.

    ``submitted`` is the original submission (seconds), kept over requeues; ``sequence`` breaks ties. ``time_limit``
    is what the user declared (seconds). A job is *gated*, and blocks nobody, while ``held`` is not empty, ``now`` is
    before ``backoff_until`` or ``not_before``, or a job of ``waits_for`` has not succeeded. ``waits_for`` holds only
    those not yet succeeded, each with what it is waiting on (``"train is running"``).

    ``min_runtime`` (seconds) stands before the policy's; ``checkpoint_every`` is how often it saves its work;
    ``scale`` changes its size by time of day; ``taken`` counts how often it has been preempted or reclaimed, and
    ``returning`` is whether its last attempt was.
    """

    key: str
    team: str
    shape: Shape
    priority: int = 500
    submitted: float = 0.0
    sequence: int = 0
    time_limit: float | None = None
    held: str = ""
    backoff_until: float = 0.0
    not_before: float = 0.0
    waits_for: tuple[str, ...] = ()
    preemptible: bool = True
    min_runtime: float | None = None
    checkpoint_every: float | None = None
    scale: tuple[ScaleWindow, ...] = ()
    taken: int = 0
    returning: bool = False

    @property
    def elastic(self) -> bool:
        """Whether its size may change while it runs."""
        group = self.shape.groups[0]
        return bool(self.scale) or group.min_replicas is not None or group.max_replicas is not None

    @property
    def order(self) -> tuple[int, float, int]:
        """Place in its team's line: priority, then submission."""
        return (-self.priority, self.submitted, self.sequence)
