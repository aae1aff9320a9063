"""A loop that can be killed: the real services and tables around a simulated backend, with a fuse in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import Any

from django.db import connection
from django.utils import timezone

from jobs.models import Job
from scheduler.backends.base import Launch, LogChunk, Observation, TransientError
from scheduler.backends.simulated import SimulatedBackend
from scheduler.inventory.models import Allocation
from scheduler.loop import Loop
from scheduler.observing import Found, take_in
from scheduler.rounds import dispatch, observe
from scheduler.selectors import why_waiting
from scheduler.timings import Timings
from tests.integration.world import World, make_world, node


class Killed(BaseException):
    """The process has died here: nothing catches it, and what was not committed is gone."""


@dataclass
class Fuse:
    """Kills whoever takes its nth step; a step is a statement to the database, or either side of a backend's call."""

    left: int | None = None

    def burn(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left <= 0:
            self.left = None
            raise Killed

    @contextmanager
    def lit(self, steps: int) -> Iterator[None]:
        """Kill the ``steps``-th step from here on, if it comes to that."""
        self.left = steps
        try:
            with connection.execute_wrapper(self._statement):
                yield
        finally:
            self.left = None

    def _statement(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.burn()
        return execute(*arguments)


@dataclass(frozen=True)
class Play:
    """What an attempt does in the simulated backend."""

    duration: float | None = 40.0
    code: int = 0
    run_for: tuple[float, ...] = ()
    hang_at: float | None = None
    checkpoint_every: float | None = None

    def exit_code(self, attempt: int, /) -> int:
        return self.code

    def hangs(self, attempt: int, /) -> bool:
        return False


@dataclass
class Cluster:
    """The simulated backend as a network would show it: calls fail before or after they had their effect."""

    fuse: Fuse
    chooses_gpu: bool = True
    name: str = "simulated"
    resizes: bool = False
    plays: dict[str, Play] = field(default_factory=dict)
    """By job key."""
    fail: str = ""
    """`before` or `after`: how the next launch, or stop, fails for the moment."""
    refuse: Exception | None = None
    silent: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.real = SimulatedBackend(now=lambda: timezone.now().timestamp(), launch_delay=1.0, stop_delay=2.0)

    def observe(self, cursor: int | None = None) -> Observation:
        if self.silent:
            raise TransientError("no route to the cluster")
        self.fuse.burn()
        seen = self.real.observe(cursor)
        self.fuse.burn()
        return seen

    def launch(self, order: Launch) -> None:
        self.calls.append(("launch", order.attempt))
        if self.refuse is not None:
            raise self.refuse
        play = self.plays.get(order.job, Play())
        self._call(lambda: self.real.launch(replace(order, profile=play)))

    def resize(self, order: Launch) -> None:
        self._call(lambda: self.real.resize(order))

    def stop(self, attempt: str, *, grace_s: float | None = None, why: str = "") -> None:
        self.calls.append(("stop", attempt))
        self._call(lambda: self.real.stop(attempt, grace_s=grace_s, why=why))

    def forget(self, attempt: str) -> None:
        self._call(lambda: self.real.forget(attempt))

    def logs(self, attempt: str, *, replica: int = 0, offset: int = 0, limit: int = 65536) -> LogChunk:
        return self.real.logs(attempt, replica=replica, offset=offset, limit=limit)

    def alive(self) -> set[str]:
        """The attempts that run over there."""
        return {report.attempt for report in self.real.observe().attempts if not report.phase.ended}

    def holders(self) -> dict[tuple[str, int], list[str]]:
        """Who really holds each card as a whole."""
        found: dict[tuple[str, int], list[str]] = {}
        for key, attempt in self.real._attempts.items():
            for replica in attempt.order.replicas if not attempt.phase.ended else ():
                for card in replica.gpus if not replica.mib else ():
                    found.setdefault((replica.node, card), []).append(key)
        return found

    def _call(self, act: Callable[[], None]) -> None:
        how, self.fail = self.fail, ""
        self.fuse.burn()
        if how == "before":
            raise TransientError("connection refused")
        act()
        if how == "after":
            raise TransientError("timed out")
        self.fuse.burn()


@dataclass
class Stage:
    """A world with its backend and the processes around it, of which each can be killed and started again."""

    world: World
    backend: Cluster
    fuse: Fuse
    loops: list[Loop] = field(default_factory=list)
    cursor: int | None = None
    chances: Iterator[int] = field(default_factory=count)

    def loop(self, number: int = 0) -> Loop:
        """The roster-keeping process of that number."""
        while len(self.loops) <= number:
            self.loops.append(Loop(timings=Timings()))
        return self.loops[number]

    def tick(self, number: int = 0) -> Any:
        return self.loop(number).tick(self.world.cluster.pk)

    def dispatch(self) -> Any:
        self.world.cluster.refresh_from_db()
        return dispatch(self.world.cluster, self.backend, clock=timezone.now, chance=self.chance)

    def observe(self, *, complete: bool = False) -> Found:
        self.world.cluster.refresh_from_db()
        before, self.cursor = self.cursor, None
        self.cursor, _, found = observe(
            self.world.cluster, self.backend, None if complete else before, clock=timezone.now, chance=self.chance
        )
        return found

    def take_in(self, seen: Observation, begun: datetime) -> Found:
        return take_in(self.world.cluster.pk, seen, begun=begun, now=timezone.now(), chance=self.chance)

    def chance(self) -> float:
        return next(self.chances) % 7 / 7

    def all_three(self) -> None:
        self.tick()
        self.dispatch()
        self.observe()


def make_stage(nodes: int = 2, gpus: int = 4, *, chooses_gpu: bool = True) -> Stage:
    """A stage whose cluster has been looked at once."""
    fuse = Fuse()
    backend = Cluster(fuse, chooses_gpu)
    reports = [node(f"n{number}", gpus=gpus) for number in range(1, nodes + 1)]
    for report in reports:
        backend.real.add_node(report)
    stage = Stage(make_world(*reports, chooses_gpu=chooses_gpu, synced=False), backend, fuse)
    stage.observe(complete=True)
    return stage


def reason(job: Job) -> str:
    fresh = Job.objects.select_related("cluster").get(pk=job.pk)
    return why_waiting([fresh], timezone.now())[fresh.pk].hold.reason.value


def state(job: Job) -> str:
    return str(Job.objects.values_list("state", flat=True).get(pk=job.pk))


def held(stage: Stage) -> int:
    return Allocation.objects.filter(node__cluster=stage.world.cluster, released_at=None).count()
