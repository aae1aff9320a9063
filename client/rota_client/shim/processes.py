"""Facts about processes from /proc, and signals that hit only the process they were meant for.

A pid alone is no identity: it is reused. A pid with its start time (field 22 of /proc/<pid>/stat, in clock ticks since
boot) and the boot's id is.
"""

from __future__ import annotations

import os
import signal

from . import records

_BOOT_FILE = "/proc/sys/kernel/random/boot_id"


class Identity:
    """A process that cannot be mistaken for a later one with the same pid."""

    __slots__ = ("boot", "pid", "start")

    def __init__(self, pid: int, start: int, boot: str) -> None:
        self.pid, self.start, self.boot = pid, start, boot

    def pairs(self) -> list[tuple[str, str]]:
        """As the first lines of a record."""
        return [("pid", str(self.pid)), ("start", str(self.start)), ("boot", self.boot)]


class Stat:
    """What /proc/<pid>/stat says that matters here."""

    __slots__ = ("group", "parent", "pid", "session", "start", "state")

    def __init__(self, pid: int, state: str, parent: int, group: int, session: int, start: int) -> None:
        self.pid, self.state, self.parent = pid, state, parent
        self.group, self.session, self.start = group, session, start

    @property
    def dead(self) -> bool:
        """A zombie has ended, only nobody has asked how yet."""
        return self.state in "ZXx"


def boot_id() -> str:
    """The id of this boot of the machine, empty where the kernel does not tell."""
    try:
        with open(_BOOT_FILE, "rb", buffering=0) as file:
            return file.read().decode().strip()
    except OSError:
        return ""


def stat(pid: int) -> Stat | None:
    """The process's stat, None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read()
    except OSError:
        return None
    # The name in parentheses may hold blanks and parentheses itself: what follows the last one is regular.
    fields = line[line.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def identify(pid: int, boot: str) -> Identity | None:
    """The identity of a process that lives (or is a zombie) now."""
    seen = stat(pid)
    return Identity(pid, seen.start, boot) if seen else None


def from_record(record: records.Record) -> Identity | None:
    """The identity that `Identity.pairs` wrote, None where the record has none."""
    try:
        return Identity(
            int(records.first(record, "pid")), int(records.first(record, "start")), records.first(record, "boot")
        )
    except ValueError:
        return None


def alive(who: Identity, boot: str) -> bool:
    """True while this very process runs; a reused pid or another boot is not it."""
    if who.boot != boot:
        return False
    seen = stat(who.pid)
    return seen is not None and seen.start == who.start and not seen.dead


def send(who: Identity, signum: int, boot: str) -> bool:
    """Signal this very process; False when it is gone. The pidfd pins it between the check and the signal."""
    try:
        fd = os.pidfd_open(who.pid)
    except OSError:
        return False
    try:
        if not alive(who, boot):
            return False
        signal.pidfd_send_signal(fd, signum)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def everyone() -> list[Stat]:
    """All processes that this one may see, zombies too."""
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [seen for seen in found if seen]


def descendants(ancestor: int) -> list[Stat]:
    """All living processes below `ancestor`, nearest first. Time is linear in the number of processes."""
    children: dict[int, list[Stat]] = {}
    for seen in everyone():
        children.setdefault(seen.parent, []).append(seen)
    below, queue = [], [ancestor]
    for pid in queue:  # grows while it is walked
        for seen in children.get(pid, ()):
            queue.append(seen.pid)
            if not seen.dead:
                below.append(seen)
    return below


def environment(pid: int) -> bytes:
    """The environment that a process was started with, NUL between variables; empty where it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
