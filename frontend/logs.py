"""The output of a job as the pages show it: a piece of plain text at a time, wherever its backend keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from frontend.plain import plain_text
from jobs.models import Attempt, Job
from scheduler.backends.base import BackendError
from scheduler.logs import read_log

LOG_BYTES = 128 * 1024


class Piece(NamedTuple):
    """Text from ``offset`` on; ask with ``next`` next. ``eof``: nothing follows. ``problem``: why there is none now."""

    text: str
    offset: int
    next: int
    eof: bool
    problem: str = ""


def log_piece(job: Job, number: int | None, *, replica: int, offset: int, limit: int) -> Piece:
    """The next piece of a replica's output; ``number`` None: of the newest attempt."""
    attempt = _attempt(job, number)
    if attempt is None:
        return Piece("", offset, offset, eof=False)
    try:
        chunk = read_log(job.cluster.backend, attempt.key, replica=replica, offset=offset, limit=limit)
    except BackendError as error:
        return Piece("", offset, offset, eof=False, problem=str(error))
    text, used = plain_text(chunk.data, last=chunk.eof)
    ended = chunk.eof and (attempt.ended_at is not None)
    return Piece(text, chunk.offset, chunk.next_offset - (len(chunk.data) - used), ended)


def whole_log(job: Job, number: int | None, *, replica: int) -> Iterator[bytes]:
    """All that is kept of a replica's output, as it was written."""
    attempt = _attempt(job, number)
    offset, eof = 0, attempt is None
    while not eof and attempt is not None:
        chunk = read_log(job.cluster.backend, attempt.key, replica=replica, offset=offset, limit=LOG_BYTES)
        yield chunk.data
        eof = chunk.eof or chunk.next_offset == offset
        offset = chunk.next_offset


def _attempt(job: Job, number: int | None) -> Attempt | None:
    attempts = job.attempts.filter(number=number) if number else job.attempts.order_by("-number")
    return attempts.first()
