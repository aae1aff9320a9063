"""Plays a scenario on the virtual clock, with the code that runs live."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scheduler.backends.base import Launch
from scheduler.backends.simulated import SimulatedBackend
from scheduler.drive.clock import VirtualClock
from scheduler.drive.driver import Driver
from scheduler.drive.records import AttemptRecord, JobRecord
from scheduler.drive.result import Result, result_of
from scheduler.drive.scenario import Scenario
from scheduler.drive.script import World, node_of, report_of, schedule
from scheduler.engine.roster import Roster

HORIZON = 60 * 86_400.0
"""Seconds after which a play without `until` ends, whatever still goes on."""
TELL_EVERY = 256  # turns between two calls of `progress`

Progress = Callable[[int, int], None]


def simulate(scenario: Scenario, *, progress: Progress | None = None) -> Result:
    """Play a scenario to its end. `progress` is told now and then how many jobs of how many have come to their end."""
    begun = time.perf_counter()
    driver = prepare(scenario)
    total, turns = driver.expected, 0
    while driver.step():
        turns += 1
        if scenario.until is None and not driver.expected:
            break
        if progress is not None and turns % TELL_EVERY == 0:
            progress(total - driver.expected, total)
    return result_of(driver, until=scenario.until, wall_seconds=time.perf_counter() - begun)


def prepare(scenario: Scenario) -> Driver:
    """A driver over a simulated cluster, with all that the file says in its agenda."""
    clock = VirtualClock(HORIZON if scenario.until is None else scenario.until)
    present = [spec for spec in scenario.nodes if spec.at <= 0.0]
    policy = scenario.policy
    backend = SimulatedBackend(
        now=clock.now,
        nodes=[report_of(spec) for spec in present],
        launch_delay=policy.launch_delay,
        stop_delay=policy.stop_delay,
    )
    clock.next_event_at = backend.next_event_at
    roster = Roster(scenario.quotas, policy, [node_of(spec) for spec in present], epoch=scenario.start_unix)
    driver = Driver(roster, backend, clock, order_of, seed=scenario.seed, keep_attempts=False)
    schedule(driver, scenario)
    World(driver, backend).schedule(scenario)
    return driver


def order_of(job: JobRecord, attempt: AttemptRecord) -> Launch:
    """The order to play an attempt; whatever time it takes to stop, nobody kills it."""
    return Launch(
        attempt=attempt.key,
        job=job.name,
        replicas=attempt.replicas,
        grace_s=math.inf,
        time_limit_s=job.spec.time_limit,
        profile=job.profile,
    )
