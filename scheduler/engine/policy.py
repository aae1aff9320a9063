"""The policy: every rule of a cluster that an administrator may change, as one frozen value."""

from dataclasses import dataclass, field
from enum import StrEnum


class Queueing(StrEnum):
    """The discipline that orders jobs of equal priority."""

    FIFO = "fifo"
    FAIR = "fair"
    CAPACITY = "capacity"


class Placement(StrEnum):
    """The strategy that chooses among nodes that fit."""

    BINPACK = "binpack"
    SPREAD = "spread"
    HYBRID = "hybrid"
    FRAGMENTATION = "fragmentation"


class IdleAction(StrEnum):
    """What is done about cards that are held but unused."""

    ALERT = "alert"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Fair:
    """``half_life``: seconds after which past use counts half."""

    half_life: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """Protections of running jobs against higher priorities; all but ``max_per_job`` in seconds."""

    enabled: bool = True
    min_runtime: float = 600.0
    protect_after: float = 14_400.0
    max_per_job: int = 3
    cooldown: float = 600.0


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Taking loans back; ``min_runtime`` in seconds."""

    enabled: bool = True
    min_runtime: float = 600.0


@dataclass(frozen=True, slots=True)
class Elastic:
    """Whether elastic jobs grow and shrink."""

    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Watermark:
    """Lending of guaranteed numbers that sleep: shares of the guaranteed number, ``over`` in seconds."""

    enabled: bool = False
    low: float = 0.3
    high: float = 0.8
    over: float = 1_800.0
    floor: float = 0.2


@dataclass(frozen=True, slots=True)
class Backpressure:
    """Limits on how fast jobs are let in; 0 means no limit."""

    max_starting: int = 0
    starts_per_minute: int = 0
    team_starts_per_minute: int = 0
    max_pending_per_team: int = 0


@dataclass(frozen=True, slots=True)
class Hang:
    """When silence means a hang; seconds."""

    every: float = 30.0
    timeout: float = 180.0
    startup_grace: float = 600.0


@dataclass(frozen=True, slots=True)
class Idle:
    """When held cards count as unused: below a share of use for ``after`` seconds (0: never)."""

    after: float = 0.0
    below: float = 0.05
    action: IdleAction = IdleAction.ALERT


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of a job's own failures; back-off in seconds."""

    max: int = 3
    backoff: float = 30.0
    max_backoff: float = 1_800.0


@dataclass(frozen=True, slots=True)
class Health:
    """Circuit breaker (share and number of nodes) and temperatures in degrees Celsius."""

    breaker_ratio: float = 0.3
    breaker_nodes: int = 50
    temp_c: float = 90.0
    clear_c: float = 85.0


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules of one cluster. Durations in seconds, ``inference_headroom`` a share of a slice's memory."""

    queueing: Queueing = Queueing.CAPACITY
    backfill: bool = True
    reserve_for: int = 1
    fair: Fair = field(default_factory=Fair)
    placement: Placement = Placement.HYBRID
    preemption: Preemption = field(default_factory=Preemption)
    reclaim: Reclaim = field(default_factory=Reclaim)
    elastic: Elastic = field(default_factory=Elastic)
    watermark: Watermark = field(default_factory=Watermark)
    inference_headroom: float = 0.0
    backpressure: Backpressure = field(default_factory=Backpressure)
    hang: Hang = field(default_factory=Hang)
    idle: Idle = field(default_factory=Idle)
    retry: Retry = field(default_factory=Retry)
    health: Health = field(default_factory=Health)
    cycle: float = 1.0
    launch_delay: float = 0.0
    stop_delay: float = 0.0
