"""Windows go by the wall clock: over midnight, by the day on which they began, through daylight saving."""

from collections.abc import Iterator
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.limits import DAYS, Amount, QuotaTree, Team, Window

MON_TO_FRI = "mon tue wed thu fri"
MINUTE = 60.0


def tree_with(zone: str, *windows: tuple[str, str, str]) -> QuotaTree:
    """One team with windows of (days, from, to)."""
    made = tuple(
        Window(
            frozenset(DAYS.index(day) for day in days.split()), time.fromisoformat(begin), time.fromisoformat(end),
            "H100", limit=Amount(number),
        )
        for number, (days, begin, end) in enumerate(windows, 1)
    )  # fmt: skip
    return QuotaTree((Team("a", windows=made),), zone)


def is_open(tree: QuotaTree, unix: float) -> bool:
    return bool(tree.teams[0].numbers_at(tree.moment(unix)))


def wall(zone: str, text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-01-10T01:00:00", True),  # Saturday: it began on Friday
        ("2026-01-10T23:00:00", False),  # Saturday
        ("2026-01-11T23:00:00", False),  # Sunday
        ("2026-01-12T01:00:00", False),  # Monday: it would have begun on Sunday
        ("2026-01-12T21:59:59.999", False),
        ("2026-01-12T22:00:00", True),  # the start is inclusive
        ("2026-01-13T05:59:59.999", True),
        ("2026-01-13T06:00:00", False),  # the end is exclusive
        ("2026-01-10T05:59:00", True),
        ("2026-01-10T06:00:00", False),
    ],
)
def test_over_midnight_on_weekdays(moment: str, expected: bool) -> None:
    """C07."""
    tree = tree_with("Asia/Shanghai", (MON_TO_FRI, "22:00", "06:00"))
    assert is_open(tree, wall("Asia/Shanghai", moment)) is expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-01-11T12:00:00", False), ("2026-01-12T07:59:59", False), ("2026-01-12T08:00:00", True),
        ("2026-01-12T19:59:59", True), ("2026-01-12T20:00:00", False),
    ],
)  # fmt: skip
def test_within_a_day(moment: str, expected: bool) -> None:
    assert is_open(tree_with("UTC", ("mon", "08:00", "20:00")), wall("UTC", moment)) is expected


# zone, the window, the search from … to, when it is open, in UTC
DAYLIGHT_SAVING = {
    "spring, over the hour that is left out: seven hours": (
        ("sat", "22:00", "06:00"), "2026-03-28T12:00", "2026-03-29T12:00", [("2026-03-28T21:00", "2026-03-29T04:00")]),
    "autumn, over the hour that comes twice: nine hours": (
        ("sat", "22:00", "06:00"), "2026-10-24T12:00", "2026-10-25T12:00", [("2026-10-24T20:00", "2026-10-25T05:00")]),
    "spring, begins in the hour that is left out": (
        ("sun", "02:30", "04:00"), "2026-03-28T12:00", "2026-03-29T12:00", [("2026-03-29T01:00", "2026-03-29T02:00")]),
    "spring, ends in the hour that is left out": (
        ("sun", "01:00", "02:30"), "2026-03-28T12:00", "2026-03-29T12:00", [("2026-03-29T00:00", "2026-03-29T01:00")]),
    "spring, lies in the hour that is left out": (
        ("sun", "02:15", "02:45"), "2026-03-28T12:00", "2026-03-29T12:00", []),
    "autumn, lies in the hour that comes twice": (
        ("sun", "02:15", "02:45"), "2026-10-24T12:00", "2026-10-25T12:00",
        [("2026-10-25T00:15", "2026-10-25T00:45"), ("2026-10-25T01:15", "2026-10-25T01:45")]),
    "autumn, ends in the hour that comes twice": (
        ("sun", "01:30", "02:30"), "2026-10-24T12:00", "2026-10-25T12:00",
        [("2026-10-24T23:30", "2026-10-25T00:30"), ("2026-10-25T01:00", "2026-10-25T01:30")]),
    "autumn, begins in the hour that comes twice": (
        ("sun", "02:30", "03:30"), "2026-10-24T12:00", "2026-10-25T12:00",
        [("2026-10-25T00:30", "2026-10-25T01:00"), ("2026-10-25T01:30", "2026-10-25T02:30")]),
}  # fmt: skip


