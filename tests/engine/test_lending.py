"""What is lent and what is not: lend limits, windows that open soon, and numbers that sleep under the watermark."""

from datetime import time
from typing import Any

import pytest

from quotas.limits import Amount, Window
from scheduler.engine.policy import Reclaim, Watermark
from tests.engine.board import Board, assert_outcomes, taken

ONE, TWO = "n1: 8 H100", "n1 n2: 8 H100"

# nodes, teams, jobs, outcomes
LENT: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "all that is idle without a lend limit": (ONE, "a H100:8; b", "j b 8", {"j": "n1"}),
    "only so much with one": (
        ONE, "a H100:8~2; b", "j b 2; k b 1", {"j": "n1", "k": "quota: …not lent… b …0 more…needs 1"}),
    "nothing at zero": (ONE, "a H100:8~0; b", "j b 1; k a 4", {"j": "quota", "k": "n1"}),
    "what nobody is guaranteed is not lent, but free": (
        TWO, "a H100:8~0; b", "j b 8; k b 1", {"j": "n1", "k": "quota"}),
    "what the lender holds itself it does not keep idle too": (
        TWO, "a H100:8~0; b", "r a 6 @n1; j b 8; k b 1", {"j": "n2", "k": "quota"}),
    "more than its number leaves nothing to keep": (TWO, "a H100:8~0; b", "r a 8 @n1; j b 8", {"j": "n2"}),
    "it never stands in the way of what the asker is guaranteed": (
        ONE, "a H100:8~0; b H100:4", "j b 4; k b 1", {"j": "n1", "k": "quota"}),
    "nor of the lender's children": (ONE, "a H100:8~0; c<a; b", "j c 8", {"j": "n1"}),
    "nor of its parent": (ONE, "p; a<p H100:8~0", "j p 8", {"j": "n1"}),
    "in per cent": (ONE, "a H100:8~25%; b", "j b 2; k b 1", {"j": "n1", "k": "quota"}),
    "over all models": ("n1: 8 H100; m1: 8 A100", "a *:12~4; b", "j b 8; k b 1", {"j": "m1", "k": "quota"}),
    "of one model only": ("n1: 8 H100; m1: 8 A100", "a H100:8~0; b", "j b 8; k b 1", {"j": "m1", "k": "gpus"}),
    "two lenders keep both": (TWO, "a H100:6~0; c H100:6~2; b", "j b 6; k b 1", {"j": "n1", "k": "quota"}),
    "slices by their share": (
        "n1: 1 L40 mib=1000", "a L40:1~0.5; b", "j b 1 slice=500; k b 1 slice=100", {"j": "n1", "k": "quota"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LENT)
def test_lend_limit(name: str) -> None:
    nodes, teams, jobs, expected = LENT[name]
    assert_outcomes(Board(nodes, teams, jobs).step(), expected)


EVERY_DAY = frozenset(range(7))


def night(lead: float, guaranteed: int = 8) -> Window:
    return Window(EVERY_DAY, time(22), time(6), "H100", Amount(guaranteed), None, lead)


def at(clock: str) -> float:
    """Seconds since midnight of the first day, a Thursday."""
    hours, minutes, *seconds = map(int, clock.split(":"))
    return hours * 3600.0 + minutes * 60 + sum(seconds)


def by_night(lead: float = 600.0, day_lead: float = 600.0) -> Board:
    windows = {"n": (night(lead),), "d": (night(day_lead, guaranteed=0),)}
    rules: dict[str, Any] = {"reclaim": Reclaim(), "queueing": "capacity"}
    return Board(ONE, "n; d H100:8", "r d 8 @n1; j n 8", windows=windows, **rules)


@pytest.mark.parametrize(
    ("clock", "gone"),
    [("21:49:59", 0), ("21:50:00", 1), ("22:00:00", 1), ("05:59:59", 1), ("06:00:00", 0)],
)  # fmt: skip
def test_reclaim_lead(clock: str, gone: int) -> None:
    assert len(by_night().decide(at(clock)).preempts) == gone


def test_without_a_lead_it_begins_when_the_window_opens() -> None:
    board = by_night(lead=0.0, day_lead=0.0)
    assert taken(board.decide(at("21:59:59"))) == {}
    assert taken(board.decide(at("22:00"))) == {"r": "reclaimed"}


def test_each_window_has_a_lead_of_its_own() -> None:
    """By night's lead alone day keeps its number until 22:00, so nothing of it is a loan before."""
    board = by_night(day_lead=0.0)
    assert taken(board.decide(at("21:55"))) == {}
    assert taken(board.decide(at("22:00"))) == {"r": "reclaimed"}


def test_it_wakes_for_the_lead_and_for_the_window() -> None:
    board = by_night()
    assert board.decide(at("12:00")).wake_at == at("21:50")
    assert by_night(lead=60.0, day_lead=60.0).decide(at("21:50")).wake_at == at("21:59")


def test_a_lead_longer_than_a_day() -> None:
    monday = Window(frozenset({0}), time(8), time(20), "H100", Amount(8), None, 3 * 86_400.0)
    board = Board(ONE, "n; b", "r b 8 @n1; j n 8", windows={"n": (monday,)}, reclaim=Reclaim(), queueing="capacity")
    friday = 86_400.0  # the clock begins on a Thursday
    assert taken(board.decide(friday + at("07:59"))) == {}
    assert taken(board.decide(friday + at("08:00"))) == {"r": "reclaimed"}


def test_a_lead_changes_no_limit() -> None:
    """Its guaranteed number counts for reclaim, no more: what it may have is still what the hour says."""
    window = Window(EVERY_DAY, time(22), time(6), "H100", Amount(8), Amount(8), 600.0)
    board = Board(ONE, "n H100:0/4; b", "j n 8", windows={"n": (window,)}, reclaim=Reclaim())
    assert_outcomes(board.step(at("21:55")), {"j": "quota"})
    assert_outcomes(board.step(at("22:00")), {"j": "n1"})


RULES: dict[str, Any] = {
    "watermark": Watermark(enabled=True, low=0.3, high=0.8, over=1_800.0, floor=0.2),
    "reclaim": Reclaim(min_runtime=0.0), "queueing": "capacity",
}  # fmt: skip


def asleep(teams: str, jobs: str, **rules: Any) -> Board:
    """A board that has been seen once, at 0."""
    board = Board("n1 n2: 10 H100", teams, "", **RULES | rules)
    board.add(";".join(line for line in jobs.split(";") if "@" in line))
    board.step(0.0)
    board.add(";".join(line for line in jobs.split(";") if "@" not in line))
    return board


@pytest.mark.parametrize(
    ("jobs", "cards"),
    [("", 8), ("u a 1 @n2", 8), ("u a 2 @n2", 7), ("u a 3 @n2", 0), ("u a 9 @n2", 0)],
)  # fmt: skip
def test_what_sleeps_is_added_to_the_limits_of_those_who_ask(jobs: str, cards: int) -> None:
    """Of 10 guaranteed, max(2, use ÷ 0.8) stay; use of 3 and more is not below the mark (0.3 × 10)."""
    told = asleep("a H100:10; b H100:0/2", f"{jobs}; w b 1x1").step(1_800.0)
    assert_outcomes(told, {"w": "starts"})
    board = asleep("a H100:10; b H100:0/2", f"{jobs}; " + "; ".join(f"w{n} b 1" for n in range(12)))
    started = [outcome for outcome in board.step(1_800.0).values() if ": " not in outcome]
    assert len(started) == 2 + cards


@pytest.mark.parametrize(("now", "started"), [(0.0, 2), (1_799.0, 2), (1_800.0, 10)])
def test_only_after_a_while(now: float, started: int) -> None:
    board = asleep("a H100:10; b H100:0/2", "; ".join(f"w{n} b 1" for n in range(12)))
    assert len(board.decide(now).starts) == started
    assert now >= 1_800.0 or board.decide(now).wake_at == 1_800.0


def test_by_weight_among_those_who_ask() -> None:
    jobs = "; ".join(f"w{n} b 1; v{n} c 1" for n in range(9))
    board = asleep("a H100:10; b w=3 H100:0/1; c H100:0/1; d w=9 H100:0/1", jobs)
    started = [start.job[0] for start in board.decide(1_800.0).starts]
    assert (started.count("w"), started.count("v")) == (1 + 6, 1 + 2)


def test_the_limits_above_those_who_ask_rise_too() -> None:
    board = asleep("a H100:10; lab H100:0/2; b<lab", "; ".join(f"w{n} b 1" for n in range(12)))
    assert len(board.decide(1_800.0).starts) == 10


def test_it_can_be_off() -> None:
    board = asleep("a H100:10; b H100:0/2", "; ".join(f"w{n} b 1" for n in range(12)), watermark=Watermark())
    assert len(board.decide(1_800.0).starts) == 2


def test_it_comes_back_as_soon_as_the_team_asks() -> None:
    board = asleep("a H100:20; b H100:0/2", "; ".join(f"w{n} b 1" for n in range(18)))
    board.step(1_800.0)
    assert len(board.runs()) == 18
    board.add("j a 20x1")
    assert len(board.decide(2_000.0).preempts) == 18
    board.settle(2_000.0)
    assert set(board.runs()) == {"j"}


def test_a_team_that_woke_up_must_sleep_anew() -> None:
    board = asleep("a H100:10; b H100:0/2", "")
    board.add("u a 5 limit=9")
    board.step(1_000.0)
    board.decide(1_100.0)
    board.roster.release("u", 1_200.0)
    board.step(1_200.0)
    board.add("; ".join(f"w{n} b 1" for n in range(12)))
    assert len(board.decide(2_999.0).starts) == 2
    assert len(board.decide(3_000.0).starts) == 10
