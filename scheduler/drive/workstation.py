"""Runs the real commands of a file on this machine's cards: the driver on the real clock, over the local backend."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from scheduler.backends.base import Launch, NodeReport
from scheduler.backends.local import LocalBackend
from scheduler.drive.agenda import Rank
from scheduler.drive.clock import POLL_SECONDS, RealClock
from scheduler.drive.driver import Driver, OnMove
from scheduler.drive.records import AttemptRecord, JobRecord
from scheduler.drive.result import Result, result_of
from scheduler.drive.scenario import Scenario
from scheduler.drive.script import schedule
from scheduler.engine.cluster import Node
from scheduler.engine.demand import MIB_PER_GIB
from scheduler.engine.policy import Elastic
from scheduler.engine.roster import Roster

END_SECONDS = 10.0
"""How long to wait, at the very end, until what was killed is gone."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Run:
    """How it went; `logs` holds a folder for each attempt."""

    result: Result
    interrupted: bool
    logs: Path


class Workstation:
    """This machine as a cluster of one node. Raises PermanentError where it cannot be used as it is set up."""

    def __init__(self, scenario: Scenario, root: Path, *, on_move: OnMove) -> None:
        self.backend = LocalBackend(root)
        self.root = root
        self.node: NodeReport = self.backend.node
        self.clock = RealClock()
        policy = replace(scenario.policy, elastic=Elastic(enabled=False))  # real processes keep their number
        roster = Roster(scenario.quotas, policy, [node_of(self.node)], epoch=self.clock.unix)
        self.driver = Driver(roster, self.backend, self.clock, self._order_of, seed=scenario.seed, on_move=on_move)
        schedule(self.driver, scenario)
        if scenario.until is not None:
            self.driver.agenda.add(
                scenario.until, Rank.TIMER, lambda now: self.driver.close("the file's time is over", now)
            )

    @property
    def virtual(self) -> bool:
        """Whether its cards are no real ones."""
        return any(card.virtual for card in self.node.gpus)

    def logs_of(self, attempt: AttemptRecord) -> Path:
        """The folder of an attempt, with one for each of its replicas."""
        return self.root / "attempts" / attempt.key

    def run(self, on_turn: Callable[[Driver], None]) -> Run:
        """Run everything to its end. A first SIGINT, SIGTERM or SIGHUP ends it cleanly, a second one at once."""
        driver, begun = self.driver, time.perf_counter()
        with _counted_signals() as signals:
            answered = 0
            try:
                while driver.step():
                    on_turn(driver)
                    if signals.count > answered:
                        answered = signals.count
                        driver.close("interrupted", self.clock.now(), grace=None if answered == 1 else 0.0)
                    if not driver.live and (driver.closed or not driver.expected):
                        break
            finally:
                self._leave_nothing_behind()
            on_turn(driver)
        result = result_of(driver, until=None, wall_seconds=time.perf_counter() - begun)
        return Run(result, bool(answered), self.root)

    def _leave_nothing_behind(self) -> None:
        """Kill whatever still runs: does nothing after a normal end, everything after a failure of our own."""
        driver, until = self.driver, time.monotonic() + END_SECONDS
        if driver.live:
            driver.close("rota run ended", self.clock.now(), grace=0.0)
        while driver.live and time.monotonic() < until:
            driver.observe()
            time.sleep(POLL_SECONDS)

    def _order_of(self, job: JobRecord, attempt: AttemptRecord) -> Launch:
        spec = job.spec
        return Launch(
            attempt=attempt.key,
            job=job.name,
            replicas=attempt.replicas,
            command=spec.command,
            env=dict(spec.env),
            cwd=None if spec.cwd is None else str(Path(spec.cwd).absolute()),
            grace_s=spec.grace,
            time_limit_s=spec.time_limit,
            checkpoint_signal=spec.checkpoint_signal,
        )


def node_of(report: NodeReport) -> Node:
    """This machine as the engine knows it."""
    memory = min((card.memory_mib for card in report.gpus), default=0)
    return Node(
        name=report.name,
        gpus=len(report.gpus),
        model=report.model or "none",
        vram_mib=memory,
        reserve_mib=min(MIB_PER_GIB, memory),
        cpus_milli=1_000 * report.cpus,
        memory_mib=report.memory_mib,
        labels=tuple(sorted(report.labels.items())),
        taints=report.taints,
    )


def new_root(parent: Path | None) -> Path:
    """A fresh folder for the logs of one run, in `parent` or among the system's temporary ones; OSError if it fails."""
    if parent is None:
        return Path(tempfile.mkdtemp(prefix="rota-run-"))
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=time.strftime("run-%Y%m%d-%H%M%S-"), dir=parent.absolute()))


class _Signals:
    """How many have come."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def _counted_signals() -> Iterator[_Signals]:
    """Count the signals that end us instead of dying of them."""
    signals = _Signals()
    before = {number: signal.signal(number, signals) for number in _SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
