"""Reading a replica's output by offsets that count from its first byte, while its shim goes on rotating."""

from __future__ import annotations

from pathlib import Path

from rota_client.shim import output
from scheduler.backends.base import LogChunk, TransientError

_TRIES = 10


def read(folder: Path, *, offset: int, limit: int, ended: bool) -> LogChunk:
    """Up to `limit` bytes from `offset` on, or from the oldest byte still there; `ended` must be asked before."""
    for _ in range(_TRIES):
        begins = output.segments(str(folder))
        if not begins:
            return LogChunk(b"", offset, offset, ended)
        try:
            return _read(folder, begins, max(offset, begins[0]), limit, ended)
        except FileNotFoundError:
            continue  # rotated away between listing and opening
    raise TransientError(f"the log in {folder} rotates faster than it can be read")


def _read(folder: Path, begins: list[int], start: int, limit: int, ended: bool) -> LogChunk:
    data, at, last = b"", start, len(begins) - 1
    for number, begin in enumerate(begins):
        if number < last and begins[number + 1] <= at:
            continue
        with (folder / output.segment(begin)).open("rb") as file:
            file.seek(max(0, at - begin))
            piece = file.read(limit - len(data))
            data += piece
            at += len(piece)
            if len(data) >= limit:
                # Exactly full: at the end only if the newest segment holds nothing more.
                done = number == last and not file.read(1)
                return LogChunk(data, start, at, ended and done)
    return LogChunk(data, start, at, ended)
