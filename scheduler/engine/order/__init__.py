"""Who goes first among jobs of equal priority: one discipline a file.

A discipline gives each lane a *standing*; the least goes first, equal ones by submission. A standing may only grow
while jobs are started, never shrink: the walk over the lanes relies on it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from scheduler.engine.accounts import Accounts
from scheduler.engine.order.capacity import capacity
from scheduler.engine.order.fair import fair
from scheduler.engine.order.fifo import fifo
from scheduler.engine.policy import Queueing
from scheduler.engine.snapshot import Lane

Standing = tuple[int, float]
Discipline = Callable[[Lane, Accounts], Standing]

DISCIPLINES: Mapping[Queueing, Discipline] = MappingProxyType(
    {Queueing.FIFO: fifo, Queueing.FAIR: fair, Queueing.CAPACITY: capacity}
)
