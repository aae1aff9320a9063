"""`rota convert`: a CSV job trace becomes a scenario file."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from jobs.reading import SpecError
from scheduler.drive.convert import PRESETS, Columns, Converted, Target, convert_rows, rows_of, write_scenario
from scheduler.drive.scenario.plain import load
from scheduler.drive.scenario.policy import changed, read_policy_change
from scheduler.engine.policy import Policy

USAGE_ERROR = 2


def convert(  # noqa: PLR0913  each is an option of the command line
    trace: Annotated[Path, typer.Argument(help="CSV file with a header.")],
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes the cluster has.", min=1, max=1_000_000)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="*.json or *.yaml; default: JSON here.")] = None,
    preset: Annotated[str | None, typer.Option(help=f"Columns of a known trace: {', '.join(PRESETS)}.")] = None,
    submit: Annotated[str | None, typer.Option(help="Column: when it was submitted (date or seconds).")] = None,
    duration: Annotated[str | None, typer.Option(help="Column: how long it ran, in seconds.")] = None,
    begin: Annotated[str | None, typer.Option(help="Column: when it began, instead of a duration.")] = None,
    end: Annotated[str | None, typer.Option(help="Column: when it ended, instead of a duration.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Column: how many cards it had.")] = None,
    team: Annotated[str | None, typer.Option(help="Column: whose it was.")] = None,
    user: Annotated[str | None, typer.Option(help="Column: who submitted it.")] = None,
    name: Annotated[str | None, typer.Option(help="Column: its name; default: job-ROW.")] = None,
    model: Annotated[str | None, typer.Option(help="Column: GPU models it may use, A|B.")] = None,
    cpu_milli: Annotated[str | None, typer.Option(help="Column: thousandths of a CPU.")] = None,
    memory_mib: Annotated[str | None, typer.Option(help="Column: host memory in MiB.")] = None,
    gpu_milli: Annotated[str | None, typer.Option(help="Column: thousandths of each card.")] = None,
    node_gpus: Annotated[int, typer.Option(help="Cards of a node.", min=1, max=1_000)] = 8,
    node_model: Annotated[str, typer.Option(help="Their model.")] = "GPU",
    node_vram: Annotated[float, typer.Option(help="Their memory in GiB.", min=1, max=100_000)] = 80.0,
    since: Annotated[str | None, typer.Option("--from", help="Leave out what was submitted before.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Leave out what was submitted then or later.")] = None,
    limit_factor: Annotated[
        float, typer.Option(help="Declared limit as a multiple of the true run time; 0: none.", min=0, max=1_000)
    ] = 1.0,
    speed: Annotated[float, typer.Option(help="Let jobs come that many times as fast.", min=0.001, max=1_000)] = 1.0,
    policy: Annotated[list[str] | None, typer.Option(help="KEY=VALUE such as queueing=fifo or retry.max=2.")] = None,
) -> None:
    """Turn a CSV job trace into a scenario file for `rota simulate`."""
    given = {
        "submit": submit,
        "duration": duration,
        "begin": begin,
        "end": end,
        "gpus": gpus,
        "team": team,
        "user": user,
        "name": name,
        "model": model,
        "cpu_milli": cpu_milli,
        "memory_mib": memory_mib,
        "gpu_milli": gpu_milli,
    }
    try:
        columns = _columns(preset, {key: title for key, title in given.items() if title is not None})
        target = Target(
            nodes=nodes,
            gpus=node_gpus,
            model=node_model,
            vram_gib=node_vram,
            since=since,
            until=until,
            limit_factor=limit_factor or None,
            speed=speed,
            policy=_policy(policy or []),
        )
        converted = _converted(trace, columns, target)
        _write(converted, output)
    except SpecError as error:
        _refuse(str(error))
    except BrokenPipeError:  # whoever read along has enough; nothing may be said when the interpreter ends either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        _refuse(f"{error.filename or output or 'standard output'}: {error.strerror}")
    left_out = ", ".join(f"{count} rows {why}" for why, count in converted.left_out.items())
    jobs = len(converted.scenario["jobs"])
    typer.echo(f"{jobs} jobs" + (f", left out: {left_out}" if left_out else ""), err=True)


def _refuse(problem: str) -> NoReturn:
    typer.echo(f"rota convert: {problem}", err=True)
    raise typer.Exit(USAGE_ERROR)


def _columns(preset: str | None, given: dict[str, str]) -> Columns:
    """Return the preset's columns with those that were given in their stead."""
    if preset is not None and preset not in PRESETS:
        raise SpecError("--preset", f"must be one of {', '.join(PRESETS)}")
    if preset is not None:
        return replace(PRESETS[preset], **given)
    for key in ("submit", "gpus"):
        if key not in given:
            raise SpecError(f"--{key}", "is missing: name the column, or a --preset")
    return Columns(**given)


def _policy(settings: list[str]) -> dict[str, Any]:
    """Make a policy of KEY=VALUE settings, a dot in the key for a section."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise SpecError("--policy", f"must be KEY=VALUE, not {setting!r}")
        head, _, tail = key.partition(".")
        if not tail:
            found[head] = load(value)
        elif isinstance(section := found.setdefault(head, {}), dict):
            section[tail] = load(value)
    try:
        changed(Policy(), read_policy_change(found))
    except SpecError as error:
        raise error.under("policy") from None
    return found


def _converted(trace: Path, columns: Columns, target: Target) -> Converted:
    with trace.open(encoding="utf-8-sig", newline="") as file:
        return convert_rows(rows_of(file), columns, target)


def _write(converted: Converted, output: Path | None) -> None:
    if output is None:
        write_scenario(converted.scenario, sys.stdout, as_json=True)
        return
    with output.open("w", encoding="utf-8") as file:
        write_scenario(converted.scenario, file, as_json=output.suffix not in (".yaml", ".yml"))
