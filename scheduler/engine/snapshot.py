"""What a decision looks at: one cluster with its queue and its accounts at one moment. Frozen, comparable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from quotas.limits import LimitTable, QuotaTree
from scheduler.engine.cluster import Inventory
from scheduler.engine.demand import PendingJob, Shape
from scheduler.engine.horizon import Horizon
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit
from scheduler.engine.plan import Claim, Piece


class Phase(StrEnum):
    """Where a job that holds cards is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds cards, from placing until the backend confirms the end.

    ``amounts`` is what it counts for, in nano-GPU per model. ``ends_by`` is when its declared limit ends it (seconds),
    None without a limit; ``checkpointed`` when it last said that its work is safe, None if it never did.
    """

    job: PendingJob
    pieces: tuple[Piece, ...]
    started: float
    amounts: tuple[tuple[str, int], ...]
    phase: Phase = Phase.STARTING
    ends_by: float | None = None
    checkpointed: float | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """The waiting jobs of one team and shape, in order: what stops the first stops them all."""

    number: int
    team: int
    shape: Shape
    fit: Fit = field(compare=False, repr=False)
    jobs: tuple[PendingJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """Decayed use of one team: ``gpu_seconds`` as they counted at ``at`` (seconds)."""

    gpu_seconds: float = 0.0
    at: float = 0.0


class LimitTables:
    """The limits of a tree over a cluster's cards at any moment; remembers the last table for as long as it holds."""

    def __init__(self, tree: QuotaTree, cards: Mapping[str, int]) -> None:
        self.tree = tree
        self.cards = dict(cards)
        self._from = 0.0
        self._to: float | None = None
        self._table: LimitTable | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LimitTables) and (self.tree, self.cards) == (other.tree, other.cards)

    __hash__ = None  # type: ignore[assignment]

    def at(self, unix: float) -> LimitTable:
        """The table in force at ``unix`` seconds."""
        if self._table is None or unix < self._from or (self._to is not None and unix >= self._to):
            self._table = LimitTable(self.tree, self.cards, unix)
            self._from, self._to = unix, self.tree.next_change(unix)
        return self._table

    def until(self, unix: float) -> float | None:
        """When the table in force at ``unix`` ends, in unix seconds."""
        self.at(unix)
        return self._to


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that :func:`scheduler.engine.cycle.decide` may look at.

    Times are seconds on one clock; ``epoch`` is the unix time of its zero, for windows. ``used`` is in nano-GPU per
    account of the limit table, ``uses`` the decayed use per team. ``gateable`` are the waiting jobs that may be
    stopped by themselves, ``claims`` the cards that an earlier plan keeps for some of them. ``recent`` has the
    (time, team) of the starts of the last minute, ``starting`` how many jobs have been placed and do not run yet.
    ``quiet`` is since when accounts have been below the low watermark, ``elastic`` are the running jobs whose size may
    change; ``horizon`` is when the cards of those who run come free, as their limits promise; ``shapes`` counts the
    jobs of each shape that hold cards. ``synced`` is False until the first complete look at the cluster.
    """

    inventory: Inventory
    ledger: Ledger
    limits: LimitTables
    lanes: tuple[Lane, ...] = ()
    gateable: tuple[PendingJob, ...] = ()
    running: Mapping[str, RunningJob] = field(default_factory=dict)
    used: tuple[int, ...] = ()
    uses: tuple[Use, ...] = ()
    recent: tuple[tuple[float, int], ...] = ()
    starting: int = 0
    epoch: float = 0.0
    synced: bool = True
    horizon: Horizon | None = field(default=None, compare=False, repr=False)
    claims: tuple[Claim, ...] = ()
    elastic: tuple[RunningJob, ...] = ()
    quiet: Mapping[int, float] = field(default_factory=dict)
    shapes: Mapping[Shape, int] = field(default_factory=dict)
    version: int = 0
