"""What only the simulated backend does: a clock of its own, delays, checkpoints, and hardware that breaks on demand."""

from __future__ import annotations

import pytest

from scheduler.backends.base import AttemptReport, Cause, PermanentError, Phase
from scheduler.backends.simulated import FENCE_S
from tests.backends.harness import report
from tests.backends.simulated_harness import NODE, SimulatedHarness, Work


def seen(world: SimulatedHarness, attempt: str) -> AttemptReport:
    found = report(world.backend, attempt)
    assert found is not None
    return found


def test_delays_stand_before_the_work_and_after_the_word() -> None:
    world = SimulatedHarness(launch_delay=20, stop_delay=7)
    world.backend.launch(world.launch_of("a.1", Work(100)))
    world.backend.launch(world.launch_of("b.1", Work(100)))
    assert (seen(world, "a.1").phase, world.simulated.next_event_at()) == (Phase.STARTING, 1_020)
    world.clock = 1_050
    assert (seen(world, "a.1").phase, seen(world, "a.1").started) == (Phase.RUNNING, 1_020)
    world.backend.stop("b.1", why="preempted")
    world.clock = 2_000
    assert (seen(world, "a.1").at, seen(world, "a.1").cause) == (1_120, Cause.SELF)
    assert (seen(world, "b.1").at, seen(world, "b.1").cause) == (1_057, Cause.STOPPED)


@pytest.mark.parametrize(
    ("every", "ran", "left"), [(None, 95.0, 100.0), (30.0, 95.0, 10.0), (30.0, 29.0, 100.0), (30.0, 30.0, 70.0)]
)
def test_a_stopped_attempt_resumes_from_its_last_checkpoint(every: float | None, ran: float, left: float) -> None:
    world = SimulatedHarness()
    work = Work(100, checkpoint_every=every)
    world.backend.launch(world.launch_of("a.1", work))
    world.clock += ran
    world.backend.stop("a.1")
    world.backend.launch(world.launch_of("a.2", work))
    begun = world.clock
    world.wait_until(lambda: seen(world, "a.2").phase.ended, timeout=1_000)
    assert seen(world, "a.2").at - begun == left


def test_ending_exactly_at_the_limit_is_ending_by_itself() -> None:
    world = SimulatedHarness(stop_delay=5)
    world.backend.launch(world.launch_of("exact.1", Work(60), time_limit_s=60))
    world.backend.launch(world.launch_of("over.1", Work(61), time_limit_s=60))
    world.clock += 100
    assert (seen(world, "exact.1").cause, seen(world, "exact.1").at) == (Cause.SELF, 1_060)
    assert (seen(world, "over.1").cause, seen(world, "over.1").at) == (Cause.TIME_LIMIT, 1_065)


def test_an_attempt_that_hangs_ends_only_when_it_is_told() -> None:
    world = SimulatedHarness()
    work = Work(100, hang_at=50, checkpoint_every=20)
    world.backend.launch(world.launch_of("a.1", work))
    world.clock += 10_000
    assert seen(world, "a.1").phase is Phase.RUNNING
    world.backend.stop("a.1")
    world.backend.launch(world.launch_of("a.2", work))
    world.clock += 60  # 40 were saved, and the second attempt does not hang
    assert (seen(world, "a.2").phase, seen(world, "a.2").exit_code) == (Phase.EXITED, 0)


def test_a_gang_on_a_dark_node_is_lost_at_the_fence() -> None:
    world = SimulatedHarness(nodes=2)
    world.backend.launch(world.launch_of("gang.1", Work(1_000), replicas=2, nodes=("n0", "n1")))
    world.backend.launch(world.launch_of("other.1", Work(1_000), nodes=("n1",)))
    world.simulated.node_down("n0")
    assert [node.ready for node in world.backend.observe().nodes] == [False, True]
    world.clock += FENCE_S - 1
    assert seen(world, "gang.1").phase is Phase.RUNNING
    world.clock += 1
    assert (seen(world, "gang.1").phase, seen(world, "gang.1").cause) == (Phase.LOST, Cause.LOST)
    assert seen(world, "other.1").phase is Phase.RUNNING


def test_what_ends_in_the_dark_is_heard_of_when_contact_is_back() -> None:
    world = SimulatedHarness()
    world.backend.launch(world.launch_of("a.1", Work(30)))
    world.simulated.node_down("n0")
    world.clock += 60
    assert seen(world, "a.1").phase is Phase.RUNNING
    world.simulated.node_up("n0")
    assert (seen(world, "a.1").phase, seen(world, "a.1").exit_code) == (Phase.EXITED, 0)
    world.clock += FENCE_S
    assert seen(world, "a.1").phase is Phase.EXITED
    assert world.backend.observe().nodes[0].ready


def test_a_removed_node_takes_its_attempts_with_it() -> None:
    world = SimulatedHarness(nodes=2)
    cursor = world.backend.observe().cursor
    world.backend.launch(world.launch_of("a.1", Work(30)))
    world.simulated.remove_node("n0")
    assert [one.phase for one in world.backend.observe(cursor).attempts] == [Phase.LOST]
    assert [node.name for node in world.backend.observe().nodes] == ["n1"]
    with pytest.raises(PermanentError, match=r"replicas\[0\].node: there is no node 'n0'"):
        world.backend.launch(world.launch_of("a.2", Work(30)))
    world.simulated.add_node(NODE)
    world.backend.launch(world.launch_of("a.2", Work(30)))
    assert seen(world, "a.2").phase is Phase.RUNNING


def test_without_a_profile_it_runs_until_it_is_told() -> None:
    world = SimulatedHarness()
    world.backend.launch(world.launch_of("a.1", Work(None)))
    world.clock += 1e9
    assert seen(world, "a.1").phase is Phase.RUNNING
    assert world.simulated.next_event_at() is None
