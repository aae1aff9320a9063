"""What a person may ask for in one job, as a frozen value, and its parsing from plain YAML or JSON values. Pure."""

from dataclasses import dataclass
from datetime import time

from scheduler.engine.demand import Group, Kind, Shape, Topology

PRIORITIES = {"low": 100, "normal": 500, "high": 900}
PRIORITY_MOST = 1_000
ANYWHERE = Topology()


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
class Budgets:
    """How long the job may be silent before it counts as hung, in seconds; None: the policy's numbers.

    ``heartbeat`` bounds the time without any sign of life, ``progress`` that without a new step, ``startup`` both
    before the first sign. ``phases`` are longer silences that the script may declare by name, such as a checkpoint.
    """

    heartbeat: float | None = None
    progress: float | None = None
    startup: float | None = None
    phases: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that a job's owner can say about it. Durations in seconds.

    ``not_before`` is on the clock of whoever parsed the job: seconds since the start in a scenario. ``retries`` None
    means the policy's. ``max_wait`` is the wait after which people are told. ``retry_window`` bounds the time without
    capacity after it first could have started. Before a stop ``checkpoint_signal`` (a number) is sent first, None:
    only SIGTERM; ``grace`` is the time from the request to end until SIGKILL.
    """

    name: str
    team: str
    user: str
    kind: Kind = Kind.TRAINING
    groups: tuple[Group, ...] = (Group(),)
    topology: Topology = ANYWHERE
    priority: int = PRIORITIES["normal"]
    time_limit: float | None = None
    preemptible: bool = True
    min_runtime: float | None = None
    scale: tuple[ScaleWindow, ...] = ()
    not_before: float | None = None
    after: tuple[str, ...] = ()
    max_wait: float | None = None
    retries: int | None = None
    retry_window: float | None = None
    budgets: Budgets = Budgets()
    checkpoint_signal: int | None = None
    grace: float = 30.0
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def elastic(self) -> bool:
        """Whether the number of replicas may change while it runs."""
        return any(
            bound is not None and bound != group.replicas
            for group in self.groups
            for bound in (group.min_replicas, group.max_replicas)
        )

    def shape(self, *, excluded: frozenset[str] = frozenset(), avoided: frozenset[str] = frozenset()) -> Shape:
        """Where this job fits, with the nodes that its history rules out or makes unwelcome."""
        return Shape(self.groups, self.topology, excluded, avoided)
