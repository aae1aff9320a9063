"""Elastic jobs: they start with what there is, grow back as demand, grow into what idles, and give way first."""

from typing import Any

import pytest

from scheduler.engine.policy import Elastic, Preemption, Reclaim
from tests.engine.board import Board, assert_outcomes

ONE, TWO = "n1: 8 H100", "n1 n2: 8 H100"
NOW = 10_000.0

# nodes, teams, jobs, outcomes: the number of replicas is the number of places
STARTS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "all it wants where there is room": (ONE, "a", "e a 4x2 min=1", {"e": "n1 n1 n1 n1"}),
    "as many as there is room for": (ONE, "a", "r a 3 @n1; e a 4x2 min=1", {"e": "n1 n1"}),
    "its least": (ONE, "a", "r a 6 @n1; e a 4x2 min=1", {"e": "n1"}),
    "not less": (ONE, "a", "r a 5 @n1; e a 4x2 min=2", {"e": "gpus: …needs 4…3 of 8…"}),
    "as many as its limit leaves": (TWO, "a H100:/6", "e a 8x1 min=2", {"e": "n1 n1 n1 n1 n1 n1"}),
    "not less than its least for a limit": (TWO, "a H100:/6", "r a 5 @n1; e a 8x1 min=2", {"e": "quota"}),
    "the others have theirs first": (ONE, "a", "j a 4 prio=900; e a 8x1 min=2", {"j": "n1", "e": "n1 n1 n1 n1"}),
    "more than it wants comes later": (ONE, "a", "e a 2x2 min=1 max=4", {"e": "n1 n1"}),
    "what only names a most starts whole": (ONE, "a", "r a 5 @n1; e a 2x2 max=4", {"e": "gpus"}),
    "what CPUs leave": ("n1: 8 H100 cpus=10", "a", "e a 4x1 cpu=4 min=1", {"e": "n1 n1"}),
    "by the hour": (ONE, "a", "e a 4x1 min=1 scale=22:00-06:00x2", {"e": "n1 n1"}),
    "outside its hours": (ONE, "a", "e a 4x1 min=1 scale=08:00-16:00x2", {"e": "n1 n1 n1 n1"}),
    "in one rack, as many as that has": (
        "n1 n2: 2 H100 rack=r1; n3: 2 H100 rack=r2", "a", "r a 1 @n1; e a 6x1 min=1 require=rack", {"e": "n1 n2 n2"}),
}  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_start(name: str) -> None:
    nodes, teams, jobs, expected = STARTS[name]
    assert_outcomes(Board(nodes, teams, jobs).step(NOW % 3_600), expected)


