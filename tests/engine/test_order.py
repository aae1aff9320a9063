"""Who goes first: a priority, then the discipline, then submission inside a team."""

import pytest

from scheduler.engine.policy import Fair
from tests.engine.board import Board, job_of

ROOMY = "n1: 8 H100; n2: 8 H100; n3: 8 H100"

# queueing, teams, jobs (those with @ run already), the order of the starts
ORDERS = {
    "fifo: by submission, whoever asks": ("fifo", "a; b", "x a 1 at=3; y b 1 at=1; z a 1 at=2", "y z x"),
    "fifo: the sequence breaks ties": ("fifo", "a; b", "x a 1 seq=3; y b 1 seq=1; z a 1 seq=2", "y z x"),
    "fifo: priority before submission": (
        "fifo", "a; b", "x a 1 at=1; y b 1 at=2 prio=900; z a 1 at=3 prio=100", "y x z"),
    "fair: priority before the discipline": ("fair", "a; b", "r a 8 @n1; x a 1 prio=501; y b 1", "x y"),
    "fair: the team that holds less": ("fair", "a; b", "r a 2 @n1; x a 1 at=1; y b 1 at=2", "y x"),
    "fair: what is started counts at once": (
        "fair", "a; b", "x1 a 1; x2 a 1; x3 a 1; y1 b 1; y2 b 1", "x1 y1 x2 y2 x3"),
    "fair: a big start weighs more": ("fair", "a; b", "x1 a 4; x2 a 1; y1 b 1; y2 b 1; y3 b 1", "x1 y1 y2 y3 x2"),
    "fair: weights": ("fair", "a w=2; b w=1", "r a 2 @n1; s b 2 @n2; x a 1 at=2; y b 1 at=1", "x y"),
    "fair: inside a team by submission, whatever the size": (
        "fair", "a", "x a 2 at=2; y a 4 at=1; z a 2 at=3", "y x z"),
    "capacity: below its guaranteed share first": (
        "capacity", "a H100:8; b", "r a 4 @n1; x b 1 at=1; y a 1 at=2", "y x"),
    "capacity: by used over guaranteed": (
        "capacity", "a H100:8; b H100:4", "r a 3 @n1; s b 2 @n2; x b 1 at=1; y a 1 at=2", "y x"),
    "capacity: at its share a team is like the rest": (
        "capacity", "a H100:4; b", "r a 4 @n1; x a 1 at=1; y b 1 at=2", "y x"),
    "capacity: the rest as fair": ("capacity", "a; b", "r a 2 @n1; x a 1 at=1; y b 1 at=2", "y x"),
    "capacity: a guaranteed number for all models counts": (
        "capacity", "a *:8; b", "r a 4 @n1; x b 1 at=1; y a 1 at=2", "y x"),
    "capacity: the nearest ancestor's number where a team has none": (
        "capacity", "lab H100:8; a<lab; b", "x b 1 at=1; y a 1 at=2", "y x"),
    "capacity: what a sibling uses of the parent's number counts": (
        "capacity", "lab H100:8; a<lab; c<lab; b H100:8", "r c 6 @n1; s b 2 @n2; x a 1 at=1; y b 1 at=2", "y x"),
    "capacity: a team's own number before its parent's": (
        "capacity", "lab H100:8; a<lab H100:2; b H100:8", "r a 2 @n1; s b 4 @n2; x a 1 at=1; y b 1 at=2", "y x"),
    "capacity: a percentage guarantees too": (
        "capacity", "a H100:50%; b", "r a 4 @n1; x b 1 at=1; y a 1 at=2", "y x"),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_order(name: str) -> None:
    queueing, teams, jobs, expected = ORDERS[name]
    assert Board(ROOMY, teams, jobs, queueing=queueing).started(now=10) == expected.split()


def test_what_a_team_got_on_one_model_counts_on_another() -> None:
    board = Board(
        "h1: 8 H100; m1: 8 A100", "a; b", "x1 a 4 model=H100; x2 a 1 model=A100; y b 1 model=A100", queueing="fair"
    )
    assert board.started() == ["x1", "y", "x2"]


def test_what_a_team_got_counts_for_a_sibling_that_goes_by_the_same_number() -> None:
    board = Board("n1: 8 H100", "lab H100:4; a<lab; b<lab; z H100:4", "x a 1; y b 1; w z 1", queueing="capacity")
    assert board.started() == ["x", "w", "y"]


@pytest.mark.parametrize("queueing", ["fifo", "fair", "capacity"])
def test_requeued_job_keeps_its_place(queueing: str) -> None:
    board = Board(ROOMY, "a", "x a 1 at=1 seq=1; y a 1 at=2 seq=2; z a 1 at=3 seq=3", queueing=queueing)
    board.roster.submit(board.roster.withdraw("x"))
    assert board.started(10) == ["x", "y", "z"]


def test_requeued_job_goes_before_later_ones_of_another_shape() -> None:
    board = Board("n1: 8 H100", "a; b", "x a 8 at=1 seq=1 @n1; y b 4 at=2 seq=2")
    job = board.roster.release("x", 5).job
    board.roster.submit(job)
    assert board.started(6) == ["x"]


def test_past_use_fades_by_half_each_half_life() -> None:
    """a has held 8 cards for a day; then b holds as much for half as long. What counts is the faded use."""
    day = 86_400.0
    board = Board(ROOMY, "a; b", queueing="fair", fair=Fair(half_life=day))
    roster = board.roster
    for team, begin, end in (("a", 0.0, day), ("b", 4 * day, 4.5 * day)):
        roster.submit(job_of(f"past-{team} {team} 8"))
        roster.start(f"past-{team}", board.decide(begin).starts[0].pieces, begin)
        roster.release(f"past-{team}", end)
    board.add("x b 1 at=1; y a 1 at=2")
    assert board.started(4.5 * day) == ["y", "x"], "use of four days ago counts a sixteenth"
    assert Board(ROOMY, "a; b", "x b 1 at=1; y a 1 at=2", queueing="fair").started() == ["x", "y"]


def test_long_half_life_remembers() -> None:
    day = 86_400.0
    board = Board(ROOMY, "a; b", queueing="fair", fair=Fair(half_life=1_000 * day))
    roster = board.roster
    for team, begin, end in (("a", 0.0, day), ("b", 4 * day, 4.5 * day)):
        roster.submit(job_of(f"past-{team} {team} 8"))
        roster.start(f"past-{team}", board.decide(begin).starts[0].pieces, begin)
        roster.release(f"past-{team}", end)
    board.add("y a 1 at=1; x b 1 at=2")
    assert board.started(4.5 * day) == ["x", "y"], "twice the use, hardly faded"
