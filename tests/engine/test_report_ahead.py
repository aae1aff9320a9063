"""Who stands before a job: the line, the quota, what is kept for others."""

from dataclasses import replace

from scheduler.engine.policy import Policy, Preemption
from scheduler.engine.report.ahead import Ahead, Before, Binding, Holder, Kept, ahead
from tests.engine.board import Board


def ahead_of(board: Board, key: str, now: float = 0.0) -> Ahead:
    found = ahead(board.roster.snapshot(now), board.roster.policy, now, key)
    assert found is not None
    return found


def test_the_line() -> None:
    """By priority and submission; not those that want other nodes, are held, or no free card would help."""
    board = Board(
        "n1: 8 H100; m1: 8 A100", "a H100:/8; b; c",
        "r c 8 @n1; s c 8 @m1; u b 2x2 model=H100 prio=900; v a 1 model=H100; w b 1 model=A100; x b 9 model=H100;"
        "y b 1 model=H100 held=x; z c 4 model=H100; j b 2 model=H100; k b 2 model=H100",
    )  # fmt: skip
    found = ahead_of(board, "j")
    assert (found.jobs, found.gpus) == (3, 9)
    assert found.first == (Before("u", "b", 4, 900, 0.0), Before("v", "a", 1, 500, 0.0), Before("z", "c", 4, 500, 0.0))
    assert ahead_of(board, "u").jobs == 0
    assert ahead_of(board, "k").jobs == 4


def test_the_standing_of_teams_counts() -> None:
    """Under the fair discipline b, which holds nothing, goes before a."""
    jobs = "r a 4 @n1; s c 4 @n1; x a 8 at=1; y b 8 at=2"
    board = Board("n1: 8 H100", "a; b; c", jobs, queueing="fair")
    assert [each.job for each in ahead_of(board, "x").first] == ["y"]
    board = Board("n1: 8 H100", "a; b; c", jobs)
    assert [each.job for each in ahead_of(board, "y").first] == ["x"]


def test_who_holds_the_quota() -> None:
    board = Board(
        "n1 n2: 8 H100", "lab H100:/8; a<lab; b<lab; c",
        "r a 2 at=3 @n1; s b 4 at=5 @n1; t c 8 at=1 @n2; u a 1 at=4 @n1; j a 2",
    )  # fmt: skip
    assert ahead_of(board, "j").binding == Binding(
        "lab", "H100", 7.0, 8.0, 2.0, 3,
        (Holder("s", "b", 4.0, 5.0), Holder("r", "a", 2.0, 3.0), Holder("u", "a", 1.0, 4.0)),
    )  # fmt: skip


def test_a_job_that_starts_or_is_not_there_has_nobody_before_it() -> None:
    board = Board("n1: 8 H100", "a", "j a 2")
    for key in ("j", "nobody"):
        assert ahead(board.roster.snapshot(0.0), board.roster.policy, 0.0, key) is None


def test_reservations_of_others() -> None:
    board = Board("n1 n2: 8 H100", "a; b", "r a 8 limit=100 @n1; w a 2x8 limit=50; j b 8 limit=500", backfill=True)
    assert ahead_of(board, "j").kept == (Kept("w", "a", 16, 100.0),)
    assert ahead_of(board, "w").kept == ()


def test_claims_of_others() -> None:
    board = Board("n1: 8 H100", "a; b", "r a 8 @n1; w b 8 prio=900; j b 8")
    policy: Policy = replace(board.roster.policy, preemption=Preemption(min_runtime=0.0))
    found = ahead(board.roster.snapshot(0.0), policy, 0.0, "j")
    assert found is not None
    assert found.kept == (Kept("w", "b", 8, None),)
