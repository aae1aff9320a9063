"""The two clocks a driver may go by: a virtual one that jumps, and the real one that waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

POLL_SECONDS = 0.05
"""How long the real clock rests at most while something runs: nobody wakes us when a process ends."""


class Clock(Protocol):
    """Seconds since the start of the drive."""

    def now(self) -> float:
        """What time it is."""

    def rest(self, due: float | None, *, live: bool) -> bool:
        """Let time pass until `due`, or until something may have happened; `live`: attempts are alive.

        False, and no time passes, when nothing can ever happen any more.
        """


class VirtualClock:
    """Jumps to what comes first, what is due or what `next_event_at` of the world knows; never beyond `horizon`."""

    def __init__(self, horizon: float, next_event_at: Callable[[], float | None] = lambda: None) -> None:
        self.horizon = horizon
        self.next_event_at = next_event_at
        self._now = 0.0

    def now(self) -> float:
        """See Clock."""
        return self._now

    def rest(self, due: float | None, *, live: bool) -> bool:
        """See Clock."""
        event = self.next_event_at()
        if due is None or (event is not None and event < due):
            due = event
        if due is None or due > self.horizon:
            return False
        self._now = max(self._now, due)
        return True


class RealClock:
    """Real seconds, of a clock that nobody sets. `unix` is the Unix time of its zero."""

    def __init__(self) -> None:
        self.unix = time.time()
        self._zero = time.monotonic()

    def now(self) -> float:
        """See Clock."""
        return time.monotonic() - self._zero

    def rest(self, due: float | None, *, live: bool) -> bool:
        """See Clock. Never rests long, so that a signal is answered at once."""
        if due is None and not live:
            return False
        left = POLL_SECONDS if due is None else due - self.now()
        time.sleep(min(POLL_SECONDS, max(0.0, left)))
        return True
