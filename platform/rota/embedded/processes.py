"""Facts about processes and the few system calls of a supervisor. Linux first; elsewhere the safe subset of it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if LINUX else None


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, not merely one number: numbers are used again, a number with its start time is not."""

    pid: int
    started: str
    """Start time in clock ticks since boot, as the kernel writes it; empty where the kernel does not tell."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What we need of /proc/<pid>/stat."""

    state: str
    session: int
    started: str


def read_stat(pid: int, proc: Path = Path("/proc")) -> Stat | None:
    """Return the process's state, or None when there is none of that number."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may itself hold spaces and brackets
    return Stat(state=fields[0], session=int(fields[3]), started=fields[19])


def identify(pid: int) -> Identity:
    """The identity of a process that runs now."""
    stat = read_stat(pid)
    return Identity(pid, stat.started if stat else "")


def is_alive(identity: Identity) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    if LINUX:
        stat = read_stat(identity.pid)
        return stat is not None and stat.state not in "ZX" and identity.started in ("", stat.started)
    try:
        os.kill(identity.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def command_line(pid: int) -> list[str]:
    """The arguments of a process, empty when it is gone or the system does not tell."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def members(session: int) -> list[int]:
    """The living processes of a session. Local jobs are never among them: each has a session of its own."""
    found = []
    for entry in Path("/proc").iterdir() if LINUX else ():
        if entry.name.isdigit():
            stat = read_stat(int(entry.name))
            if stat is not None and stat.session == session and stat.state not in "ZX":
                found.append(int(entry.name))
    return found


def working_in(folder: Path) -> list[int]:
    """The living processes whose working folder is `folder`: all of a PostgreSQL server work in their data."""
    found = []
    for entry in Path("/proc").iterdir() if LINUX else ():
        if not entry.name.isdigit():
            continue
        try:
            here = (entry / "cwd").readlink()
        except OSError:  # gone, a zombie, or not ours to look at
            continue
        if here == folder:
            found.append(int(entry.name))
    return found


def kill_session(session: int) -> None:
    """SIGKILL whatever is left of a child's session."""
    for pid in members(session) if LINUX else [-session]:
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> bool:
    """Send a signal; False when there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def die_with(parent: int, number: int) -> Callable[[], None]:
    """What a child runs between fork and exec: be sent `number` by the kernel when `parent` dies.

    Runs after the change of user, which would clear it again. On other systems it does nothing.
    """
    prctl, getppid, leave = (_libc.prctl if _libc else None), os.getppid, os._exit

    def prepare() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
            if getppid() != parent:  # it died before we asked
                leave(1)

    return prepare
