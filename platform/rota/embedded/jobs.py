"""Ends the jobs of this machine, which otherwise outlive Rota."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from scheduler.backends.base import BackendError
from scheduler.backends.local import LocalBackend

WHY = "ended by rota down --jobs"
LONGEST_GRACE = 30.0


def end_local_jobs(root: Path, say: Callable[[str], None], grace: float = LONGEST_GRACE) -> bool:
    """Ask every running attempt below `root` to end, by force after `grace` seconds at most. False if one is left.

    The shims write down how each ended, so a later start of Rota still learns it.
    """
    if not root.exists():
        say("No local job runs.")
        return True
    try:
        backend = LocalBackend(root)
        running = _running(backend)
        for attempt in running:
            backend.stop(attempt, grace_s=grace, why=WHY)
        say(f"Ending {len(running)} local job{'s' * (len(running) > 1)}." if running else "No local job runs.")
        until = time.monotonic() + grace + 10
        while running and time.monotonic() < until:
            time.sleep(0.1)
            running = _running(backend)
    except BackendError as error:
        say(str(error))
        return False
    for attempt in running:
        say(f"{attempt} does not end; its files are in {root}.")
    return not running


def _running(backend: LocalBackend) -> list[str]:
    return [report.attempt for report in backend.observe().attempts if not report.phase.ended]
