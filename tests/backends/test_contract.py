"""What every backend promises (see scheduler.backends.base), asked of each in turn."""

from __future__ import annotations

import pytest

from scheduler.backends.base import Backend, Cause, PermanentError, Phase
from tests.backends.harness import Harness, Play, ended, report, running

pytestmark = pytest.mark.timeout(30)


def test_it_has_all_of_the_protocol(harness: Harness) -> None:
    assert isinstance(harness.backend, Backend)
    assert harness.backend.name
    assert harness.backend.chooses_gpu in (True, False)


def test_nodes_are_reported_whole(harness: Harness) -> None:
    seen = harness.backend.observe()
    assert seen.complete
    assert seen.attempts == ()
    node = next(node for node in seen.nodes if node.name == harness.node)
    assert node.ready
    assert [card.index for card in node.gpus] == list(range(len(node.gpus)))
    assert len({card.uuid for card in node.gpus}) == len(node.gpus) >= 3
    assert all(card.memory_mib > 0 for card in node.gpus)
    assert node.cpus > 0
    assert node.memory_mib > 0
    assert node.model


@pytest.mark.parametrize("code", [0, 1, 3, 77])
def test_the_exit_code_is_the_commands(harness: Harness, code: int) -> None:
    before = harness.now()
    harness.backend.launch(harness.order("job.1", Play(seconds=0.1, exit_code=code)))
    seen = ended(harness, "job.1")
    assert (seen.phase, seen.exit_code, seen.signal, seen.cause) == (Phase.EXITED, code, None, Cause.SELF)
    assert seen.started is not None
    assert before <= seen.started <= seen.at <= harness.now()
    assert [replica.exit_code for replica in seen.replicas] == [code]
    assert seen.replicas[0].node == harness.node


def test_it_runs_before_it_ends(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=0.4)))
    first = report(harness.backend, "job.1")
    assert first is not None
    assert first.phase in (Phase.STARTING, Phase.RUNNING)
    seen = running(harness, "job.1")
    assert (seen.exit_code, seen.cause, seen.at) == (None, Cause.NONE, seen.started)
    assert ended(harness, "job.1").started == seen.started


def test_launching_again_changes_nothing(harness: Harness) -> None:
    order = harness.order("job.1", Play(seconds=0.3, output="once"))
    for _ in range(3):
        harness.backend.launch(order)
    seen = running(harness, "job.1")
    harness.backend.launch(order)
    last = ended(harness, "job.1")
    assert last.started == seen.started
    harness.backend.launch(order)
    assert report(harness.backend, "job.1") == last
    if harness.real_output:
        assert harness.backend.logs("job.1").data.count(b"once") == 1


def test_a_stopped_attempt_ends_and_says_why(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=60)))
    running(harness, "job.1")
    harness.backend.stop("job.1", why="cancelled by ada")
    harness.backend.stop("job.1", why="another word")
    seen = ended(harness, "job.1")
    assert (seen.phase, seen.cause, seen.note) == (Phase.EXITED, Cause.STOPPED, "cancelled by ada")
    assert seen.signal == 15
    assert seen.exit_code == 143
    harness.backend.stop("job.1")
    assert report(harness.backend, "job.1") == seen


def test_stopping_what_nobody_knows_is_no_error(harness: Harness) -> None:
    harness.backend.stop("nobody.1", grace_s=1, why="x")
    harness.backend.forget("nobody.1")
    assert report(harness.backend, "nobody.1") is None


def test_a_command_may_end_well_within_its_grace(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=60, on_term=0, output="up")))
    _printed(harness, "job.1")
    harness.backend.stop("job.1", why="preempted")
    seen = ended(harness, "job.1")
    assert (seen.exit_code, seen.signal, seen.cause) == (0, None, Cause.STOPPED)


def test_after_the_grace_comes_the_kill(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=60, stubborn=True, output="up"), grace_s=30))
    _printed(harness, "job.1")
    asked = harness.now()
    harness.backend.stop("job.1", grace_s=0.5)
    seen = ended(harness, "job.1")
    assert (seen.exit_code, seen.signal, seen.cause) == (137, 9, Cause.STOPPED)
    assert 0.4 <= seen.at - asked < 3


def test_a_shorter_grace_counts_from_then_on(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=60, stubborn=True, output="up")))
    _printed(harness, "job.1")
    harness.backend.stop("job.1", grace_s=60, why="slowly")
    asked = harness.now()
    harness.backend.stop("job.1", grace_s=0.2, why="now")
    seen = ended(harness, "job.1")
    assert (seen.signal, seen.note) == (9, "slowly")
    assert seen.at - asked < 5


def test_the_time_limit_ends_it(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=60), time_limit_s=0.5))
    seen = ended(harness, "job.1")
    assert (seen.cause, seen.signal) == (Cause.TIME_LIMIT, 15)
    assert seen.started is not None
    assert 0.45 <= seen.at - seen.started < 3


def test_a_gang_ends_well_when_all_do(harness: Harness) -> None:
    harness.backend.launch(harness.order("gang.1", Play(seconds=0.1), Play(seconds=0.3), Play()))
    seen = ended(harness, "gang.1")
    assert (seen.exit_code, seen.cause) == (0, Cause.SELF)
    assert [(one.rank, one.exit_code, one.cause) for one in seen.replicas] == [(n, 0, Cause.SELF) for n in range(3)]


