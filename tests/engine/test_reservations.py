"""EASY backfill: blocked jobs hold reservations, and later ones start beside them only if they delay none."""

from typing import Any

import pytest

from scheduler.engine.cluster import NodeState
from scheduler.engine.policy import Preemption, Reclaim
from tests.engine.board import Board, assert_outcomes, taken

ONE, TWO = "n1: 8 H100", "n1 n2: 8 H100"

# nodes, jobs at second 0 (the first runs), outcomes
BESIDE: dict[str, tuple[str, str, dict[str, str]]] = {
    "a short one slips in": (ONE, "r a 6 limit=100 @n1; B a 8; s a 2 limit=50", {"B": "gpus", "s": "n1"}),
    "one that ends exactly then is no delay": (ONE, "r a 6 limit=100 @n1; B a 8; s a 2 limit=100", {"s": "n1"}),
    "a longer one waits": (
        ONE, "r a 6 limit=100 @n1; B a 8; s a 2 limit=101", {"s": "reserved: …B of a…1970-01-01 00:01:40…"}),
    "one without a limit may be endless": (ONE, "r a 6 limit=100 @n1; B a 8; s a 2", {"s": "reserved"}),
    "a shorter one of the same shape behind a longer one": (
        ONE, "r a 6 limit=100 @n1; B a 8; s a 1 limit=200; t a 1 limit=100", {"s": "reserved", "t": "n1"}),
    "and behind one without a limit": (
        ONE, "r a 6 limit=100 @n1; B a 8; s a 1; t a 1 limit=100", {"s": "reserved", "t": "n1"}),
    "the shorter of two goes only if it fits": (
        ONE, "r a 6 limit=100 @n1; B a 8; s a 1 limit=200; t a 1 limit=150; u a 1 limit=100; v a 1 limit=200",
        {"s": "reserved", "t": "reserved", "u": "n1", "v": "reserved"}),
    "what the reserved one leaves over": (
        ONE, "r a 6 limit=100 @n1; B a 6; s a 2", {"B": "gpus", "s": "n1"}),
    "spare cards at that time, not now": (
        ONE, "r a 3 limit=100 @n1; B a 6; s a 2; t a 2; u a 1 limit=100", {"s": "n1", "t": "reserved", "u": "n1"}),
    "on another node nothing is reserved": (
        TWO, "r a 6 limit=100 @n1; q a 7 @n2; B a 8; s a 1", {"B": "gpus", "s": "n2"}),
    "the earliest of two nodes": (
        TWO, "r a 7 limit=100 @n1; q a 7 limit=90 @n2; B a 8; s a 1; t a 1 limit=90", {"s": "n1", "t": "n2"}),
    "a gang over two nodes": (
        TWO, "r a 6 limit=100 @n1; q a 6 limit=200 @n2; B a 2x8; s a 2 limit=200; t a 2 limit=200; u a 1 limit=201",
        {"s": "starts", "t": "starts", "u": "gpus"}),
    "running jobs without limits promise nothing": (ONE, "r a 6 @n1; B a 8; s a 2", {"B": "gpus", "s": "n1"}),
    "what waits for its quota holds none": (
        ONE, "r lim 6 limit=100 @n1; B lim 8; s a 2", {"B": "quota", "s": "n1"}),
    "what is held back holds none": (ONE, "r a 6 limit=100 @n1; B a 8 not_before=9; s a 2", {"s": "n1"}),
    "a slice holds none": (
        "n1: 2 L40 mib=1000", "r a 1 limit=100 @n1; x a 1 slice=900 limit=100 @n1; B a 2x1 slice=900; s a 1 slice=50",
        {"s": "n1"}),
    "of one team one": (
        TWO, "r a 6 limit=100 @n1; q a 6 limit=100 @n2; B a 8; C a 7; s a 2; t a 2", {"s": "starts", "t": "reserved"}),
    "what could never run holds none": (
        "n1: 8 H100 cpus=8", "r a 6 cpu=1 limit=100 @n1; B a 8 cpu=9; s a 2 cpu=1", {"B": "impossible", "s": "n1"}),
    "a start of this very decision promises too": (
        ONE, "j a 6 limit=100 prio=900; B a 8 prio=700; s a 2 limit=101", {"j": "n1", "B": "gpus", "s": "reserved"}),
    "of each team one": (
        TWO, "r a 6 limit=100 @n1; q a 6 limit=100 @n2; B a 8; C b 8; s a 2; t a 2",
        {"s": "reserved", "t": "reserved"}),
    "those that go before are not bound": (
        ONE, "r a 6 limit=100 @n1; B a 8; s a 2 prio=900", {"s": "n1", "B": "gpus"}),
}  # fmt: skip


