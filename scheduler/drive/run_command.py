"""`rota run`: runs a file of real commands on this machine's cards, without a server."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from jobs.states import JobState
from quotas.limits import plural
from scheduler.backends.base import BackendError
from scheduler.drive.command_input import BAD_INPUT, read_input, refuse
from scheduler.drive.events import EventLines, View, clock
from scheduler.drive.records import JobRecord
from scheduler.drive.scenario import Scenario, SpecError, not_yet, parse_scenario
from scheduler.drive.workstation import Run, Workstation, new_root

FAILED = 1
INTERRUPTED = 130  # as shells say it of SIGINT


class Format(StrEnum):
    """How to show what happens."""

    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"


def run(
    file: Annotated[str, typer.Argument(help="Scenario file with a command for each job; - reads standard input.")],
    *,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="A live table (default on a terminal), a line for each event, or JSON."),
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option(help="Where to put this run's folder of logs; default: a temporary folder.")
    ] = None,
) -> None:
    """Run a file of real commands on this machine's cards, without a server."""
    scenario = _read(file)
    form = form or (Format.LIVE if sys.stdout.isatty() else Format.PLAIN)
    view = _view(form)
    machine = _machine(scenario, log_dir, view)
    if machine.virtual:
        cards = len(machine.node.gpus)
        says = f"{cards} virtual {plural('card', cards)}, no NVIDIA GPU answers here (ROTA_LOCAL_GPUS sets how many)"
        print(f"rota run: {says}", file=sys.stderr)
    with view:
        done = machine.run(view.turn)
    if form is Format.JSON:
        json.dump(_answer(done, machine), sys.stdout, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.write("\n")
    else:
        print("\n".join(_summary(done, machine)))
    raise typer.Exit(_status(done))


def _read(file: str) -> Scenario:
    try:
        plain = read_input(file)
        scenario = parse_scenario(plain, mode="run")
    except SpecError as error:
        refuse(error)
    if ignored := not_yet(plain):
        print(f"rota run: not in effect yet: {', '.join(ignored)}", file=sys.stderr)
    return scenario


def _machine(scenario: Scenario, log_dir: Path | None, view: View) -> Workstation:
    try:
        root = new_root(log_dir)
    except OSError as error:
        _give_up(f"--log-dir: {error.filename or log_dir}: {error.strerror}")
    try:
        return Workstation(scenario, root, on_move=view.moved)
    except BackendError as error:
        with suppress(OSError):
            root.rmdir()
        _give_up(str(error))


def _give_up(problem: str) -> NoReturn:
    print(f"rota run: {' '.join(problem.split())}", file=sys.stderr)
    raise typer.Exit(BAD_INPUT)


def _view(form: Format) -> View:
    if form is Format.LIVE:
        # Drawing needs a library that the other formats can do without.
        live: View = import_module("scheduler.drive.live").LiveTable()
        return live
    return EventLines() if form is Format.PLAIN else View()


def _status(done: Run) -> int:
    if done.interrupted:
        return INTERRUPTED
    return 0 if all(job.state is JobState.SUCCEEDED for job in done.result.jobs.values()) else FAILED


def _answer(done: Run, machine: Workstation) -> dict[str, Any]:
    """What `rota simulate` says, with the exit code and the logs of each attempt."""
    answer = done.result.answer()
    for name, job in done.result.jobs.items():
        for row, attempt in zip(answer["jobs"][name]["attempts"], job.attempts, strict=True):
            row |= {"exit_code": attempt.exit_code, "note": attempt.note, "logs": str(machine.logs_of(attempt))}
    return answer | {"logs": str(done.logs), "virtual": machine.virtual, "interrupted": done.interrupted}


def _summary(done: Run, machine: Workstation) -> list[str]:
    """A line for each job that did not succeed, one for all, and where the logs are."""
    jobs = done.result.jobs.values()
    lines = [line for job in jobs if job.state is not JobState.SUCCEEDED for line in _complaint(job, done, machine)]
    states = [job.state or "not submitted" for job in jobs]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    interrupted = "interrupted; " if done.interrupted else ""
    lines.append(f"{interrupted}{counts or 'no jobs'} in {clock(done.result.end)}, logs in {done.logs}")
    return lines


def _complaint(job: JobRecord, done: Run, machine: Workstation) -> list[str]:
    if job.state is None:
        return []
    waits = [] if job.state.terminal else done.result.waits_of(job.name)
    why = f"{waits[-1].reason}: {waits[-1].message}" if waits else job.message
    line = f"{job.name}: {job.state}" + (f", {why}" if why else "")
    if job.attempts:
        last = job.attempt
        code = "" if last.exit_code is None else f" with exit code {last.exit_code}"
        line += f" (attempt {last.number} {last.end}{code}, logs in {machine.logs_of(last)})"
    return [line]
