"""The roster: what a snapshot has seen stays as it was, whatever is told afterwards."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import pytest

from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.plan import Piece
from scheduler.engine.snapshot import Phase
from tests.engine.board import Board, assert_outcomes, job_of, nodes_of, tree_of

RUNNING = "r a 2 @n1; s a 1 slice=100 @n2; j a 1; k b 2x1 slice=200"


def _join_and_release(board: Board) -> None:
    board.roster.add_nodes(nodes_of("n3: 4 H100"))
    board.roster.release("r", 5.0)


CHANGES: dict[str, Callable[[Board], object]] = {
    "submit": lambda board: board.roster.submit(job_of("new a 1")),
    "withdraw": lambda board: board.roster.withdraw("j"),
    "start": lambda board: board.roster.start("j", (Piece("main", 0, "n2", (3,)),), 5.0),
    "adopt": lambda board: board.roster.adopt(job_of("x b 1"), (Piece("main", 0, "n2", (3,)),), 5.0),
    "release whole cards": lambda board: board.roster.release("r", 5.0),
    "release a slice": lambda board: board.roster.release("s", 5.0),
    "phase": lambda board: board.roster.set_phase("r", Phase.STOPPING),
    "node state": lambda board: board.roster.set_node_state("n1", NodeState.DOWN),
    "card state": lambda board: board.roster.set_card_state("n1", 3, CardState.OUT),
    "join": lambda board: board.roster.add_nodes(nodes_of("n3: 4 H100")),
    "leave": lambda board: board.roster.remove_node("n1"),
    "join, then release": _join_and_release,
    "teams": lambda board: board.roster.set_tree(tree_of("b; a *:/1")),
    "apply": lambda board: board.apply(board.decide(5.0), 5.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_snapshot_stays_as_it_was(name: str) -> None:
    board = Board("n1 n2: 4 H100", "a; b", RUNNING)
    snapshot = board.roster.snapshot(0.0)
    before, ledger, running = copy(snapshot), snapshot.ledger.copy(), dict(snapshot.running)
    plan = decide(snapshot, board.roster.policy, 0.0)
    CHANGES[name](board)
    assert snapshot == before
    assert snapshot.ledger == ledger
    assert snapshot.running == running
    assert decide(snapshot, board.roster.policy, 0.0) == plan


def test_a_decision_leaves_its_snapshot_as_it_was() -> None:
    board = Board("n1 n2: 4 H100", "a; b", RUNNING)
    snapshot = board.roster.snapshot(0.0)
    ledger, used = snapshot.ledger.copy(), snapshot.used
    plans = [decide(snapshot, board.roster.policy, 0.0) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].starts
    assert (snapshot.ledger, snapshot.used) == (ledger, used)


def test_each_snapshot_has_a_version_of_its_own() -> None:
    roster = Board("n1: 1 H100").roster
    assert roster.snapshot(0.0).version < roster.snapshot(0.0).version


def test_a_key_submitted_again_is_the_same_job() -> None:
    board = Board("n1: 8 H100", "a; b", "j a 4; k b 4")
    board.roster.submit(replace(job_of("j a 8"), submitted=9.0))
    assert_outcomes(board.step(), {"j": "gpus: needs 8 GPUs, 4 of 8 free", "k": "n1"})


def test_who_waits_and_runs_can_be_asked() -> None:
    board = Board("n1: 8 H100", "a; b", "r a 4 @n1; j a 4")
    roster = board.roster
    assert roster.waiting("j") is not None
    assert roster.waiting("r") is None
    assert roster.running("r") is not None
    assert roster.running("j") is None
    for ask in (roster.withdraw, roster.lane_of):
        with pytest.raises(KeyError):
            ask("r")
    with pytest.raises(KeyError):
        roster.release("j", 0.0)


def test_a_node_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        Board("n1: 8 H100; n1: 4 H100")


def test_a_node_that_comes_back_finds_its_jobs_on_it() -> None:
    board = Board("n1 n2: 4 H100", "a; b", "r a 3 @n1; s b 1 slice=500 @n1; j a 1")
    board.roster.remove_node("n1")
    board.roster.add_nodes(nodes_of("n1: 4 H100"))
    board.roster.set_node_state("n2", NodeState.DOWN)
    assert_outcomes(board.step(), {"j": "gpus: needs 1 GPU, 0 of 4 free"})
    board.roster.release("s", 1.0)
    assert_outcomes(board.step(1.0), {"j": "n1:3"})


def test_cards_that_a_node_no_longer_has_do_not_come_back() -> None:
    board = Board("n1: 4 H100", "a", "j a 3")
    for state in (CardState.OUT, CardState.OK):
        board.roster.set_card_state("n1", 3, state)
    board.roster.add_nodes(nodes_of("n1: 2 H100"))
    assert_outcomes(board.step(), {"j": "impossible: one replica needs 3 GPUs, the largest node has 2"})
    assert board.roster.snapshot(0.0).ledger.free == [0b11]


def test_states_survive_other_nodes_joining() -> None:
    board = Board("n1 n2: 4 H100", "a", "j a 4; k a 1")
    board.roster.set_node_state("n1", NodeState.CORDONED)
    board.roster.set_card_state("n2", 0, CardState.OUT)
    board.roster.add_nodes(nodes_of("n0: 1 H100"))
    assert_outcomes(board.step(), {"j": "unhealthy", "k": "n0"})
    assert board.roster.node_state("n1") is NodeState.CORDONED
