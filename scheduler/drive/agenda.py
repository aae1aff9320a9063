"""What is to be done at which time. Equal times go by rank, then in the order in which they were written down."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count


class Rank(IntEnum):
    """The order of things that fall on the same moment."""

    JOIN = 0
    ARRIVAL = 1
    EDIT = 2
    FAULT = 3
    TIMER = 4


class Agenda:
    """A heap of actions by time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Rank, int, Callable[[float], None]]] = []
        self._numbers = count()

    def add(self, at: float, rank: Rank, action: Callable[[float], None]) -> None:
        """Let `action` be called, with the time it then is, at `at` seconds."""
        heappush(self._heap, (at, rank, next(self._numbers), action))

    def next_at(self) -> float | None:
        """When the first is due."""
        return self._heap[0][0] if self._heap else None

    def do_due(self, now: float) -> bool:
        """Do all that is due, also what that adds; True if there was anything."""
        done = False
        while self._heap and self._heap[0][0] <= now:
            heappop(self._heap)[3](now)
            done = True
        return done

    def clear(self) -> None:
        """Forget all of it."""
        self._heap.clear()
