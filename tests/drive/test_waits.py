"""Waits: cut out of the histories of lanes, merged where the reason stays, without gaps."""

from __future__ import annotations

from scheduler.drive.waits import Wait, WaitBook
from scheduler.engine.plan import Plan
from scheduler.engine.reasons import Hold, Reason, hold


def gpus(free: int) -> Hold:
    return hold(Reason.GPUS, "{free} are free", free=free)


QUOTA = hold(Reason.QUOTA, "no more")
BACKOFF = hold(Reason.BACKOFF, "a pause")


def lane(**holds: Hold) -> Plan:
    return Plan(waiting={int(name[1:]): why for name, why in holds.items()})


def test_a_reason_that_stays_is_one_wait_with_its_latest_sentence() -> None:
    book = WaitBook()
    book.enter("a", 1, 0.0)
    book.note(lane(_1=gpus(0)), 0.0)
    book.note(lane(_1=gpus(2)), 5.0)
    book.leave("a", 9.0)
    assert book.of("a") == [Wait(0.0, 9.0, "gpus", "2 are free")]


def test_each_job_of_a_lane_has_only_its_own_time_in_it() -> None:
    book = WaitBook()
    book.enter("a", 1, 0.0)
    book.note(lane(_1=gpus(0)), 0.0)
    book.enter("b", 1, 3.0)
    book.note(lane(_1=gpus(1)), 3.0)
    book.note(lane(_1=QUOTA), 5.0)
    book.leave("a", 7.0)
    book.note(lane(_1=gpus(4)), 7.0)
    assert book.of("a") == [Wait(0.0, 5.0, "gpus", "1 are free"), Wait(5.0, 7.0, "quota", "no more")]
    assert book.of("b") == [
        Wait(3.0, 5.0, "gpus", "1 are free"),
        Wait(5.0, 7.0, "quota", "no more"),
        Wait(7.0, None, "gpus", "4 are free"),
    ]


def test_a_job_that_leaves_keeps_the_sentence_it_left_with() -> None:
    book = WaitBook()
    book.enter("a", 1, 0.0)
    book.enter("b", 1, 0.0)
    book.note(lane(_1=gpus(0)), 0.0)
    book.leave("a", 4.0)
    book.note(lane(_1=gpus(3)), 4.0)
    assert book.of("a") == [Wait(0.0, 4.0, "gpus", "0 are free")]
    assert book.why("b") == gpus(3)


def test_a_gate_of_its_own_stands_before_the_lane() -> None:
    book = WaitBook()
    book.enter("a", 1, 0.0)
    book.enter("b", 1, 0.0)
    book.note(Plan(gated={"a": BACKOFF}, waiting={1: gpus(0)}), 0.0)
    assert (book.why("a"), book.why("b")) == (BACKOFF, gpus(0))
    book.note(lane(_1=gpus(0)), 6.0)
    book.leave("a", 8.0)
    assert book.of("a") == [Wait(0.0, 6.0, "backoff", "a pause"), Wait(6.0, 8.0, "gpus", "0 are free")]
    assert book.of("b") == [Wait(0.0, None, "gpus", "0 are free")]


def test_what_lasts_no_time_is_no_wait() -> None:
    book = WaitBook()
    book.enter("a", 1, 2.0)
    book.leave("a", 2.0)
    book.note(Plan(), 2.0)
    assert book.of("a") == []
    assert book.why("a") is None


def test_a_job_that_comes_back_under_the_same_reason_has_two_waits() -> None:
    book = WaitBook()
    for at in (0.0, 10.0):
        book.enter("a", 1, at)
        book.note(lane(_1=gpus(0)), at)
        book.leave("a", at + 5)
        book.note(Plan(), at + 5)
    assert [(wait.begin, wait.end) for wait in book.of("a")] == [(0.0, 5.0), (10.0, 15.0)]
