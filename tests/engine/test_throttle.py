"""Back-pressure: how many may start at once, per minute, and per minute and team."""

import pytest

from scheduler.engine.cycle import decide
from scheduler.engine.snapshot import Phase
from tests.engine.board import Board, assert_outcomes

NODES = "n1 n2: 8 H100"
FOUR = "j1 a 1; j2 a 1; k1 b 1; k2 b 1"

# limits, outcomes
THROTTLES = {
    "none": ({}, {"j1": "starts", "j2": "starts", "k1": "starts", "k2": "starts"}),
    "so many starting at once": (
        {"max_starting": 3},
        {"j1": "starts", "j2": "starts", "k1": "starts", "k2": "backpressure: jobs starting: 3, the limit is 3"}),
    "so many a minute": (
        {"starts_per_minute": 3},
        {"k1": "starts", "k2": "backpressure: jobs started in the last minute: 3, the limit is 3"}),
    "so many a minute and team": (
        {"team_starts_per_minute": 1},
        {"j1": "starts", "j2": "backpressure: jobs of a started in the last minute: 1, the limit is 1",
         "k1": "starts", "k2": "backpressure: jobs of b started in the last minute: 1, the limit is 1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", THROTTLES)
def test_throttle(name: str) -> None:
    limits, expected = THROTTLES[name]
    assert_outcomes(Board(NODES, "a; b", FOUR, backpressure=limits).step(), expected)


def test_jobs_that_run_no_longer_count_as_starting() -> None:
    board = Board(NODES, "a; b", FOUR, backpressure={"max_starting": 3})
    board.step()
    assert_outcomes(board.step(1.0), {"k2": "backpressure"})
    board.roster.set_phase("j1", Phase.RUNNING)
    assert_outcomes(board.step(2.0), {"k2": "starts"})


def test_a_job_that_ended_while_it_started_no_longer_counts() -> None:
    board = Board(NODES, "a; b", FOUR, backpressure={"max_starting": 3})
    board.step()
    board.roster.release("j1", 1.0)
    assert_outcomes(board.step(1.0), {"k2": "starts"})


@pytest.mark.parametrize("limit", ["starts_per_minute", "team_starts_per_minute"])
def test_a_start_counts_for_sixty_seconds(limit: str) -> None:
    board = Board(NODES, "a", "j1 a 1; j2 a 1", backpressure={limit: 1})
    plan = board.decide(10.0)
    board.step(10.0)
    assert len(plan.starts) == 1
    assert plan.wake_at == 70.0, "the plan says when the next one may start"
    assert_outcomes(board.step(69.9), {"j2": "backpressure"})
    assert_outcomes(board.step(70.0), {"j2": "starts"})


def test_a_snapshot_may_be_older_than_the_decision() -> None:
    board = Board(NODES, "a", "j1 a 1; j2 a 1", backpressure={"starts_per_minute": 1})
    board.step(10.0)
    snapshot = board.roster.snapshot(11.0)
    assert not decide(snapshot, board.roster.policy, 69.9).starts
    assert decide(snapshot, board.roster.policy, 70.0).starts


def test_in_any_sixty_seconds_no_more_start_than_allowed() -> None:
    board = Board("n1: 64 H100", "a", "; ".join(f"j{n} a 1" for n in range(40)), backpressure={"starts_per_minute": 7})
    started: list[float] = []
    for tenth in range(0, 3_000, 37):
        now = tenth / 10
        started += [now for outcome in board.step(now).values() if ": " not in outcome]
    assert len(started) >= 30
    assert max(sum(at - 60 < other <= at for other in started) for at in started) == 7


def test_one_that_does_not_fit_says_so_rather_than_blaming_the_throttle() -> None:
    board = Board("n1: 8 H100", "a; b", "j a 8; k a 8; l a 12", backpressure={"starts_per_minute": 1})
    assert_outcomes(board.step(), {"j": "n1", "k": "gpus", "l": "impossible"})


def test_requeued_teams_keep_their_starts_when_the_tree_changes() -> None:
    board = Board(NODES, "a; b", "j1 a 1; j2 a 1; k1 b 1", backpressure={"team_starts_per_minute": 1})
    board.roster.start("j1", board.decide(0.0).starts[0].pieces, 0.0)
    board.roster.set_tree(Board(NODES, "b; a").roster.tree)
    assert_outcomes(board.step(1.0), {"j2": "backpressure: jobs of a started in the last minute: 1, …", "k1": "starts"})


def test_without_limits_per_minute_nothing_is_remembered_to_wait_for() -> None:
    board = Board(NODES, "a", "j1 a 1; j2 a 16", backpressure={"max_starting": 1})
    assert board.decide(0.0).wake_at is None
