"""A roster made from a snapshot: the same to the engine, and free to be changed."""

from hypothesis import given

from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.report.whatif import Change, what_if
from tests.engine.board import Board, job_of
from tests.engine.generated import histories
from tests.engine.test_properties import History, played


def a_board() -> Board:
    board = Board(
        "n1 n2 n3: 4 H100", "lab H100:/9; a<lab; b<lab", "r a 4 @n1; s b 2 @n2:1,2; j a 2; k b 4; l a 2 held=x"
    )
    board.roster.set_node_state("n3", NodeState.CORDONED)
    board.roster.set_card_state("n2", 3, CardState.OUT)
    return board


def test_it_knows_all_that_a_roster_knows() -> None:
    """A field that is added to the roster has to be brought over too."""
    roster = a_board().roster
    copy = what_if(roster.snapshot(5.0), roster.policy)
    skipped = {"_limits", "_states", "_cards", "_version", "_lent"}
    assert vars(copy).keys() == vars(roster).keys()
    for name in vars(roster).keys() - skipped - {"_horizon", "_lane_numbers"}:
        assert getattr(copy, name) == getattr(roster, name), name
    assert copy._lane_numbers.items() <= roster._lane_numbers.items()
    assert (copy._horizon.rows == roster._horizon.rows).all()
    assert copy._states == {"n3": NodeState.CORDONED}
    assert copy._cards == {("n2", 3): CardState.OUT}


def test_the_snapshot_stays_as_it_is() -> None:
    board = a_board()
    snapshot = board.roster.snapshot(0.0)
    before = decide(snapshot, board.roster.policy, 0.0)
    copy = what_if(snapshot, board.roster.policy)
    copy.release("r", 0.0)
    Change(job_of("m a 4", 9), back=("n2", "n3")).apply(copy)
    copy.withdraw("k")
    assert [start.job for start in decide(copy.snapshot(0.0), copy.policy, 0.0).starts] == ["j", "m"]
    assert decide(snapshot, board.roster.policy, 0.0) == before
    assert decide(board.roster.snapshot(0.0), board.roster.policy, 0.0) == before


def test_a_new_shape_gets_a_lane_of_its_own() -> None:
    """Lanes that have gone leave gaps in the numbers."""
    board = Board("n1: 4 H100", "a", "r a 4 @n1; x a 1; j a 2; k a 3")
    board.roster.withdraw("x")
    copy = what_if(board.roster.snapshot(0.0), board.roster.policy)
    copy.submit(job_of("m a 4", 7))
    assert {lane.number: [job.key for job in lane.jobs] for lane in copy.snapshot(0.0).lanes} == {
        1: ["j"],
        2: ["k"],
        3: ["m"],
    }


@given(histories)
def test_it_decides_as_the_real_one(history: History) -> None:
    for world in played(history):
        roster = world.roster
        snapshot, plan = world.step()
        copy = what_if(snapshot, roster.policy)
        assert decide(copy.snapshot(world.now), roster.policy, world.now) == plan
        copy.set_tree(copy.tree)  # all is laid out anew, from what it knows
        assert copy.ledger == snapshot.ledger
        world.start(plan)
