"""The live table of `rota run`: every job with its state, its cards, its time, and the reason beside each wait."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from jobs.states import JobState
from quotas.limits import plural
from scheduler.drive.driver import Driver
from scheduler.drive.events import View, cards_of, clock
from scheduler.drive.records import JobRecord

EVERY_SECONDS = 0.2
STYLES = {
    JobState.QUEUED: "yellow",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "bold cyan",
    JobState.STOPPING: "magenta",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "red",
    JobState.HELD: "bold yellow",
    JobState.REJECTED: "red",
}
_ORDER = (JobState.RUNNING, JobState.STOPPING, JobState.STARTING, JobState.QUEUED, JobState.HELD)


class LiveTable(View):
    """See the module. Drawn a few times a second, as high as the terminal."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def turn(self, driver: Driver) -> None:
        """See View."""
        over = not driver.live and not driver.expected
        if over or time.monotonic() - self._drawn >= EVERY_SECONDS:
            self._drawn = time.monotonic()
            self._live.update(table(driver, self._console.height - 5), refresh=True)


def table(driver: Driver, most: int) -> Table:
    """The jobs as a table of `most` rows: what is alive first, then what waits, then the latest ends."""
    now = driver.clock.now()
    jobs = sorted((job for job in driver.jobs.values() if job.state is not None), key=_importance)
    shown = Table(box=None, pad_edge=False, expand=False)
    for title in ("job", "state", "cards", "time", "try", "why"):
        shown.add_column(title, overflow="ellipsis", no_wrap=title != "why", justify="left")
    for job in jobs[: max(1, most)]:
        shown.add_row(*_row(job, driver, now))
    hidden = len(jobs) - most
    left = f", {hidden} more {plural('job', hidden)}" if hidden > 0 else ""
    held = f"{clock(now)}, {driver.live} running{left}; Ctrl-C ends everything, a second one at once"
    shown.caption, shown.caption_justify = held, "left"
    return shown


def _importance(job: JobRecord) -> tuple[int, float]:
    if job.state in _ORDER:
        return (_ORDER.index(job.state), float(job.sequence))
    return (len(_ORDER), -(job.ended or 0.0))


def _row(job: JobRecord, driver: Driver, now: float) -> tuple[str, ...]:
    state = job.state or JobState.QUEUED
    style = STYLES[state]
    why = driver.waits.why(job.name)
    says = f"{why.reason}: {why.message}" if why is not None else job.message
    since = job.attempt.started if state.holds_cards else job.submitted
    until = now if job.ended is None else job.ended
    cards = cards_of(job).partition(" ")[2] if state.holds_cards else ""
    tries = str(len(job.attempts)) if job.attempts else ""
    return (escape(job.name), f"[{style}]{state}[/]", cards, clock(until - since), tries, escape(says))
