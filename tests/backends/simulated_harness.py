"""The simulated backend for the contract suite: plays become profiles, and time passes from event to event."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from scheduler.backends.base import Backend, CardReport, Launch, NodeReport, ReplicaLaunch
from scheduler.backends.simulated import SimulatedBackend
from tests.backends.harness import Play

NODE = NodeReport(
    name="n0",
    model="H100",
    gpus=tuple(CardReport(uuid=f"GPU-n0-{index}", index=index, memory_mib=81_920, virtual=True) for index in range(4)),
    cpus=64,
    memory_mib=1 << 20,
)


@dataclass(frozen=True)
class Work:
    """A profile: some seconds of work, then an exit code."""

    duration: float | None = 60.0
    code: int = 0
    run_for: tuple[float, ...] = ()
    hang_at: float | None = None
    hang_attempts: int = 1
    checkpoint_every: float | None = None

    def exit_code(self, attempt: int, /) -> int:
        return self.code

    def hangs(self, attempt: int, /) -> bool:
        return self.hang_at is not None and attempt <= self.hang_attempts


class SimulatedHarness:
    """One node of four cards; two more like it where a test wants them."""

    node = NODE.name
    real_output = False

    def __init__(self, *, nodes: int = 1, launch_delay: float = 0.0, stop_delay: float = 0.0) -> None:
        self.clock = 1_000.0
        every = [replace(NODE, name=f"n{number}") for number in range(nodes)]
        self.simulated = SimulatedBackend(now=self.now, nodes=every, launch_delay=launch_delay, stop_delay=stop_delay)
        self.backend: Backend = self.simulated

    def now(self) -> float:
        return self.clock

    def restarted(self) -> Backend:
        pytest.skip("the simulated world lives in its backend")

    def order(self, attempt: str, *plays: Play, grace_s: float = 5.0, time_limit_s: float | None = None) -> Launch:
        plays = plays or (Play(),)
        if len(set(plays)) > 1 or plays[0].on_term is not None:
            pytest.skip("the replicas of a simulated gang all do the same and set no traps")
        self.simulated.stop_delay = math.inf if plays[0].stubborn else 0.0
        work = Work(plays[0].seconds, plays[0].exit_code)
        return self.launch_of(attempt, work, replicas=len(plays), grace_s=grace_s, time_limit_s=time_limit_s)

    def launch_of(
        self,
        attempt: str,
        work: Work,
        *,
        replicas: int = 1,
        nodes: tuple[str, ...] = ("n0",),
        grace_s: float = math.inf,
        time_limit_s: float | None = None,
    ) -> Launch:
        """An order whose replica n lies on card n of the nth node, the last node taking the rest."""
        places = [nodes[min(rank, len(nodes) - 1)] for rank in range(replicas)]
        return Launch(
            attempt=attempt,
            job=attempt.partition(".")[0],
            replicas=tuple(
                ReplicaLaunch("main", rank, rank, node, gpus=(rank,), gpu_count=1) for rank, node in enumerate(places)
            ),
            grace_s=grace_s,
            time_limit_s=time_limit_s,
            profile=work,
        )

    def wait_until(self, predicate: Callable[[], bool], *, timeout: float = 10.0) -> None:
        until = self.clock + timeout
        while not predicate():
            following = self.simulated.next_event_at()
            assert following is not None, "it never came true"
            assert following <= until, "it did not come true in time"
            self.clock = max(self.clock, following)