def board(nodes: str, jobs: str, teams: str = "a; b; c; lim H100:/8", **rules: Any) -> Board:
    return Board(nodes, teams, jobs, **{"queueing": "fair"} | rules)


@pytest.mark.parametrize("name", BESIDE)
def test_beside_a_reservation(name: str) -> None:
    nodes, jobs, expected = BESIDE[name]
    assert_outcomes(board(nodes, jobs).step(0.0), expected)


@pytest.mark.parametrize(("number", "reserved"), [(0, 0), (1, 1), (2, 2)])
def test_so_many_of_each_team(number: int, reserved: int) -> None:
    jobs = "r a 6 limit=100 @n1; q a 6 limit=100 @n2; B a 8; C a 8; s a 2; t a 2"
    told = board(TWO, jobs, reserve_for=number).step(0.0)
    assert sum(told[job].startswith("reserved") for job in "st") == reserved


def test_under_fifo_there_is_one_line() -> None:
    jobs = "r a 6 limit=100 @n1; q a 6 limit=100 @n2; B a 8; C b 8; s c 2; t c 2"
    told = board(TWO, jobs, queueing="fifo").step(0.0)
    assert sum(told[job].startswith("reserved") for job in "st") == 1


def test_without_backfill_there_are_none() -> None:
    jobs = "r a 6 limit=100 @n1; B a 8; s a 2 limit=1"
    assert_outcomes(board(ONE, jobs, backfill=False, queueing="fifo").step(0.0), {"s": "turn"})


def test_nodes_out_of_service_hold_no_reservation() -> None:
    """C31: one of four is down: the small ones go on; when it is back only short ones slip in before the big one."""
    made = board("n1 n2 n3 n4: 1 H100", "; ".join(["B a 4x1 prio=900", *(f"s{n} b 1 limit=100" for n in range(6))]))
    made.roster.set_node_state("n4", NodeState.DOWN)
    assert_outcomes(made.step(0.0), {"B": "unhealthy", "s0": "n1", "s1": "n2", "s2": "n3", "s3": "gpus"})
    for job in ("s0", "s1", "s2"):
        made.roster.release(job, 100.0)
    assert_outcomes(made.step(100.0), {"B": "unhealthy", "s3": "n1", "s4": "n2", "s5": "n3"})
    made.roster.set_node_state("n4", NodeState.READY)
    made.add("l c 1 limit=100")
    assert_outcomes(made.step(150.0), {"B": "gpus", "l": "reserved: …B of a…00:03:20…"})
    made.add("k c 1 limit=50")
    assert_outcomes(made.step(150.0), {"k": "n4"})
    for job in ("s3", "s4", "s5", "k"):
        made.roster.release(job, 200.0)
    assert_outcomes(made.step(200.0), {"B": "n1 n2 n3 n4", "l": "gpus"})


def test_a_big_job_does_not_starve() -> None:
    """Small ones arrive for ever; the big one starts when those that ran before it have ended."""
    made = board("n1: 4 H100", "r0 a 1 limit=40 @n1; r1 a 1 limit=60 @n1; B b 4")
    for now in range(0, 100, 5):
        made.add(f"s{now} a 1 limit=30 at={now}")
        for key in list(made.runs()):
            running = made.roster.running(key)
            if running is not None and running.ends_by is not None and running.ends_by <= now:
                made.roster.release(key, float(now))
        if made.step(float(now)).get("B", "").startswith("n1"):
            break
    assert now == 60


def test_a_reason_never_names_a_time_that_has_passed() -> None:
    """C41: whoever should have ended but has not promises nothing more."""
    made = board(ONE, "r a 6 limit=100 @n1; B a 8; s a 2")
    assert "00:01:40" in made.step(99.0)["s"]
    for now in (100.0, 101.0, 1_000.0):
        told = made.decide(now)
        assert all("1970-01-01 00:01:40" not in hold.message for hold in told.waiting.values())


def test_one_of_higher_priority_that_comes_later_owns_the_time() -> None:
    """C41: D becomes eligible at 100 and goes before J1: two jobs are never promised the same cards."""
    made = board("n1 n2: 1 H100", "r a 1 limit=500 @n1; q a 1 limit=500 @n2; J1 b 2x1; D c 2x1 prio=900 not_before=100")
    made.add("s c 1 limit=400 prio=100")
    assert_outcomes(made.step(0.0), {"J1": "gpus", "D": "not_before"})
    made.roster.release("q", 100.0)
    assert_outcomes(made.step(100.0), {"J1": "gpus", "D": "gpus", "s": "n2"})
    made.roster.release("r", 500.0)
    made.roster.release("s", 500.0)
    assert_outcomes(made.step(500.0), {"D": "n1 n2", "J1": "gpus"})


