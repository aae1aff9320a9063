"""What the contract suite needs of a backend under test: plays instead of commands, and a way to let time pass."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scheduler.backends.base import AttemptReport, Backend, Launch, ReplicaLaunch
from scheduler.backends.local import LocalBackend


@dataclass(frozen=True, slots=True)
class Play:
    """What one replica shall do: print, go on for some seconds, end with a code."""

    seconds: float = 0.0
    exit_code: int = 0
    output: str = ""
    stubborn: bool = False  # ignores SIGTERM
    on_term: int | None = None  # ends with this code at SIGTERM


class Harness(Protocol):
    """One backend with a world around it. A second backend joins the suite by another class like this one."""

    @property
    def backend(self) -> Backend:
        """The one under test."""

    @property
    def node(self) -> str:
        """Name of a node with at least three cards."""

    @property
    def real_output(self) -> bool:
        """Whether logs hold what plays print."""

    def order(self, attempt: str, *plays: Play, grace_s: float = 5.0, time_limit_s: float | None = None) -> Launch:
        """An order whose replica n does plays[n] on card n."""

    def wait_until(self, predicate: Callable[[], bool], *, timeout: float = 10.0) -> None:
        """Let time pass until the predicate holds; AssertionError when it does not within `timeout` seconds of it."""

    def now(self) -> float:
        """The backend's clock."""

    def restarted(self) -> Backend:
        """Another instance over the same world, as after a restart of the server."""


def report(backend: Backend, attempt: str) -> AttemptReport | None:
    """What a complete observation says of one attempt."""
    seen = backend.observe()
    assert seen.complete
    return next((one for one in seen.attempts if one.attempt == attempt), None)


def ended(harness: Harness, attempt: str, *, backend: Backend | None = None, timeout: float = 10.0) -> AttemptReport:
    """Wait for the end of an attempt, answer its report."""
    one = backend or harness.backend
    harness.wait_until(lambda: (seen := report(one, attempt)) is not None and seen.phase.ended, timeout=timeout)
    seen = report(one, attempt)
    assert seen is not None
    return seen


def running(harness: Harness, attempt: str) -> AttemptReport:
    """Wait until an attempt runs, answer its report."""
    harness.wait_until(lambda: (seen := report(harness.backend, attempt)) is not None and seen.phase == "running")
    seen = report(harness.backend, attempt)
    assert seen is not None
    return seen


def script(play: Play) -> str:
    """A play as a line of shell. The loop of short sleeps lets a trap run at once."""
    words = []
    if play.stubborn:
        words.append("trap '' TERM")
    if play.on_term is not None:
        words.append(f"trap 'exit {play.on_term}' TERM")
    words.append("echo ready >&2")  # traps are set from here on
    if play.output:
        words.append(f"printf %s {shlex.quote(play.output)}")
    if play.seconds:
        rounds = max(1, round(play.seconds / 0.05))
        words.append(f"i=0; while [ $i -lt {rounds} ]; do sleep 0.05; i=$((i+1)); done")
    words.append(f"exit {play.exit_code}")
    return "; ".join(words)


class LocalHarness:
    """Real processes in real time."""

    real_output = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.backend: LocalBackend = self.restarted()
        self.node = self.backend.node.name
        self.cwd = str(root)

    def restarted(self) -> LocalBackend:
        """See Harness."""
        return LocalBackend(self.root, log_bytes=64 * 1024, log_segments=3)

    def order(self, attempt: str, *plays: Play, grace_s: float = 5.0, time_limit_s: float | None = None) -> Launch:
        """See Harness."""
        cases = " ".join(f"{rank}) {script(play)};;" for rank, play in enumerate(plays or (Play(),)))
        return self.command(
            attempt,
            "sh",
            "-c",
            f"case $RANK in {cases} esac",
            replicas=max(1, len(plays)),
            grace_s=grace_s,
            time_limit_s=time_limit_s,
        )

    def command(
        self,
        attempt: str,
        *command: str,
        replicas: int = 1,
        grace_s: float = 5.0,
        time_limit_s: float | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        checkpoint_signal: int | None = None,
    ) -> Launch:
        """An order that runs a command."""
        return Launch(
            attempt=attempt,
            job=attempt.partition(".")[0],
            replicas=tuple(
                ReplicaLaunch("main", rank, rank, self.node, gpus=(rank,), gpu_count=1) for rank in range(replicas)
            ),
            command=command,
            env=env or {},
            cwd=cwd or self.cwd,
            grace_s=grace_s,
            time_limit_s=time_limit_s,
            checkpoint_signal=checkpoint_signal,
        )

    def wait_until(self, predicate: Callable[[], bool], *, timeout: float = 10.0) -> None:
        """See Harness."""
        until = time.monotonic() + timeout
        for pause in itertools.chain((0.005, 0.01), itertools.repeat(0.02)):
            if predicate():
                return
            assert time.monotonic() < until, "it did not come true in time"
            time.sleep(pause)

    def now(self) -> float:
        """See Harness."""
        return time.time()

    def text(self, attempt: str, replica: int = 0) -> str:
        """The whole log."""
        return self.backend.logs(attempt, replica=replica, limit=1 << 24).data.decode()
