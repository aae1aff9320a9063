"""The small text files through which shim and backend talk: `key=value` lines, written atomically.

One attempt is a folder; in it lie `stop` (whoever first ended it, and why) and a folder for each rank with `spec`
(what to start), `lock` (held by its shim), `shim` and `started` (identities), `exit` (how it ended), and the output.
A key may repeat (`arg`, `env`); newlines and backslashes in values are escaped, other bytes pass as they are.
"""

from __future__ import annotations

import os

SPEC, LOCK, SHIM, STARTED, EXIT, STOP = "spec", "lock", "shim", "started", "exit", "stop"

Record = dict[str, list[str]]


def encode(pairs: list[tuple[str, str]]) -> bytes:
    """One line for each pair, in order; the inverse of `decode`."""
    lines = [f"{key}=" + value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in pairs]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def decode(data: bytes) -> Record:
    """All values of each key, in order. A line without `=` is a torn file: ValueError."""
    record: Record = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        key, sign, value = line.partition("=")
        if not sign:
            raise ValueError(f"not a record: {line[:80]!r}")
        # Every escape is two characters, so splitting at double backslashes from the left never tears one.
        plain = "\\".join(piece.replace("\\n", "\n") for piece in value.split("\\\\"))
        record.setdefault(key, []).append(plain)
    return record


def read(path: str) -> Record | None:
    """The record, or None where there is none (or only a torn one, which counts as none)."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        return decode(data) or None
    except (OSError, ValueError):
        return None


def first(record: Record, key: str, default: str = "") -> str:
    """The only (or first) value of a key."""
    values = record.get(key)
    return values[0] if values else default


def write(path: str, pairs: list[tuple[str, str]], *, sync: bool = True, replace: bool = True) -> bool:
    """Write a record so that a reader sees all of it or nothing, also after a power cut if `sync`.

    Without `replace` an existing file stays as it is and the answer is False: the first writer wins.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            data = encode(pairs)
            while data:
                data = data[os.write(fd, data) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        if replace:
            os.rename(temporary, path)
            return True
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True
    finally:
        # After a rename there is nothing to remove; after a failure the half-written file must not stay.
        try:
            os.unlink(temporary)
        except OSError:
            pass