def test_nobody_takes_reserved_cards_by_another_right() -> None:
    """It could take from a lower priority elsewhere; what is held for one ahead of it stays held."""
    made = Board(
        "n1: 8 H100; n2: 8 A100", "a; b; c",
        "r a 6 limit=100 @n1; l c 8 prio=100 at=-1000 @n2; B a 8 prio=700 model=H100; s b 2 model=H100",
        preemption=Preemption(),
    )  # fmt: skip
    assert_outcomes(made.step(0.0), {"B": "gpus", "s": "reserved"})


def test_a_right_is_used_where_it_delays_nobody() -> None:
    made = Board(
        "n1: 8 H100; n2: 8 A100", "a; b; c",
        "r a 6 limit=100 @n1; l c 8 prio=100 at=-1000 @n2; B a 8 prio=700 model=H100; s b 2",
        preemption=Preemption(),
    )  # fmt: skip
    assert_outcomes(made.step(0.0), {"B": "gpus", "s": "stopping: … n2", "l": "preempted for s"})


def test_reclaim_may_take_what_the_reservation_does_not_count_on() -> None:
    """The loan on n1 is endless, so nobody was promised its cards; what the other leaves at 100 is B's."""
    made = Board(
        "n1 n2: 8 H100", "a H100:2; b; c",
        "l b 8 at=-1000 @n1; r c 8 limit=100 @n2; B c 8 prio=700; s a 2",
        reclaim=Reclaim(), queueing="capacity",
    )  # fmt: skip
    assert taken(made.decide(0.0)) == {"l": "reclaimed"}


def test_cards_that_are_being_vacated_for_one_are_promised_to_no_other() -> None:
    """B is promised n1 and n2 when w has ended, not when its victims have left."""
    made = Board(
        TWO, "a; b; c; d",
        "l a 8 prio=100 at=-1000 @n1; r a 4 limit=50 at=0 @n2; w b 8 prio=900 limit=200",
        preemption=Preemption(), queueing="fair",
    )  # fmt: skip
    assert_outcomes(made.step(0.0), {"w": "stopping"})
    made.add("B c 2x8 prio=700; s d 4 limit=150; t d 4 limit=201")
    assert_outcomes(made.step(1.0), {"w": "stopping", "B": "gpus", "s": "n2", "t": "gpus"})
    made.roster.release("s", 2.0)
    assert_outcomes(made.step(2.0), {"t": "reserved"})


def test_and_in_the_very_decision_that_takes_them() -> None:
    made = Board(
        TWO, "a; b; c; d",
        ("l a 8 prio=100 at=-1000 limit=2000 @n1; r a 4 limit=50 at=0 @n2; w b 8 prio=900 limit=200; B c 2x8 prio=700; "
         "t d 2 limit=201; s d 2 limit=200"),
        preemption=Preemption(), queueing="fair",
    )  # fmt: skip
    assert_outcomes(made.step(0.0), {"w": "stopping", "B": "gpus", "t": "reserved", "s": "n2"})


def test_the_place_that_is_held_keeps_to_the_topology() -> None:
    """B needs one rack: the rack of n3 and n4, which is free at 200, not n1 and n3, which are earlier."""
    nodes = "n1 n2: 8 H100 rack=r1; n3 n4: 8 H100 rack=r2"
    jobs = "r1 a 8 limit=100 @n1; r2 a 8 @n2; r3 a 8 limit=100 @n3; r4 a 4 limit=200 @n4; B b 2x8 require=rack"
    made = board(nodes, f"{jobs}; s c 2 limit=201; t c 2 limit=200")
    assert_outcomes(made.step(0.0), {"B": "gpus", "s": "reserved: …00:03:20…", "t": "n4"})


def test_growth_into_idle_leaves_reserved_cards() -> None:
    made = board(ONE, "r a 4 limit=100 @n1; e a 1x2 min=1 max=2 limit=200 @n1; B b 6")
    assert_outcomes(made.step(0.0), {"B": "gpus"})
    assert made.runs() == {"e": "n1", "r": "n1"}
    made.roster.release("r", 50.0)
    assert_outcomes(made.step(50.0), {"B": "n1"})


def test_growth_that_ends_in_time_delays_nobody() -> None:
    made = board(ONE, "r a 4 limit=100 @n1; e a 1x2 min=1 max=2 limit=100 @n1; B b 6")
    assert_outcomes(made.step(0.0), {"B": "gpus"})
    assert made.runs() == {"e": "n1 n1", "r": "n1"}
