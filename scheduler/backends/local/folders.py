"""The folder of a root and those of its attempts, as they lie on disk.

`<root>/id` tells roots apart; `<root>/attempts/<attempt>/order.json` is what was launched, beside it `stop` and a
folder for each rank (see `rota_client.shim.records`). Names that begin with a dot are being made or removed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from pathlib import Path

from rota_client.shim import records

ORDER = "order.json"
_ID = "id"
_STALE = 3600.0  # seconds


def open_root(root: Path) -> str:
    """Make the root if it is missing, and answer its id: random, made once. OSError where it cannot be used."""
    attempts = root / "attempts"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    attempts.mkdir(mode=0o700, exist_ok=True)
    for entry in attempts.glob(".*"):  # of a server that died while it made or removed one
        if entry.stat().st_mtime < time.time() - _STALE:
            shutil.rmtree(entry, ignore_errors=True)
    path = f"{root}/{_ID}"
    records.write(path, [(_ID, secrets.token_hex(8))], replace=False)
    record = records.read(path)
    if not record:
        raise OSError(0, "its file `id` is damaged")
    return records.first(record, _ID)


def place(final: Path, order: bytes, specs: list[list[tuple[str, str]]]) -> bool:
    """Put a whole attempt in place in one step; False when there was one already. OSError leaves nothing behind."""
    draft = final.with_name(f".new-{final.name}-{secrets.token_hex(4)}")
    draft.mkdir(mode=0o700)
    try:
        (draft / ORDER).write_bytes(order)
        for rank, spec in enumerate(specs):
            (draft / str(rank)).mkdir(mode=0o700)
            records.write(f"{draft}/{rank}/{records.SPEC}", spec, sync=False)
        draft.rename(final)  # refused while `final` is a folder with something in it
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if final.exists():
            return False
        raise
    return True


def remove(final: Path) -> None:
    """Take an attempt out in one step, then delete it; does nothing when it is not there."""
    trash = final.with_name(f".gone-{final.name}-{secrets.token_hex(4)}")
    try:
        final.rename(trash)
    except FileNotFoundError:
        return
    shutil.rmtree(trash, ignore_errors=True)


def has_shim(replica: Path) -> bool:
    """Whether a shim has, had, or is about to have this replica."""
    return any((replica / name).exists() for name in (records.EXIT, records.SHIM)) or is_held(replica)


def is_held(replica: Path) -> bool:
    """Whether some process holds the replica's lock: its shim, for as long as it lives."""
    fd = _try_lock(replica)
    if fd is None:
        return True
    os.close(fd)
    return False


def write_lost(replica: Path, note: str) -> None:
    """Close a replica's record for good, unless a shim holds it or has closed it: a late shim finds it closed."""
    fd = _try_lock(replica)
    if fd is None:
        return
    try:
        now = repr(time.time())
        pairs = [("cause", "lost"), ("note", note), ("ended", now), ("at", now)]
        records.write(f"{replica}/{records.EXIT}", pairs, replace=False)
    finally:
        os.close(fd)


def _try_lock(replica: Path) -> int | None:
    fd = os.open(replica / records.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd
