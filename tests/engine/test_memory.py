"""Card memory in whole MiB: slices, the driver's reserve, head room, and cards that become whole again."""

import pytest

from quotas.limits import NANO
from tests.engine.board import Board, assert_outcomes, lines, nodes_of


def slices(count: int, mib: int) -> str:
    return "; ".join(f"s{number} a 1 slice={mib}" for number in range(count))


def fits(nodes: str, count: int, mib: int) -> int:
    return len(Board(nodes, jobs=slices(count, mib)).decide().starts)


def share(mib: int, percent: int) -> int:
    return mib * percent // 100


def test_rounding_admits_no_slice_too_many() -> None:
    """C35: 46068 MiB hold 23 slices of 2000 MiB; the 24th waits, and starts when one ends."""
    board = Board("n1: 1 L40 mib=46068", jobs=slices(24, 2000))
    told = board.step()
    assert [job for job, outcome in told.items() if outcome == "n1:0"] == [f"s{number}" for number in range(23)]
    assert told["s23"] == "vram: needs 1 × 2000 MiB, room for 0: the most left on one card is 68 MiB"
    board.roster.release("s7", 5.0)
    assert board.step(5.0) == {"s23": "n1:0"}


# C37, fractions of cards of 10000 MiB without reserve
@pytest.mark.parametrize(
    ("nodes", "count", "percent", "expected"),
    [
        pytest.param("n1: 8 L40 mib=10000", 60, 15, 48, id="a: six a card, not 53"),
        pytest.param("n1 n2: 8 L40 mib=10000", 80, 18, 80, id="b: five a card"),
        pytest.param("n1 n2: 8 L40 mib=10000", 81, 18, 80, id="b: and no sixth"),
        pytest.param("n1: 1 L40 mib=10000", 11, 10, 10, id="d: ten tenths"),
    ],
)
def test_fractions_live_on_one_card(nodes: str, count: int, percent: int, expected: int) -> None:
    assert fits(nodes, count, share(10_000, percent)) == expected


@pytest.mark.parametrize("placement", ["binpack", "spread", "hybrid"])
def test_a_slice_is_never_split(placement: str) -> None:
    """C37 c: two cards with half of each free do not hold 0.8."""
    running = "r1 a 1 slice=5000 @n1:0; r2 a 1 slice=5000 @n1:1"
    board = Board("n1: 2 L40 mib=10000", jobs=f"{running}; j a 1 slice=8000", placement=placement)
    assert_outcomes(board.step(), {"j": "vram: needs 1 × 8000 MiB, room for 0: the most left on one card is 5000 MiB"})


def test_after_its_last_slice_a_card_is_whole_again() -> None:
    """C37 d."""
    board = Board("n1: 1 L40 mib=10000", jobs=slices(10, 1000))
    board.step()
    board.add("whole b 1")
    for number in range(10):
        assert_outcomes(board.step(float(number)), {"whole": "gpus: needs 1 GPU, 0 of 1 free"})
        board.roster.release(f"s{number}", float(number))
    assert board.step(10.0) == {"whole": "n1:0"}


def test_shares_leave_no_dust() -> None:
    """C37 e: three times 0.3 and once 0.1 fill the card, and the account, exactly."""
    board = Board("n1: 1 L40 mib=10000", jobs=slices(3, 3000) + "; t a 1 slice=1000; u a 1 slice=1")
    assert_outcomes(board.step(), {"s0": "n1:0", "s1": "n1:0", "s2": "n1:0", "t": "n1:0", "u": "vram"})
    snapshot = board.roster.snapshot(0)
    assert snapshot.ledger.shared == {0: 0}
    assert snapshot.used[snapshot.limits.at(0).slot(0, "L40")] == NANO


def test_the_reserve_is_the_drivers() -> None:
    assert fits("n1: 1 L40 vram=10 reserve=1", 10, 1024) == 9
    assert fits("n1: 1 L40 vram=10 reserve=0", 10, 1024) == 10
    assert fits("n1: 1 L40 vram=10 reserve=0.5", 20, 512) == 19
    board = Board("n1: 1 L40 vram=10 reserve=1", jobs="j a 1 slice=9216; k a 1 slice=9217")
    assert_outcomes(board.step(), {"j": "n1", "k": "model: needs 9.001 GiB on each card, no GPU has more than 9 GiB …"})


def test_head_room_is_for_inference_alone() -> None:
    nodes = "n1: 1 L40 mib=10000"
    for kind, fitting in (("inference", 8), ("training", 10), ("interactive", 10)):
        jobs = "; ".join(f"s{number} a 1 slice=1000 kind={kind}" for number in range(11))
        board = Board(nodes, jobs=jobs, inference_headroom=0.25)
        assert len(board.decide().starts) == fitting, kind
    assert {piece.mib for start in board.decide().starts for piece in start.pieces} == {1000}


def test_head_room_is_rounded_up_and_tells_the_backend() -> None:
    board = Board("n1: 1 L40 mib=10000", jobs="s a 1 slice=1001 kind=inference", inference_headroom=0.1)
    assert [piece.mib for piece in board.decide().starts[0].pieces] == [1102]


def test_new_head_room_holds_for_those_who_wait() -> None:
    board = Board("n1: 1 L40 mib=10000", jobs="s a 1 slice=10000 kind=inference")
    board.roster.set_policy(Board("n1: 1 L40", inference_headroom=0.5).roster.policy)
    assert_outcomes(board.step(), {"s": "model"})


def test_slices_keep_off_whole_cards_and_whole_jobs_off_shared_ones() -> None:
    board = Board("n1: 2 L40 mib=10000", jobs="w a 1 @n1:0; s a 1 slice=1000; v a 1; t a 1 slice=9000; u a 1 slice=1")
    assert board.step() == {
        "s": "n1:1", "v": "gpus: needs 1 GPU, 0 of 2 free", "t": "n1:1",
        "u": "vram: needs 1 × 1 MiB, room for 0: the most left on one card is 0 MiB",
    }  # fmt: skip


# placement, what runs, where the next slice of 2000 goes; cards of 10000
@pytest.mark.parametrize(
    ("placement", "running", "expected"),
    [
        ("binpack", "r1 a 1 slice=3000 @n1:1; r2 a 1 slice=8000 @n2:0", "n2:0"),
        ("binpack", "r1 a 1 slice=3000 @n1:1; r2 a 1 slice=8001 @n2:0", "n1:1"),
        ("binpack", "r1 a 1 slice=8000 @n2:1; r2 a 1 slice=8000 @n2:0", "n2:0"),
        ("binpack", "r1 a 1 slice=8000 @n2:1; r2 a 1 slice=8000 @n1:1", "n1:1"),
        ("binpack", "r1 a 1 @n2:0", "n2:1"),
        ("hybrid", "r1 a 1 slice=3000 @n1:1; r2 a 1 slice=8000 @n2:0", "n2:0"),
        ("spread", "r1 a 1 slice=3000 @n1:1; r2 a 1 slice=8000 @n2:0", "n1:0"),
        ("spread", "w a 2 @n1; v a 1 @n2:1; r2 a 1 slice=8000 @n2:0; r1 b 1 slice=1000 @n3:0; u b 1 @n3:1", "n3:0"),
    ],
)
def test_which_card_takes_a_slice(placement: str, running: str, expected: str) -> None:
    nodes = "n1 n2 n3: 2 L40 mib=10000" if "n3" in running else "n1 n2: 2 L40 mib=10000"
    board = Board(nodes, jobs=f"{running}; j a 1 slice=2000", placement=placement)
    assert board.step() == {"j": expected}


# the cards of one replica are distinct cards of one node; of several replicas they may be the same
@pytest.mark.parametrize(
    ("running", "job", "expected"),
    [
        ("", "j a 2 slice=6000", "n1:0-1"),
        ("", "j a 3 slice=6000", "impossible"),
        ("r a 1 slice=5000 @n1:0; q a 1 @n1:1", "j a 2 slice=3000", "n2:0-1"),
        pytest.param(
            "r a 1 slice=9000 @n1:0; q a 1 slice=9000 @n2:1", "j a 2 slice=3000", "fragmented", id="each too full"
        ),
        ("r a 1 slice=4000 @n2:0; q a 1 slice=4000 @n2:1", "j a 2 slice=6000", "n2:0-1"),
        ("r a 2 @n1; q a 1 slice=9000 @n2:1", "j a 2 slice=3000", "fragmented"),
        ("r a 2 @n1; q a 1 @n2:1", "j a 3x2 slice=3000", "vram"),
    ],
)
def test_slices_of_several_cards(running: str, job: str, expected: str) -> None:
    assert_outcomes(Board("n1 n2: 2 L40 mib=10000", jobs=f"{running}; {job}").step(), {"j": expected})


@pytest.mark.parametrize("placement", ["binpack", "spread", "hybrid"])
def test_replicas_of_several_slices_find_the_way_that_there_is(placement: str) -> None:
    """Three replicas of two slices each on three cards that hold two slices each: each pair of cards once."""
    board = Board("n1: 3 L40 mib=20", jobs="j a 3x2 slice=10", placement=placement)
    assert_outcomes(board.step(), {"j": "n1 n1 n1"})


def test_memory_is_counted_by_the_cards_own_size() -> None:
    """A slice counts as its memory over the card's, the reserve not taken off."""
    board = Board("n1: 1 L40 vram=10 reserve=1", "a L40:/0.5; b", jobs="j a 1 slice=5120; k a 1 slice=1")
    assert_outcomes(board.step(), {"j": "n1", "k": "quota"})


def test_shrunken_cards_have_nothing_left_and_no_less() -> None:
    board = Board("n1: 1 L40 mib=10000", jobs="r a 1 slice=6000 @n1:0; q a 1 slice=3000 @n1:0; j a 1 slice=100")
    board.roster.add_nodes(nodes_of("n1: 1 L40 mib=8000"))
    assert_outcomes(board.step(), {"j": "vram: needs 1 × 100 MiB, room for 0: the most left on one card is 0 MiB"})
    board.roster.release("q", 1.0)
    assert_outcomes(board.step(1.0), {"j": "n1:0"})
    assert board.roster.snapshot(1.0).ledger.shared == {0: 1900}
    for job in ("r", "j"):
        board.roster.release(job, 2.0)
    board.add("whole a 1")
    assert_outcomes(board.step(2.0), {"whole": "n1:0"})


def test_slices_on_cards_that_the_node_no_longer_has_touch_no_others() -> None:
    jobs = "r a 1 slice=6000 @n1:3; q a 4 @n2"
    board = Board("n1: 4 L40 mib=10000; n2: 4 L40 mib=10000", jobs=jobs)
    board.roster.add_nodes(nodes_of("n1: 2 L40 mib=10000; n2: 2 L40 mib=10000"))
    assert board.roster.snapshot(0).ledger.shared == {}
    board.roster.release("r", 1.0)
    board.roster.release("q", 1.0)
    board.add("j a 2x2")
    assert_outcomes(board.step(1.0), {"j": "n1:0-1 n2:0-1"})


def test_lines_are_parted() -> None:
    assert lines("a; b\n c ;;\n") == ["a", "b", "c"]
