"""Keeps one child running: starts it, reads what it writes, starts it again when it dies, ends it when asked.

Children are plain `Popen`s, waited for by one Reaper on SIGCHLD: asyncio's own child watchers use threads on some
versions, and a process with threads must not run code between fork and exec.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from rota.embedded.children import Child, backoff
from rota.embedded.errors import CannotStart
from rota.embedded.layout import Layout
from rota.embedded.output import Console, LogFile, Splitter, understand
from rota.embedded.processes import Identity, die_with, identify, kill_session, send
from rota.env import ROOT

STEADY = 30.0
"""A child that lived this many seconds is well: its next death is a first one again."""
LOUD_AFTER = 3
"""After so many quick deaths in a row the person is told on the terminal each time."""


class Reaper:
    """Waits for everything that ends: our children and, where we are the first process of a container, all orphans."""

    def __init__(self) -> None:
        self._watched: dict[int, tuple[subprocess.Popen[bytes], asyncio.Event]] = {}

    def watch(self, process: subprocess.Popen[bytes]) -> asyncio.Event:
        """Return the event that is set when `process` has ended; its `returncode` is then there."""
        ended = asyncio.Event()
        self._watched[process.pid] = (process, ended)
        return ended

    def __call__(self) -> None:
        """Handle SIGCHLD, which may stand for any number of ends."""
        for pid, (process, ended) in list(self._watched.items()):
            if process.poll() is not None:
                del self._watched[pid]
                ended.set()
        while (stranger := self._peek()) is not None and stranger not in self._watched:
            os.waitpid(stranger, os.WNOHANG)

    @staticmethod
    def _peek() -> int | None:
        """Some child that has ended and was not waited for yet."""
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return found.si_pid if found else None


def spawn(child: Child, handle: Callable[[str], None]) -> subprocess.Popen[bytes]:
    """Start `child` in a session of its own; `handle` gets each line that it writes."""
    owner = child.owner
    reader, writer = os.pipe()
    stdin, feed = os.pipe()
    os.write(feed, child.text)
    os.close(feed)
    try:
        process = subprocess.Popen(
            child.command,
            stdin=stdin,
            stdout=writer,
            stderr=writer,
            cwd="/" if owner else ROOT,
            env=dict(child.environment),
            start_new_session=True,
            pass_fds=child.pass_fds,
            user=owner.uid if owner else None,
            group=owner.gid if owner else None,
            extra_groups=[] if owner else None,
            preexec_fn=die_with(os.getpid(), child.orphan_signal),  # noqa: PLW1509 - this process has one thread
        )
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        os.close(stdin)
    _Reader(reader, handle)
    return process


async def run_to_end(child: Child, reaper: Reaper, handle: Callable[[str], None]) -> int:
    """Run a child once and return its exit status; broken off, it is killed first."""
    process = spawn(child, handle)
    ended = reaper.watch(process)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        kill_session(process.pid)
        await ended.wait()
        raise
    await asyncio.sleep(0.01)  # let the reader see the last of it
    return int(process.returncode)


class Keeper:
    """One child and its life. All methods run in the supervisor's event loop."""

    def __init__(
        self, child: Child, paths: Layout, console: Console, reaper: Reaper, changed: Callable[[], None]
    ) -> None:
        self.child = child
        self.identity: Identity | None = None
        self.last_line = ""
        self.failures = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log = LogFile(paths.logs / f"{child.name}.log")
        self._console, self._reaper, self._changed = console, reaper, changed
        self._ended = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the child and keep it running from now on. Raises CannotStart when its program does not run."""
        try:
            self._spawn()
        except OSError as error:
            raise CannotStart(f"{self.child.command[0]} cannot be started: {error.strerror}") from error
        self._task = asyncio.create_task(self._keep(), name=f"keep {self.child.name}")

    @property
    def pid(self) -> int | None:
        """The child's process number while it runs."""
        return self._process.pid if self._process is not None and not self._ended.is_set() else None

    async def stop(self) -> None:
        """Ask it to end, and end it by force after its grace. Afterwards nothing of it is left."""
        self._stopping.set()
        if self.pid is not None:
            send(self.pid, self.child.stop_signal)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self.child.grace)
        if self.pid is not None:
            self._console.say(f"{self.child.name} did not stop within {self.child.grace:.0f} s: killed.")
            kill_session(self.pid)
            await self._ended.wait()
        if self._task is not None:
            await self._task
        self._log.close()

    async def _keep(self) -> None:
        while True:
            began = time.monotonic()
            await self._ended.wait()
            assert self._process is not None
            kill_session(self._process.pid)  # helpers of a dead child would only be in the way of the next one
            self.identity = None
            if self._stopping.is_set():
                return
            self.failures = 0 if time.monotonic() - began > STEADY else self.failures + 1
            self._report(self._process.returncode)
            if not await self._again():
                return

    async def _again(self) -> bool:
        """Start it again after a while, until that works; False when it is to stop instead."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff(max(self.failures - 1, 0)))
            if self._stopping.is_set():
                return False
            try:
                self._spawn()
            except OSError as error:  # no memory, no process numbers, or its program is being replaced
                self.failures += 1
                self._console.say(f"{self.child.name} cannot be started: {error.strerror}; trying again.")
            else:
                return True

    def _report(self, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        again = f"starting it again in {backoff(max(self.failures - 1, 0)):.1f} s"
        self._log.write(f"supervisor: it {how}; {again}")
        detail = f" Its last line: {self.last_line}" if self.failures >= LOUD_AFTER and self.last_line else ""
        self._console.say(f"{self.child.name} {how}: {again}.{detail}")

    def _spawn(self) -> None:
        if self.child.before is not None:
            self.child.before()
        self._process = spawn(self.child, self._line)
        self._ended = self._reaper.watch(self._process)
        self.identity = identify(self._process.pid)
        self._log.write(f"supervisor: started as process {self._process.pid}")
        self._changed()

    def _line(self, raw: str) -> None:
        if not raw.strip():
            return
        self._log.write(raw)
        line = understand(raw)
        self.last_line = line.text
        if not self._stopping.is_set():
            self._console.child(self.child.name, line)


class _Reader:
    """Reads one pipe to its end inside the event loop and hands on its lines."""

    def __init__(self, descriptor: int, handle: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor, self._handle, self._splitter = descriptor, handle, Splitter()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        for line in self._splitter.feed(data) if data else self._splitter.finish():
            self._handle(line)
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
