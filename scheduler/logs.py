"""Reading what a job's replicas have written, from wherever its cluster keeps it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from jobs.models import Attempt
from scheduler.backends.base import Backend, LogChunk
from scheduler.backends.registry import create
from scheduler.connect import Connections
from scheduler.inventory.models import BackendKind

PIECE = 65_536
_CONNECTIONS = Connections()


def read_log(backend: str, attempt_key: str, *, replica: int = 0, offset: int = 0, limit: int = PIECE) -> LogChunk:
    """Up to ``limit`` bytes of the output of an attempt's replica (its rank), from ``offset`` on.

    ``backend`` is the kind of the job's cluster; of a local one no row is read. Where nothing is kept the log is empty
    and at its end. Raises BackendError, TransientError where it is worth another try.
    """
    if backend == BackendKind.LOCAL:
        source = _local(settings.LAYOUT.jobs)
    else:
        attempt = Attempt.objects.select_related("job__cluster").filter(key=attempt_key).first()
        if attempt is None:
            return LogChunk(b"", offset, offset, True)
        source = _CONNECTIONS.backend_of(attempt.job.cluster)
    return source.logs(attempt_key, replica=replica, offset=offset, limit=limit)


@lru_cache(maxsize=2)
def _local(root: Path) -> Backend:
    """This process's own view of the local attempts' files; who launches and ends them is elsewhere."""
    return create("local", root=root)
