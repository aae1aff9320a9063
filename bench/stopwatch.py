"""Timing: the first run, when nothing is remembered yet, apart from the median of the later ones.

By the clock on the wall, and by the processor's, which stands still while others have the machine: what computes on one
core alone takes as long by both when nobody disturbs it.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Lap(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """The first run, each later one, and what the last one returned."""

    first: Lap
    later: tuple[Lap, ...]
    result: T

    @property
    def seconds(self) -> float:
        """The median of the later runs on the wall; the first one where it was the only one."""
        return median(lap.wall for lap in self.later or (self.first,))

    @property
    def cpu_seconds(self) -> float:
        """The same by the processor's clock."""
        return median(lap.cpu for lap in self.later or (self.first,))

    @property
    def best_cpu_seconds(self) -> float:
        """The least that any run cost."""
        return min(lap.cpu for lap in (self.first, *self.later))


def timed(work: Callable[[], T], repeats: int) -> Timed[T]:
    """Run ``work`` once and then ``repeats`` times, after the rubbish of what was before has been put out."""
    gc.collect()
    return _told([_once(work) for _ in range(1 + repeats)])


def timed_in_turn(first: Callable[[], T], second: Callable[[], U], repeats: int) -> tuple[Timed[T], Timed[U]]:
    """As :func:`timed` for two works, one after the other each time, so that what disturbs one disturbs both."""
    gc.collect()
    runs = [(_once(first), _once(second)) for _ in range(1 + repeats)]
    return _told([run for run, _ in runs]), _told([run for _, run in runs])


def _once(work: Callable[[], T]) -> tuple[T, Lap]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Lap(time.perf_counter() - wall, time.process_time() - cpu)


def _told(runs: Sequence[tuple[T, Lap]]) -> Timed[T]:
    return Timed(runs[0][1], tuple(lap for _, lap in runs[1:]), runs[-1][0])
