"""Timing by the wall clock: the first run, when nothing is remembered yet, apart from the median of the later ones."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """Seconds of the first run, of each later one, and what the last one returned."""

    first: float
    later: tuple[float, ...]
    result: T

    @property
    def seconds(self) -> float:
        """The median of the later runs; the first one where it was the only one."""
        return median(self.later) if self.later else self.first

    @property
    def best(self) -> float:
        """The least: what the work costs when nobody disturbs it."""
        return min((self.first, *self.later))


def timed(work: Callable[[], T], repeats: int) -> Timed[T]:
    """Run ``work`` once and then ``repeats`` times, after the rubbish of what was before has been put out."""
    gc.collect()
    return _told([_once(work) for _ in range(1 + repeats)])


def timed_in_turn(first: Callable[[], T], second: Callable[[], U], repeats: int) -> tuple[Timed[T], Timed[U]]:
    """As :func:`timed` for two works, one after the other each time, so that what disturbs one disturbs both."""
    gc.collect()
    runs = [(_once(first), _once(second)) for _ in range(1 + repeats)]
    return _told([run for run, _ in runs]), _told([run for _, run in runs])


def _once(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def _told(runs: list[tuple[T, float]]) -> Timed[T]:
    return Timed(runs[0][1], tuple(seconds for _, seconds in runs[1:]), runs[-1][0])
