"""A whole Rota started by a test, in a home of its own, with `rota up`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from rota.embedded import state
from rota.embedded.layout import Layout, recorded
from rota.embedded.place import OUTSIDE
from rota.embedded.processes import Identity, is_alive, read_stat
from rota.env import ROOT
from tests.services import clean_environ


class Running:
    """One Rota: start it, hurt it, look at it."""

    def __init__(self, home: Path, program: tuple[str, ...] = ("-m", "rota.embedded", "up")) -> None:
        self.home, self.port = home, free_port()
        self.program = (sys.executable, *program)
        self.output = home.with_name(f"{home.name}.out")
        self.more: dict[str, str] = {}
        """Further variables of its environment."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        return clean_environ(ROTA_HOME=str(self.home), PORT=str(self.port), ROTA_DEMO="0", **self.more)

    @property
    def paths(self) -> Layout:
        return recorded(self.home, os.getuid())

    @property
    def printed(self) -> str:
        return self.output.read_text(errors="replace")

    def start(self, *, seconds: float = 100) -> float:
        """Start it, wait until it says that it is up, and return how many seconds that took."""
        began = time.monotonic()
        self.begin()
        until(lambda: "Rota is up" in self.printed or self.ended, seconds, lambda: self.printed)
        assert not self.ended, self.printed
        return time.monotonic() - began

    def begin(self) -> None:
        """Start it and do not wait."""
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*self.program, "--verbose"], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=self.environ, cwd=ROOT, start_new_session=True,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `rota WORDS` on the same home."""
        command = [sys.executable, "-m", "rota.embedded", *words]
        return subprocess.run(
            command, env=self.environ, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    def child(self, name: str) -> Identity:
        """A child as it is now; waits for it to be there."""
        found: list[Identity] = []

        def there() -> bool:
            now = state.load(self.paths.state)
            found[:] = [now.children[name]] if now and name in now.children else []
            return bool(found) and is_alive(found[0])

        until(there, 20, lambda: self.printed)
        return found[0]

    def children(self) -> dict[str, Identity]:
        now = state.load(self.paths.state)
        return dict(now.children) if now else {}

    def ready(self) -> bool:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal to the supervisor; return its exit status and the seconds until it was gone."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(30), time.monotonic() - began

    def everything_of_it(self) -> list[str]:
        """Processes that work in this home, by what they say in their arguments or environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            stat = read_stat(int(entry.name))
            if stat is None or stat.state in "ZX":
                continue
            try:
                said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(self.home).encode() in said:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(happened: Callable[[], object], seconds: float, explain: Callable[[], object] = lambda: "") -> None:
    """Wait for something; fail with an explanation when it does not come."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"not within {seconds} s: {explain()}"
        time.sleep(0.05)


@contextmanager
def a_home(*, reachable: bool = True) -> Iterator[Path]:
    """A folder for a home, and afterwards no process and no file of it. As root it may be out of PostgreSQL's reach."""
    base = Path(tempfile.mkdtemp(prefix="rota-up-", dir="/tmp"))
    base.chmod(0o755 if reachable else 0o700)
    home = base / "home"
    try:
        yield home
    finally:
        data = recorded(home, os.getuid()).data
        if data != home and data.is_relative_to(OUTSIDE):
            shutil.rmtree(data, ignore_errors=True)
        sockets = recorded(home, os.getuid()).sockets
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


@contextmanager
def a_rota(home: Path, *program: str) -> Iterator[Running]:
    """A Rota that is up; it is ended afterwards, with everything that belongs to it."""
    rota = Running(home, program) if program else Running(home)
    try:
        rota.start()
        yield rota
    finally:
        if not rota.ended:
            rota.stop()
        rota.command("down", "--jobs")
