"""Reading what a job's replicas have written, from wherever its cluster keeps it. Asks no database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from scheduler.backends.base import Backend, LogChunk
from scheduler.backends.registry import create
from scheduler.inventory.models import BackendKind

PIECE = 65_536


def read_log(backend: str, attempt_key: str, *, replica: int = 0, offset: int = 0, limit: int = PIECE) -> LogChunk:
    """Up to ``limit`` bytes of the output of an attempt's replica (its rank), from ``offset`` on.

    ``backend`` is the kind of the job's cluster. Where nothing is kept the log is empty and at its end. Raises
    BackendError, TransientError where it is worth another try.
    """
    if backend != BackendKind.LOCAL:
        return LogChunk(b"", offset, offset, True)
    return _local(settings.LAYOUT.jobs).logs(attempt_key, replica=replica, offset=offset, limit=limit)


@lru_cache(maxsize=2)
def _local(root: Path) -> Backend:
    """This process's own view of the local attempts' files; who launches and ends them is elsewhere."""
    return create("local", root=root)
