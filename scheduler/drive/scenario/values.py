"""What a scenario file says, as frozen values: cluster, teams, policy, jobs, and what happens when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias
from zoneinfo import ZoneInfo

from jobs.spec import JobSpec
from quotas.limits import Quota, QuotaTree
from scheduler.engine.demand import MIB_PER_GIB
from scheduler.engine.policy import Policy

PolicyChange: TypeAlias = Mapping[str, object]
"""A part of a policy: its fields by name, those of a section (such as ``retry``) as a mapping of their own."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node. ``vram_mib`` is a card's memory, of which the driver keeps ``reserve_mib``; it joins at ``at`` s."""

    name: str
    gpus: int
    model: str
    vram_mib: int
    reserve_mib: int = MIB_PER_GIB
    cpus_milli: int = 128_000
    memory_mib: int = 2_048 * MIB_PER_GIB
    rack: str = ""
    switch: str = ""
    nvlink: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[str, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Silence:
    """A quiet time of an attempt: ``at`` seconds after its start for ``length`` s, with what the script declared."""

    at: float
    length: float
    phase: str | None = None
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class JobProfile:
    """What a job really does, which the scheduler does not see; seconds since an attempt's start.

    ``duration`` is None where nobody knows (real commands). Of ``exit_codes`` and ``run_for`` the nth belongs to the
    nth attempt and the last one repeats; an empty ``run_for`` means the duration.
    """

    duration: float | None = None
    exit_codes: tuple[int, ...] = (0,)
    run_for: tuple[float, ...] = ()
    hang_at: float | None = None
    hang_attempts: int = 1
    silent: tuple[Silence, ...] = ()
    idle_at: float | None = None
    checkpoint_every: float | None = None

    def exit_code(self, attempt: int) -> int:
        """The exit code of the attempt with that number, from 1."""
        return self.exit_codes[min(attempt, len(self.exit_codes)) - 1]

    def hangs(self, attempt: int) -> bool:
        """Whether the attempt with that number, from 1, goes silent for good."""
        return self.hang_at is not None and attempt <= self.hang_attempts


@dataclass(frozen=True, slots=True)
class ScenarioJob:
    """A job, when it is submitted (seconds since the start), and what it really does."""

    spec: JobSpec
    at: float
    profile: JobProfile = JobProfile()


class FaultKind(StrEnum):
    """What can break."""

    GPU_LOST = "gpu_lost"
    XID = "xid"
    TEMP = "temp"
    ECC_UNCORRECTED = "ecc_uncorrected"
    DRIVER_LOST = "driver_lost"
    NODE_DOWN = "node_down"
    TELEMETRY_LOST = "telemetry_lost"


@dataclass(frozen=True, slots=True)
class Fault:
    """Hardware breaks at ``at`` s, for ``length`` s or (None) for good.

    ``gpu`` is None for faults of the node; ``code`` belongs to Xids, ``celsius`` to temperatures.
    """

    at: float
    node: str
    kind: FaultKind
    gpu: int | None = None
    code: int | None = None
    celsius: float | None = None
    length: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyEdit:
    """A person changes a part of the policy; see :func:`scheduler.drive.scenario.policy.changed`."""

    at: float
    change: PolicyChange


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """A person gives a team other numbers; they replace all the old ones."""

    at: float
    team: str
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class CancelEdit:
    """A person cancels jobs (one name may stand for all copies of an entry)."""

    at: float
    jobs: tuple[str, ...]


class NodeAction(StrEnum):
    """What a person may do to a node."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    REMOVE_NODE = "remove_node"


@dataclass(frozen=True, slots=True)
class NodeEdit:
    """A person takes a node out of service or back."""

    at: float
    action: NodeAction
    node: str


Edit: TypeAlias = PolicyEdit | QuotaEdit | CancelEdit | NodeEdit


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole file. Times are seconds since ``start``, the wall clock of ``timezone`` at t = 0 (without an offset).

    ``until`` None: until the last job has ended. Jobs are in the order of the file, copies expanded; faults and edits
    in that of time, equal times in that of the file.
    """

    nodes: tuple[NodeSpec, ...]
    quotas: QuotaTree
    policy: Policy
    jobs: tuple[ScenarioJob, ...]
    faults: tuple[Fault, ...] = ()
    edits: tuple[Edit, ...] = ()
    start: datetime = datetime(2026, 1, 5)  # noqa: DTZ001  a wall clock, whatever the zone
    until: float | None = None
    seed: int = 0

    @property
    def timezone(self) -> str:
        """The name of the zone whose wall clock decides about windows."""
        return self.quotas.timezone

    @property
    def start_unix(self) -> float:
        """Unix seconds at t = 0."""
        return self.start.replace(tzinfo=ZoneInfo(self.timezone)).timestamp()
