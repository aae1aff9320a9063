"""The answer of a play for people: a small Gantt chart, a table of the jobs, and the figures."""

from __future__ import annotations

from bisect import bisect_right

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.states import AttemptEnd
from quotas.limits import plural
from scheduler.drive.events import clock
from scheduler.drive.live import STYLES
from scheduler.drive.records import JobRecord
from scheduler.drive.result import Result
from scheduler.drive.waits import Wait

JOBS_MOST = 40
"""Rows at most: beyond that nobody reads a chart in a terminal."""
CHART_COLUMNS = (20, 100)
RUNS, WAITS, NOTHING = "█", "·", " "
_BAD = frozenset({AttemptEnd.FAILED, AttemptEnd.HUNG, AttemptEnd.TIME_LIMIT, AttemptEnd.LOST, AttemptEnd.EVICTED})


def show(result: Result, console: Console | None = None) -> None:
    """Print all of it."""
    console = console or Console()
    jobs = list(result.jobs.values())
    shown = jobs[:JOBS_MOST]
    if shown and result.end > 0:
        console.print(_chart(shown, result, console.width))
    console.print(_table(shown, result))
    if len(jobs) > len(shown):
        console.print(f"and {(more := len(jobs) - len(shown))} more {plural('job', more)}; --json has all")
    console.print(_figures(result))
    for alert in result.alerts[:JOBS_MOST]:
        about = alert.job or alert.node or ""
        console.print(Text(f"{clock(alert.at)}  alert {alert.kind}  {about}  {alert.message}".rstrip(), style="yellow"))


def _chart(jobs: list[JobRecord], result: Result, width: int) -> Table:
    """A row for each job: dots while it waits, blocks while it holds cards, red where the attempt ended badly."""
    longest = min(30, max(len(job.name) for job in jobs))
    least, most = CHART_COLUMNS
    columns = max(least, min(most, width - longest - 2))
    chart = Table(box=None, pad_edge=False, show_header=False)
    chart.add_column(no_wrap=True, overflow="ellipsis", max_width=longest)
    chart.add_column(no_wrap=True)
    for job in jobs:
        chart.add_row(Text(job.name), _bar(job, result, columns))
    last = clock(result.end)
    chart.add_row("", Text("0" + last.rjust(columns - 1), style="dim"))
    return chart


def _bar(job: JobRecord, result: Result, columns: int) -> Text:
    """The state at the middle of each column; an attempt too short for that still gets its column."""
    cells: list[tuple[str, str]] = [(NOTHING, "")] * columns
    waits = result.waits_of(job.name)
    begins = [wait.begin for wait in waits]
    step = result.end / columns
    for column in range(columns):
        middle = (column + 0.5) * step
        at = bisect_right(begins, middle) - 1
        if at >= 0 and _covers(waits[at], middle):
            cells[column] = (WAITS, "yellow")
    for attempt in job.attempts:
        until = result.end if attempt.ended is None else attempt.ended
        first, last = int(attempt.started / step), int(until / step)
        style = "red" if attempt.end in _BAD else "green"
        for column in range(min(first, columns - 1), min(max(last, first + 1), columns)):
            cells[column] = (RUNS, style)
    return Text.assemble(*cells)


def _covers(wait: Wait, moment: float) -> bool:
    return wait.end is None or moment < wait.end


def _table(jobs: list[JobRecord], result: Result) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("job", "state", "submitted", "waited", "tries", "ended", "waited last for"):
        table.add_column(title, no_wrap=title not in ("job", "waited last for"))
    for job in jobs:
        waits = result.waits_of(job.name)
        started = result.end if job.started is None else job.started
        waited = clock(max(0.0, started - job.submitted)) if job.state is not None else ""
        last = f"{waits[-1].reason}: {waits[-1].message}" if waits else job.message
        table.add_row(
            Text(job.name),
            Text(job.state or "not yet", style=STYLES[job.state] if job.state else "dim"),
            clock(job.submitted),
            waited,
            str(len(job.attempts) or ""),
            "" if job.ended is None else clock(job.ended),
            Text(last, style="dim"),
        )
    return table


def _figures(result: Result) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    wait, turnaround, readings = result.wait_seconds(), result.turnaround_seconds(), result.readings
    rows = (
        ("cards held", f"{readings.allocated_ratio:.1%} of those in service, over {clock(result.end)}"),
        ("wait", f"mean {clock(wait.mean)}, half {clock(wait.p50)}, 95% {clock(wait.p95)}, longest {clock(wait.most)}"),
        ("turnaround", f"mean {clock(turnaround.mean)}, half {clock(turnaround.p50)}, 95% {clock(turnaround.p95)}"),
        ("broken up", f"{readings.fragmentation_ratio:.1%} of free cards, {readings.idle_nodes:.1f} nodes idle"),
        ("taken", f"for others: {result.preemptions()}"),
        ("played", f"in {result.wall_seconds:.2f} s, cycles: {result.cycles}"),
    )
    for title, says in rows:
        table.add_row(Text(title, style="bold"), says)
    return table
