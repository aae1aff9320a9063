"""Who goes first among jobs of equal priority: one discipline a file.

A discipline gives each lane a *standing*; the least goes first, equal ones by submission. A standing may only grow
while jobs are started, never shrink: the walk over the lanes relies on it.
"""

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from scheduler.engine.accounts import Accounts
from scheduler.engine.order.capacity import capacity, one_per_share
from scheduler.engine.order.fair import fair, one_per_team
from scheduler.engine.order.fifo import fifo, one_line
from scheduler.engine.policy import Queueing
from scheduler.engine.snapshot import Lane

Standing = tuple[int, float]


class Discipline(NamedTuple):
    """``standing`` of a lane's next job, and ``shared_by``: lanes with the same key always have the same one."""

    standing: Callable[[Lane, Accounts], Standing]
    shared_by: Callable[[Lane, Accounts], Hashable]


DISCIPLINES: Mapping[Queueing, Discipline] = MappingProxyType(
    {
        Queueing.FIFO: Discipline(fifo, one_line),
        Queueing.FAIR: Discipline(fair, one_per_team),
        Queueing.CAPACITY: Discipline(capacity, one_per_share),
    }
)
