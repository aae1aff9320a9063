"""Backends under test, each with a world of its own that must be empty in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_client.shim import processes
from tests.backends.harness import Harness, LocalHarness
from tests.backends.simulated_harness import SimulatedHarness


def zombies() -> set[int]:
    """Children of this process that have ended and that nobody has collected."""
    return {seen.pid for seen in processes.everyone() if seen.dead and seen.parent == os.getpid()}


def processes_of(root: Path) -> list[str]:
    """Command lines of living processes that work for this root: marked by it, or its shims."""
    id_file = root / "id"
    mark = b"ROTA_SHIM=" + id_file.read_bytes().strip().partition(b"=")[2] if id_file.exists() else b"\0none"
    found = []
    for seen in processes.everyone():
        try:
            line = Path(f"/proc/{seen.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark in processes.environment(seen.pid) or os.fsencode(root) + b"/" in line:
            found.append(f"{seen.pid} {seen.state} " + line.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHarness]:
    """The local backend; whatever a test did, no process is left once its attempts are stopped."""
    before = zombies()
    harness = LocalHarness(tmp_path / "root")
    yield harness
    backend = harness.restarted()
    for attempt in backend.observe().attempts:
        backend.stop(attempt.attempt, grace_s=0)
    left: list[str] = []
    for _ in range(250):
        harness.backend.observe()
        every = backend.observe().attempts
        left = processes_of(harness.root) + [f"zombie {pid}" for pid in zombies() - before]
        if not left and all(attempt.phase.ended for attempt in every):
            return
        time.sleep(0.02)
    pytest.fail(f"left behind: {left}")


@pytest.fixture
def simulated() -> SimulatedHarness:
    """The simulated backend on a clock of its own."""
    return SimulatedHarness()


@pytest.fixture(params=["local", "simulated"])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Every backend in turn."""
    found: Harness = request.getfixturevalue(request.param)
    return found