@pytest.mark.parametrize("name", DAYLIGHT_SAVING)
def test_daylight_saving_in_berlin(name: str) -> None:
    window, begin, end, expected = DAYLIGHT_SAVING[name]
    tree = tree_with("Europe/Berlin", window)
    wanted = [(wall("UTC", opens), wall("UTC", closes)) for opens, closes in expected]
    assert list(spans(tree, wall("UTC", begin), wall("UTC", end))) == wanted


def spans(tree: QuotaTree, begin: float, end: float) -> Iterator[tuple[float, float]]:
    """When a window is open, walking from one change to the next."""
    opened, at = None, begin
    while at < end:
        if is_open(tree, at) and opened is None:
            opened = at
        elif not is_open(tree, at) and opened is not None:
            yield opened, at
            opened = None
        following = tree.next_change(at)
        assert following is not None
        assert following > at
        at = following


def test_without_windows_nothing_ever_changes() -> None:
    assert QuotaTree((Team("a"),)).next_change(0.0) is None


def test_the_later_of_two_open_windows_counts() -> None:
    tree = tree_with("UTC", ("mon", "08:00", "20:00"), ("mon", "12:00", "13:00"))
    limits = [
        tree.teams[0].numbers_at(tree.moment(wall("UTC", f"2026-01-12T{hour}:30")))["H100"].limit
        for hour in (11, 12, 13)
    ]
    assert limits == [Amount(1), Amount(2), Amount(1)]


ZONES = ("UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
         "Europe/Dublin", "America/Santiago")  # fmt: skip
clocks = st.builds(time, st.integers(0, 23), st.sampled_from((0, 1, 15, 29, 30, 45, 59)))
windows = st.builds(
    Window,
    st.frozensets(st.integers(0, 6), min_size=1),
    clocks,
    clocks,
    st.just("H100"),
    limit=st.builds(Amount, st.integers(0, 3)),
).filter(lambda window: window.start != window.end)
NEAR_CHANGES = tuple(
    wall("UTC", day) for day in (
        "2026-01-05", "2026-03-08", "2026-03-28", "2026-03-29", "2026-04-04", "2026-04-05", "2026-09-06", "2026-10-03",
        "2026-10-25", "2026-11-01",
    )
)  # fmt: skip


@given(
    st.sampled_from(ZONES),
    st.lists(windows, min_size=1, max_size=3),
    st.sampled_from(NEAR_CHANGES),
    st.integers(0, 2 * 86_400),
)
def test_nothing_changes_before_the_next_change(zone: str, some: list[Window], day: float, seconds: int) -> None:
    """Against looking at every minute, and at the second before and at the change itself."""
    tree = QuotaTree((Team("a", windows=tuple(some)),), zone)
    begin = day + seconds
    following = tree.next_change(begin)
    assert following is not None
    assert begin < following <= begin + 86_400 + 3_600
    numbers = tree.teams[0].numbers_at(tree.moment(begin))
    minute = begin - begin % MINUTE + MINUTE
    while minute < following:
        assert tree.teams[0].numbers_at(tree.moment(minute)) == numbers
        minute += MINUTE
    assert tree.teams[0].numbers_at(tree.moment(following - 1.0 if following - 1 > begin else begin)) == numbers


@given(st.sampled_from(ZONES), windows, st.sampled_from(NEAR_CHANGES), st.integers(0, 2 * 86_400))
def test_a_window_is_open_by_the_wall_clock_alone(zone: str, window: Window, day: float, seconds: int) -> None:
    """Said another way: some day's span on the wall's face, which knows no daylight saving, holds the moment."""
    moment = datetime.fromtimestamp(day + seconds, ZoneInfo(zone)).replace(tzinfo=None)
    begins = [moment.date() - timedelta(days=back) for back in (0, 1)]
    spans_of_days = [
        (datetime.combine(begin, window.start), datetime.combine(begin + over_midnight, window.end))
        for begin in begins
        if begin.weekday() in window.days
        for over_midnight in [timedelta(days=window.end < window.start)]
    ]
    assert window.is_open(moment) is any(begin <= moment < end for begin, end in spans_of_days)
