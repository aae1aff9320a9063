"""Without backfill a blocked job stops every later one that could use one of its nodes; and who does not block."""

import pytest

from scheduler.engine.cluster import CardState, NodeState
from tests.engine.board import Board, assert_outcomes

TWO_POOLS = "h1: 8 H100; h2: 8 H100; m1: 8 A100"

# teams, jobs, outcomes; h1 is full in each
STRICT = {
    "a blocked job stops the later ones of its model": (
        "a; b", "x a 16 model=H100; y b 8 model=H100", {"x": "impossible", "y": "h2"}),
    "strictly in line": (
        "a; b", "x a 2x8 model=H100; y b 8 model=H100", {"x": "gpus", "y": "turn: x of a goes first"}),
    "other models go on": (
        "a; b", "x a 2x8 model=H100; y b 8 model=A100", {"x": "gpus", "y": "m1"}),
    "a job that takes either type waits behind the blocked one (C33)": (
        "a; b", "x a 2x8 model=H100; y b 8 model=H100,A100", {"x": "gpus", "y": "turn: x of a goes first"}),
    "and keeps its place in the other pool (C33)": (
        "a; b; c", "x a 2x8 model=H100; y b 8 model=H100,A100; z c 8 model=A100",
        {"x": "gpus", "y": "turn: x of a goes first", "z": "turn: y of b goes first"}),
    "one that does not fit anyway says so": (
        "a; b", "x a 2x8 model=H100; y b 3x4 model=H100", {"x": "gpus", "y": "gpus: …8 of 16 free"}),
    "earlier ones are not stopped": (
        "a; b", "y b 8 model=H100; x a 2x8 model=H100", {"y": "h2", "x": "gpus"}),
    "higher priority is earlier": (
        "a; b", "x a 2x8 model=H100; y b 8 model=H100 prio=900", {"y": "h2", "x": "gpus"}),
    "lower priority is later": (
        "a; b", "y b 8 model=H100 prio=100; x a 2x8 model=H100", {"y": "turn", "x": "gpus"}),
    "blocked by quota blocks nobody": (
        "a H100:/4; b", "x a 2x2 model=H100 at=0; v a 2 model=H100 at=1; y b 4 model=H100 at=2",
        {"x": "h2 h2", "v": "quota", "y": "h2"}),
    "blocked by a person blocks nobody": (
        "a; b", "x a 2x8 model=H100 held=maintenance; y b 8 model=H100", {"x": "held", "y": "h2"}),
    "blocked by back-off blocks nobody": (
        "a; b", "x a 2x8 model=H100 backoff=60; y b 8 model=H100", {"x": "backoff", "y": "h2"}),
    "blocked by time blocks nobody": (
        "a; b", "x a 2x8 model=H100 not_before=60; y b 8 model=H100", {"x": "not_before", "y": "h2"}),
    "blocked by another job blocks nobody": (
        "a; b", "x a 2x8 model=H100 after=train_is_running; y b 8 model=H100", {"x": "not_before", "y": "h2"}),
    "impossible blocks nobody": (
        "a; b", "x a 3x8 model=H100; y b 8 model=H100", {"x": "impossible", "y": "h2"}),
    "no such model blocks nobody": (
        "a; b", "x a 8 model=H200; y b 8 model=H100", {"x": "model", "y": "h2"}),
    "where a limit bars a model, its nodes are not blocked": (
        "a H100:/0; b; c", "r c 8 model=A100 @m1; x a 8 model=H100,A100; y b 8 model=H100; z b 1 model=A100",
        {"x": "gpus", "y": "h2", "z": "gpus"}),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICT)
def test_without_backfill(name: str) -> None:
    teams, jobs, expected = STRICT[name]
    board = Board(TWO_POOLS, teams + "; full", "r0 full 8 @h1; " + jobs, backfill=False)
    assert_outcomes(board.step(1.0), expected)


def test_with_backfill_later_ones_start() -> None:
    board = Board(TWO_POOLS, "a; b", "r0 b 8 @h1; x a 2x8 model=H100; y b 8 model=H100", backfill=True)
    assert_outcomes(board.step(1.0), {"x": "gpus", "y": "h2"})


def test_the_line_moves_on_when_the_head_starts() -> None:
    board = Board(TWO_POOLS, "a; b", "r0 b 8 @h1; x a 2x8 model=H100; y b 8 model=H100", backfill=False)
    board.step(1.0)
    board.roster.release("r0", 2.0)
    assert_outcomes(board.step(2.0), {"x": "h1 h2", "y": "gpus: needs 8 H100, 0 of 16 free"})


def test_b300_does_not_stop_b200() -> None:
    """C33: order is kept per pool."""
    nodes = "x1 x2: 8 B300; y1 y2 y3 y4 y5: 8 B200"
    jobs = "r1 a 8 @x1; r2 a 8 @x2; J1 a 8 model=B300; J2 a 8 model=B200; J3 a 2 model=B200; J4 a 1 model=B300"
    board = Board(nodes, "a", jobs, backfill=False)
    assert_outcomes(board.step(), {"J1": "gpus", "J2": "y1", "J3": "y2", "J4": "gpus"})
    board.roster.release("r1", 1.0)
    assert_outcomes(board.step(1.0), {"J1": "x1", "J4": "gpus"})


def test_a_job_that_present_healthy_hardware_cannot_hold_blocks_nobody() -> None:
    """C31: four nodes, one down."""
    jobs = "B a 4x8 prio=900; s1 b 8; s2 b 8; s3 b 8; s4 b 8"
    board = Board("n1 n2 n3 n4: 8 H100", "a; b", jobs, backfill=False)
    board.roster.set_node_state("n4", NodeState.DOWN)
    told = board.step()
    assert_outcomes(told, {"B": "unhealthy", "s1": "n1", "s2": "n2", "s3": "n3", "s4": "gpus"})
    assert "1 of 4 (n4)" in told["B"]
    board.roster.set_node_state("n4", NodeState.READY)
    assert_outcomes(board.step(150.0), {"B": "gpus", "s4": "turn: B of a goes first"})


def test_a_card_out_makes_room_for_those_behind() -> None:
    board = Board("n1: 8 H100", "a; b", "x a 8; y b 4", backfill=False)
    board.roster.set_card_state("n1", 3, CardState.OUT)
    assert_outcomes(board.step(), {"x": "unhealthy", "y": "n1:0,1,2,4"})


def test_it_blocks_the_nodes_that_it_may_use() -> None:
    board = Board(
        "n1 n2: 8 H100", "a; b", "r b 8 @n2; x a 8 not=n1; v a 2x8 not=n1; y b 8 not=n2; z b 8", backfill=False
    )
    assert_outcomes(board.step(), {"x": "gpus", "v": "excluded", "y": "n1", "z": "gpus"})