# nodes, teams, jobs at 10,000 s (02:46 by the wall clock), where they are once nothing moves any more
RESIZES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "back to its size": (ONE, "a", "e a 4x2 min=1 at=1 @n1", {"e": "n1 n1 n1 n1"}),
    "as far as there is room": (ONE, "a", "r a 3 @n1; e a 4x2 min=1 at=1 @n1", {"e": "n1 n1"}),
    "within its limit": (ONE, "a H100:/5", "e a 4x2 min=1 at=1 @n1", {"e": "n1 n1"}),
    "within its parent's": (ONE, "p H100:/5; a<p; b<p", "r b 1 @n1; e a 4x2 min=1 at=1 @n1", {"e": "n1 n1"}),
    "beyond its size into what idles": (ONE, "a", "e a 2x1 min=1 max=4 at=1 @n1/n1", {"e": "n1 n1 n1 n1"}),
    "beyond it within its limit": (ONE, "a H100:/3", "e a 2x1 min=1 max=4 at=1 @n1/n1", {"e": "n1 n1 n1"}),
    "beyond it only when nobody waits": (
        ONE, "a", "r a 4 @n1; e a 2x1 min=1 max=4 at=1 @n1/n1; j a 2", {"e": "n1 n1", "j": "n1"}),
    "two share what idles": (
        ONE, "a", "e a 2x1 max=8 at=1 @n1/n1; f a 2x1 max=4 at=1 @n1/n1", {"e": "n1 n1 n1 n1 n1 n1", "f": "n1 n1"}),
    "what it has beyond its size it gives back": (
        ONE, "a", "e a 2x1 min=1 max=8 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 6", {"e": "n1 n1", "j": "n1"}),
    "only what is needed of it": (
        ONE, "a", "e a 2x1 min=1 max=8 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 2", {"e": "n1 n1 n1 n1 n1 n1", "j": "n1"}),
    "even where it never said how few it can do with": (
        ONE, "a", "e a 2x1 max=8 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 6", {"e": "n1 n1", "j": "n1"}),
    "for two who ask": (
        ONE, "a", "e a 2x1 max=8 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 3; k a 3", {"e": "n1 n1", "j": "n1", "k": "n1"}),
    "to one of any priority": (
        ONE, "a", "e a 2x1 max=8 prio=900 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 4 prio=0",
        {"e": "n1 n1 n1 n1", "j": "n1"}),
    "but not below its size": (
        ONE, "a", "e a 2x1 min=1 max=8 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 7", {"e": "n1 n1 n1 n1 n1 n1 n1 n1"}),
    "to one that grows back": (
        ONE, "a", "e a 2x1 max=4 at=1 @n1/n1/n1/n1; r a 2 @n1; f a 4x1 min=1 at=1 @n1/n1", {"e": "n1 n1",
        "f": "n1 n1 n1 n1"}),
    "shrinks by the clock": (ONE, "a", "e a 4x1 min=1 scale=02:00-03:00x2 at=1 @n1/n1/n1/n1", {"e": "n1 n1"}),
    "and not outside the hours": (
        ONE, "a", "e a 4x1 min=1 scale=03:00-02:00x2 at=1 @n1/n1/n1/n1", {"e": "n1 n1 n1 n1"}),
    "grows by the clock": (ONE, "a", "e a 2x1 max=4 scale=02:00-03:00x4 at=1 @n1/n1", {"e": "n1 n1 n1 n1"}),
    "what the clock frees goes to whoever waits": (
        ONE, "a", "e a 8x1 min=1 scale=02:00-03:00x2 at=1 @n1/n1/n1/n1/n1/n1/n1/n1; j a 6", {"e": "n1 n1", "j": "n1"}),
    "grows within its rack": (
        "n1 n2: 2 H100 rack=r1; n3: 2 H100 rack=r2", "a", "e a 6x1 min=1 require=rack at=1 @n1", {"e": "n1 n1 n2 n2"}),
    "grows apart": (
        "n1 n2 n3: 4 H100", "a", "e a 4x1 min=1 spread=node share_max=0.5 at=1 @n1/n1", {"e": "n1 n1 n2 n2"}),
    "one at a time where a share bounds it": (
        "n1: 4 H100 rack=r1; n2: 4 H100 rack=r2", "a", "e a 3x1 min=1 spread=rack share_max=0.5 at=1 @n1",
        {"e": "n1 n2"}),
    "off the nodes it may not use": (TWO, "a", "e a 16x1 min=1 not=n2 at=1 @n1", {"e": " ".join(["n1"] * 8)}),
}  # fmt: skip


def settled(nodes: str, teams: str, jobs: str, **rules: Any) -> Board:
    """A board on which nothing moves any more."""
    board = Board(nodes, teams, jobs, **rules)
    for _ in range(8):
        plan = board.decide(NOW)
        board.apply(plan, NOW)
        left = board.leave(NOW)
        if not (plan.starts or plan.resizes or plan.preempts or left):
            return board
    raise AssertionError("it never comes to rest")


@pytest.mark.parametrize("name", RESIZES)
def test_resize(name: str) -> None:
    nodes, teams, jobs, expected = RESIZES[name]
    runs = settled(nodes, teams, jobs).runs()
    assert {job: runs.get(job) for job in expected} == expected
    assert "j" not in runs or "j" in expected


def test_elastic_can_be_off() -> None:
    board = settled(ONE, "a", "e a 4x1 min=1 max=8 at=1 @n1/n1; f a 4x2 min=1", elastic=Elastic(enabled=False))
    assert board.runs() == {"e": "n1 n1"}


