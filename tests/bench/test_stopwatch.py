"""Timing keeps the first run apart, and processor time apart from time on the wall."""

import time

from bench.stopwatch import Lap, Timed, timed, timed_in_turn


def test_the_first_run_does_not_count_but_where_it_is_the_only_one() -> None:
    laps = (Lap(1.0, 0.5), Lap(2.0, 0.2), Lap(3.0, 0.4))
    told = Timed(Lap(9.0, 8.0), laps, None)
    assert (told.seconds, told.cpu_seconds, told.best_cpu_seconds) == (2.0, 0.4, 0.2)
    alone = Timed(Lap(9.0, 8.0), (), None)
    assert (alone.seconds, alone.cpu_seconds, alone.best_cpu_seconds) == (9.0, 8.0, 8.0)


def test_work_is_run_once_and_then_repeated() -> None:
    runs = iter(range(10))
    told = timed(lambda: next(runs), 3)
    assert (told.result, len(told.later)) == (3, 3)


def test_two_works_take_turns() -> None:
    log: list[str] = []
    first, second = timed_in_turn(lambda: log.append("a"), lambda: log.append("b"), 2)
    assert "".join(log) == "ababab"
    assert len(first.later) == len(second.later) == 2


def test_rest_is_no_work() -> None:
    told = timed(lambda: time.sleep(0.02), 1)
    assert told.seconds >= 0.02 > told.cpu_seconds