def test_one_failing_replica_ends_its_gang(harness: Harness) -> None:
    plays = (Play(seconds=60), Play(seconds=0.5, exit_code=5), Play(seconds=60, stubborn=True))
    harness.backend.launch(harness.order("gang.1", *plays, grace_s=0.5))
    seen = ended(harness, "gang.1")
    assert (seen.phase, seen.exit_code, seen.signal, seen.cause) == (Phase.EXITED, 5, None, Cause.SELF)
    assert [one.cause for one in seen.replicas] == [Cause.PEER, Cause.SELF, Cause.PEER]
    assert [one.signal for one in seen.replicas] == [15, None, 9]


def test_an_attempt_has_not_ended_while_one_replica_runs(harness: Harness) -> None:
    harness.backend.launch(harness.order("gang.1", Play(), Play(seconds=0.8)))
    harness.wait_until(
        lambda: (seen := report(harness.backend, "gang.1")) is not None and seen.replicas[0].phase is Phase.EXITED
    )
    seen = report(harness.backend, "gang.1")
    assert seen is not None
    assert not seen.phase.ended
    assert ended(harness, "gang.1").exit_code == 0


def test_a_cursor_tells_only_what_changed(harness: Harness) -> None:
    for name in ("a.1", "b.1"):
        harness.backend.launch(harness.order(name, Play(seconds=60)))
        running(harness, name)
    cursor = harness.backend.observe().cursor
    quiet = harness.backend.observe(cursor)
    assert (quiet.complete, quiet.attempts, quiet.nodes) == (False, (), ())
    harness.backend.stop("b.1", grace_s=0)
    harness.wait_until(lambda: any(one.phase.ended for one in harness.backend.observe(cursor).attempts))
    seen = harness.backend.observe(cursor)
    assert [one.attempt for one in seen.attempts] == ["b.1"]
    assert seen.cursor > cursor
    assert harness.backend.observe(seen.cursor).attempts == ()
    assert [one.attempt for one in harness.backend.observe().attempts] == ["a.1", "b.1"]


@pytest.mark.parametrize("cursor", [-1, 2**70])
def test_a_cursor_it_never_gave_is_answered_with_everything(harness: Harness, cursor: int) -> None:
    harness.backend.launch(harness.order("job.1", Play()))
    ended(harness, "job.1")
    seen = harness.backend.observe(cursor)
    assert seen.complete
    assert seen.nodes
    assert [one.attempt for one in seen.attempts] == ["job.1"]


def test_forgetting_drops_what_has_ended_only(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=60)))
    running(harness, "job.1")
    with pytest.raises(PermanentError):
        harness.backend.forget("job.1")
    harness.backend.stop("job.1", grace_s=0)
    ended(harness, "job.1")
    harness.backend.forget("job.1")
    harness.backend.forget("job.1")
    assert report(harness.backend, "job.1") is None
    assert harness.backend.logs("job.1").eof


def test_logs_are_read_by_offsets(harness: Harness) -> None:
    if not harness.real_output:
        pytest.skip("plays print nothing here")
    harness.backend.launch(harness.order("job.1", Play(seconds=0.4, output="0123456789")))
    _printed(harness, "job.1")
    whole = b"ready\n0123456789"
    live = harness.backend.logs("job.1", limit=8)
    assert (live.data, live.offset, live.next_offset, live.eof) == (whole[:8], 0, 8, False)
    ended(harness, "job.1")
    rest = harness.backend.logs("job.1", offset=live.next_offset)
    assert (rest.data, rest.offset, rest.next_offset, rest.eof) == (whole[8:], 8, 16, True)
    exact = harness.backend.logs("job.1", limit=16)
    assert (exact.data, exact.eof) == (whole, True)
    beyond = harness.backend.logs("job.1", offset=16)
    assert (beyond.data, beyond.next_offset, beyond.eof) == (b"", 16, True)


def test_a_log_that_nobody_wrote_is_empty(harness: Harness) -> None:
    chunk = harness.backend.logs("nobody.1", offset=7)
    assert (chunk.data, chunk.next_offset, chunk.eof) == (b"", 7, True)
    harness.backend.launch(harness.order("job.1", Play()))
    assert harness.backend.logs("job.1", replica=9).eof


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD", "ROTA_ANYTHING"])
def test_reserved_variables_are_refused_by_name(harness: Harness, name: str) -> None:
    order = harness.order("job.1", Play())
    bad = type(order)(**{key: getattr(order, key) for key in order.__slots__} | {"env": {"OK": "1", name: "1"}})
    with pytest.raises(PermanentError, match=name):
        harness.backend.launch(bad)
    assert report(harness.backend, "job.1") is None


def test_another_instance_takes_over(harness: Harness) -> None:
    harness.backend.launch(harness.order("job.1", Play(seconds=0.5, exit_code=9)))
    harness.backend.launch(harness.order("job.2", Play(seconds=60)))
    running(harness, "job.1")
    running(harness, "job.2")
    old = harness.backend.observe().cursor
    second = harness.restarted()
    assert second.observe(old).complete
    second.stop("job.2")
    assert ended(harness, "job.1", backend=second).exit_code == 9
    assert ended(harness, "job.2", backend=second).cause is Cause.STOPPED


def _printed(harness: Harness, attempt: str) -> None:
    """Wait until the play has set its traps and printed; without real output it does so when it runs."""
    running(harness, attempt)
    if harness.real_output:
        harness.wait_until(lambda: len(harness.backend.logs(attempt).data) > len("ready\n"))
