"""Why each job waited, and when: histories per lane, of which each job's waits are cut out when somebody asks.

Thousands of jobs share a lane and its reason may change at every event, so a decision costs what its lanes are, not
what its jobs are. Jobs that a gate of their own stops have a history of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scheduler.engine.plan import Plan
from scheduler.engine.reasons import Hold


class Wait(NamedTuple):
    """A stretch of waiting for one reason; `message` is the sentence as it was said last. `end` None: it goes on."""

    begin: float
    end: float | None
    reason: str
    message: str


class _Stay:
    """A stretch in a lane (`own` None), or under a hold of its own. `last` is the lane's hold when it was left.

    `started`: the job left the queue at its end, if only for a moment.
    """

    __slots__ = ("begin", "end", "lane", "last", "own", "started")

    def __init__(self, begin: float, lane: int, own: Hold | None) -> None:
        self.begin = begin
        self.end: float | None = None
        self.lane = lane
        self.own = own
        self.last: Hold | None = None
        self.started = False


class _Lane:
    """The holds of a lane, each from the time at the same place; the hold of an unchanged reason is the latest."""

    __slots__ = ("holds", "times")

    def __init__(self, now: float, why: Hold) -> None:
        self.times = [now]
        self.holds = [why]


class WaitBook:
    """Told who enters and leaves the queue and what each plan says, in this order at any one time."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._stays: dict[str, list[_Stay]] = {}
        self._open: dict[str, _Stay] = {}
        self._gated: Mapping[str, Hold] = {}

    def enter(self, job: str, lane: int, now: float) -> None:
        """A job begins to wait in a lane."""
        self._begin(job, _Stay(now, lane, None))

    def leave(self, job: str, now: float) -> None:
        """A job waits no longer."""
        stay = self._open.pop(job)
        self._end(stay, now)
        stay.started = True

    def note(self, plan: Plan, now: float) -> None:
        """Take down what a plan says of those that wait on. The cost is linear in lanes and gated jobs."""
        lanes = self._lanes
        for number, why in plan.waiting.items():
            lane = lanes.get(number)
            if lane is None:
                lanes[number] = _Lane(now, why)
            elif lane.holds[-1].reason is why.reason:
                lane.holds[-1] = why
            else:
                lane.times.append(now)
                lane.holds.append(why)
        if plan.gated or self._gated:
            self._note_gated(plan.gated, now)

    def why(self, job: str) -> Hold | None:
        """Why a job waits now; None when it does not, or nothing was decided about it yet."""
        stay = self._open.get(job)
        if stay is None:
            return None
        return stay.own or self._said(stay.lane)

    def of(self, job: str) -> list[Wait]:
        """The waits of a job, in order, without gaps but for those in which it ran."""
        waits: list[Wait] = []
        before: Wait | None = None
        for stay in self._stays.get(job, ()):
            for wait in self._cut(stay):
                if before is not None and before.end == wait.begin and before.reason == wait.reason:
                    before = waits[-1] = wait._replace(begin=before.begin)
                else:
                    before = wait
                    waits.append(wait)
            if stay.started:
                before = None
        return waits

    def _begin(self, job: str, stay: _Stay) -> None:
        self._open[job] = stay
        self._stays.setdefault(job, []).append(stay)

    def _end(self, stay: _Stay, now: float) -> None:
        stay.end = now
        stay.last = self._said(stay.lane)

    def _said(self, lane: int) -> Hold | None:
        found = self._lanes.get(lane)
        return None if found is None else found.holds[-1]

    def _note_gated(self, gated: Mapping[str, Hold], now: float) -> None:
        for job, why in gated.items():
            stay = self._open[job]
            if stay.own is not None and stay.own.reason is why.reason:
                stay.own = why
            else:
                self._end(stay, now)
                self._begin(job, _Stay(now, stay.lane, why))
        for job in self._gated:
            freed = self._open.get(job)
            if job not in gated and freed is not None and freed.own is not None:
                self._end(freed, now)
                self._begin(job, _Stay(now, freed.lane, None))
        self._gated = gated

    def _cut(self, stay: _Stay) -> Iterator[Wait]:
        if stay.own is not None:
            if stay.end != stay.begin:
                yield Wait(stay.begin, stay.end, stay.own.reason, stay.own.message)
            return
        lane = self._lanes.get(stay.lane)
        if lane is None or stay.end == stay.begin:
            return
        times, holds = lane.times, lane.holds
        at = max(0, bisect_right(times, stay.begin) - 1)
        while at < len(times) and (stay.end is None or times[at] < stay.end):
            begin = max(stay.begin, times[at])
            following = times[at + 1] if at + 1 < len(times) else None
            last = following is None or (stay.end is not None and following >= stay.end)
            end = stay.end if last else following
            why = stay.last if last and stay.last is not None and stay.last.reason is holds[at].reason else holds[at]
            if end != begin:
                yield Wait(begin, end, why.reason, why.message)
            at += 1