def test_growing_back_takes_loans_back() -> None:
    """It is demand like a waiting job's: one replica at a time, the youngest loan first."""
    jobs = "e a 4x1 min=1 at=1 @n1; b1 b 3 at=2 @n1; b2 b 2 at=3 @n1; b3 b 2 at=4 @n1"
    board = settled(ONE, "a H100:4; b", jobs, reclaim=Reclaim())
    assert board.runs() == {"e": "n1 n1 n1 n1", "b1": "n1"}


def test_growing_beyond_its_size_takes_from_nobody() -> None:
    jobs = "e a 2x1 min=1 max=8 prio=900 at=1 @n1/n1; b1 b 6 prio=100 at=2 @n1"
    rules: dict[str, Any] = {"reclaim": Reclaim(), "preemption": Preemption()}
    board = Board(ONE, "a H100:8; b", jobs, **rules)
    plan = board.decide(NOW)
    assert plan.preempts == ()
    assert plan.resizes == ()


def test_a_running_job_keeps_the_replicas_it_has_when_it_grows() -> None:
    board = Board(TWO, "a", "r a 6 @n1; e a 3x2 min=1 at=1 @n2; f a 4 @n2")
    before = board.roster.running("e")
    board.step(NOW)
    after = board.roster.running("e")
    assert before is not None
    assert after is not None
    assert set(before.pieces) < set(after.pieces)
    assert sorted(piece.replica for piece in after.pieces) == [0, 1, 2]


def test_the_number_of_a_replica_that_was_given_up_is_used_again() -> None:
    board = Board(ONE, "a", "e a 4x1 min=1 scale=02:00-03:00x2 at=1 @n1/n1/n1/n1")
    board.step(NOW)
    running = board.roster.running("e")
    assert running is not None
    assert [piece.replica for piece in running.pieces] == [0, 1]
    assert board.decide(NOW).wake_at == 3 * 3_600.0
    board.step(3 * 3_600.0)
    running = board.roster.running("e")
    assert running is not None
    assert [piece.replica for piece in running.pieces] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("others", "limit", "mib"), [("", "", 800), ("s a 1 slice=100 @n1:0", "", 800), ("s a 1 slice=300 @n1:0", "", 500),
                                 ("", "L40:/0.7", 500)],
)  # fmt: skip
def test_a_slice_has_the_memory_of_the_hour(others: str, limit: str, mib: int) -> None:
    """It grows where its card and its limits have room for it, else stays as it is."""
    jobs = f"e a 1 slice=500 scale=02:00-03:00x800MiB at=1 @n1:0; {others}"
    board = settled("n1: 1 L40 mib=1000", f"a {limit}", jobs)
    running = board.roster.running("e")
    assert running is not None
    assert [piece.mib for piece in running.pieces] == [mib]


def test_a_slice_gives_its_memory_back_by_the_clock() -> None:
    board = Board("n1: 1 L40 mib=1000", "a", "e a 1 slice=800 scale=02:00-03:00x200MiB at=1 @n1:0; w a 1 slice=700")
    assert_outcomes(board.step(0.0), {"w": "vram"})
    assert_outcomes(board.step(NOW), {"e": "now n1:0"})
    assert_outcomes(board.step(NOW), {"w": "n1"})
    assert board.decide(3 * 3_600.0).resizes == (), "the memory is somebody else's now"


def test_what_stops_is_not_resized() -> None:
    board = Board(ONE, "a; b", "e a 4x1 min=1 prio=100 at=1 @n1/n1; w b 8", preemption=Preemption())
    board.step(NOW)
    plan = board.decide(NOW)
    assert plan.resizes == ()
    assert [claim.winner for claim in plan.claims] == ["w"]


def test_it_gives_way_before_it_ends() -> None:
    """A job that has just been shrunk for one is not ended for the next while it can be shrunk again."""
    jobs = "e b 6x1 min=2 prio=100 at=1 @n1/n1/n1/n1/n1/n1; r a 2 @n1; j a 2; k a 2; l a 1"
    board = Board(ONE, "a; b", jobs, preemption=Preemption())
    assert_outcomes(board.step(NOW), {"j": "stopping", "k": "stopping", "l": "stopping", "e": "preempted for l"})
    board.settle(NOW)
    assert set(board.runs()) == {"r", "j", "k", "l"}
