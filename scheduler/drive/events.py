"""What `rota run` shows while it goes on: nothing, or a line for each event."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from jobs.states import JobState
from scheduler.drive.driver import Driver
from scheduler.drive.records import JobRecord


class View:
    """Shows nothing; others show something. Used as a context around the run."""

    def moved(self, job: JobRecord, now: float) -> None:
        """A job has changed its state."""

    def turn(self, driver: Driver) -> None:
        """Some time has passed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class EventLines(View):
    """A line for each change of a job's state, and for each reason why one waits."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def moved(self, job: JobRecord, now: float) -> None:
        """See View."""
        if job.state is JobState.QUEUED:
            if job.message:
                self._line(now, job, f"again: {job.message}")
            return
        self._reasons.pop(job.name, None)
        self._line(now, job, describe(job))

    def turn(self, driver: Driver) -> None:
        """See View."""
        for job in driver.jobs.values():
            if job.state is not JobState.QUEUED:
                continue
            why = driver.waits.why(job.name)
            if why is not None and self._reasons.get(job.name) != why.reason:
                self._reasons[job.name] = why.reason
                self._line(driver.clock.now(), job, f"waits ({why.reason}): {why.message}")

    def _line(self, now: float, job: JobRecord, what: str) -> None:
        sys.stdout.write(f"{clock(now):>8}  {job.name}  {what}\n")
        sys.stdout.flush()


def describe(job: JobRecord) -> str:
    """A job's state in a few words, with its cards or how its attempt ended."""
    if job.state is JobState.STARTING:
        number = f"attempt {job.attempt.number} " if job.attempt.number > 1 else ""
        return f"{number}starts on {cards_of(job)}"
    if job.state is JobState.RUNNING:
        return "runs"
    ended = bool(job.attempts) and job.attempt.exit_code is not None
    code = f", exit code {job.attempt.exit_code}" if ended and job.attempt.exit_code else ""
    return f"{job.state}" + (f": {job.message}" if job.message else "") + code


def cards_of(job: JobRecord) -> str:
    """The cards that a job's attempt holds, in order."""
    cards = sorted({gpu for piece in job.attempt.present for gpu in piece.gpus})
    return f"card{'s' if len(cards) > 1 else ''} {', '.join(map(str, cards))}"


def clock(seconds: float) -> str:
    """A duration for people: 3.4 s, 2:05, 1:02:05."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
