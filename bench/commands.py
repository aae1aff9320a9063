"""`rota bench NAME`: measure one thing, or all, against gates that can fail a build."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from bench import engine as engine_bench
from bench import live as live_bench
from bench import placement as placement_bench
from bench import wait as wait_bench
from bench.report import RESULTS, Report, Unavailable, machine, show, summary, write
from jobs.reading import SpecError
from scheduler.drive.convert import PRESETS
from scheduler.drive.simulate_command import Progress
from scheduler.engine.policy import Placement

GATE_FAILED, USAGE_ERROR = 1, 2

Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: seconds instead of a minute, and rougher.")]

bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that `rota bench` can measure, in full and in small."""

    about: str
    full: Callable[[], Report]
    quick: Callable[[], Report]


def _wait(experiment: wait_bench.Experiment) -> Report:
    return wait_bench.measure(experiment, _progress)


WORKLOADS: dict[str, Workload] = {
    "engine": Workload(
        "how fast one decision is on a mixed load, beside a plain best fit, and how that grows with the cluster",
        lambda: engine_bench.measure(engine_bench.FULL),
        lambda: engine_bench.measure(engine_bench.QUICK),
    ),
    "live": Workload(
        "a whole cycle through real PostgreSQL on the mixed load, and the starts a second that come through it",
        lambda: live_bench.measure(live_bench.FULL),
        lambda: live_bench.measure(live_bench.QUICK),
    ),
    "wait": Workload(
        "how long the 46,070 jobs of a public trace wait, beside a plain strict FIFO",
        lambda: _wait(wait_bench.FULL),
        lambda: _wait(wait_bench.QUICK),
    ),
    "placement": Workload(
        "how full a public cluster gets when more is asked for than it has, beside what is published",
        lambda: placement_bench.measure_lists(placement_bench.MANY),
        lambda: placement_bench.measure_lists(1, ["default"]),
    ),
}
"""Add a workload here: that makes it part of `rota bench all`, of `rota bench list` and so of `make bench`."""


@bench.command()
def engine(
    *,
    nodes: Annotated[int, typer.Option(min=1, max=100_000)] = engine_bench.FULL.nodes,
    gpus: Annotated[int, typer.Option(min=1, max=64, help="Cards of a node.")] = engine_bench.FULL.gpus,
    pending: Annotated[int, typer.Option(min=1, max=1_000_000, help="Waiting jobs.")] = engine_bench.FULL.pending,
    shapes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Their shapes.")] = engine_bench.FULL.shapes,
    repeats: Annotated[int, typer.Option(min=1, max=1_000, help="Runs after the first.")] = engine_bench.FULL.repeats,
    growth: Annotated[bool, typer.Option(help="Measure other sizes of cluster too.")] = True,
    as_json: Json = False,
) -> None:
    """How fast one decision is on a mixed load, beside a plain NumPy best fit in the same run."""
    size = engine_bench.Size(nodes, gpus, pending, min(shapes, pending), repeats)
    _tell(engine_bench.measure(size if growth else replace(size, growth=())), as_json=as_json)


@bench.command()
def live(
    *,
    nodes: Annotated[int, typer.Option(min=1, max=100_000)] = live_bench.FULL.nodes,
    gpus: Annotated[int, typer.Option(min=1, max=64, help="Cards of a node.")] = live_bench.FULL.gpus,
    pending: Annotated[int, typer.Option(min=10, max=1_000_000, help="Waiting jobs.")] = live_bench.FULL.pending,
    shapes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Their shapes.")] = live_bench.FULL.shapes,
    cycles: Annotated[int, typer.Option(min=1, max=10_000, help="Cycles at each depth.")] = live_bench.FULL.cycles,
    ends: Annotated[int, typer.Option(min=1, max=100_000, help="Jobs that end in each.")] = live_bench.FULL.ends,
    as_json: Json = False,
) -> None:
    """A whole cycle through real PostgreSQL: load, decide, apply, with a simulated backend behind it."""
    try:
        report = live_bench.measure(live_bench.Size(nodes, gpus, pending, shapes, cycles, ends))
    except Unavailable as error:
        _refuse("live", str(error))
    _tell(report, as_json=as_json)


@bench.command()
def wait(  # noqa: PLR0913  each is an option of the command line
    *,
    trace: Annotated[Path | None, typer.Option(help="CSV file; default: the Philly trace below ROTA_SHARED.")] = None,
    preset: Annotated[str, typer.Option(help="Columns of the trace: philly or elasticflow.")] = "philly",
    nodes: Annotated[int, typer.Option(min=1, max=100_000)] = wait_bench.FULL.nodes,
    gpus: Annotated[int, typer.Option(min=1, max=64, help="Cards of a node.")] = wait_bench.FULL.gpus,
    first: Annotated[str | None, typer.Option("--from", help="The first day or moment of the cut.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Its last day, or the moment it ends before.")] = None,
    discipline: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(wait_bench.DISCIPLINES)}; may be given several times.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every discipline.")] = False,
    placement: Annotated[str, typer.Option(help="Best fit, as the reference's, unless said.")] = "binpack",
    as_json: Json = False,
) -> None:
    """How long the jobs of a public trace wait, beside a plain strict FIFO in the same run."""
    columns = PRESETS.get(preset)
    if columns is None or columns.duration is None:
        _refuse("wait", f"--preset: must be philly or elasticflow, not {preset!r}")
    disciplines = tuple(wait_bench.DISCIPLINES) if every else tuple(dict.fromkeys(discipline or ["fifo"]))
    if unknown := [name for name in disciplines if name not in wait_bench.DISCIPLINES]:
        _refuse("wait", f"--discipline: must be one of {', '.join(wait_bench.DISCIPLINES)}, not {unknown[0]!r}")
    philly = preset == "philly"
    experiment = wait_bench.Experiment(
        trace=trace,
        columns=columns,
        first=first or (wait_bench.PHILLY_FROM if philly else None),
        last=last or (wait_bench.PHILLY_TO if philly else None),
        nodes=nodes,
        gpus=gpus,
        disciplines=disciplines,
        rules={"placement": placement},
    )
    try:
        report = _wait(experiment)
    except (SpecError, Unavailable) as error:
        _refuse("wait", str(error))
    _tell(report, as_json=as_json)


@bench.command()
def placement(  # noqa: PLR0913  each is an option of the command line
    *,
    data: Annotated[Path | None, typer.Option(help="Folder of the openb lists; default: below ROTA_SHARED.")] = None,
    tasks: Annotated[str, typer.Option(help="The list: openb_pod_list_NAME.csv.")] = "default",
    policy: Annotated[Placement, typer.Option(help="The placement.")] = Placement.FRAGMENTATION,
    seed: Annotated[int, typer.Option(min=0, help="Decides the order in which tasks arrive.")] = placement_bench.SEED,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="So many from --seed on, and their mean.")] = 1,
    ratio: Annotated[
        float, typer.Option(min=0.01, max=10.0, help="How much is asked for, of the cluster.")
    ] = placement_bench.RATIO,
    shuffle_nodes: Annotated[bool, typer.Option("--shuffle-nodes", help="Deal the order of nodes anew.")] = False,
    reference: Annotated[bool, typer.Option(help="Play the reference too.")] = True,
    as_json: Json = False,
) -> None:
    """How full a public cluster gets when more is asked for than it has, beside a plain replay in the same run."""
    experiment = placement_bench.Experiment(
        data=data,
        tasks=tasks,
        placement=policy,
        seeds=tuple(range(seed, seed + seeds)),
        ratio=ratio,
        shuffled=shuffle_nodes,
        repeats=2 if seeds == 1 else 0,
        reference=reference,
    )
    try:
        report = placement_bench.measure(experiment)
    except Unavailable as error:
        _refuse("placement", str(error))
    _tell(report, as_json=as_json)


@bench.command("all")
def measure_all(*, quick: Quick = False, as_json: Json = False) -> None:
    """Measure everything, keep bench/results/*.json, and fail where a gate is not met."""
    reports: list[Report] = []
    missing: list[str] = []
    for name, workload in WORKLOADS.items():
        print(f"rota bench {name} …", file=sys.stderr)
        try:
            reports.append(workload.quick() if quick else workload.full())
        except Unavailable as error:
            missing.append(f"rota bench {name}: skipped, {error}")
    for report in reports:
        write(report)
    if as_json:
        print(json.dumps({report.name: report.as_json() for report in reports}, indent=2))
    else:
        console = _console()
        console.print(summary(reports))
        facts = ", ".join(f"{key} {value}" for key, value in machine().items())
        console.print(f"{facts}\nkept in {RESULTS}", markup=False, highlight=False)
    for line in missing:
        print(line, file=sys.stderr)
    _judge(reports, failed=bool(missing) and os.environ.get("ROTA_REQUIRE_ALL") == "1")


@bench.command("list")
def list_all() -> None:
    """Say what can be measured."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, workload in WORKLOADS.items():
        table.add_row(name, workload.about)
    _console().print(table)


def _console() -> Console:
    """Standard output; wide enough for the table where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 110)


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        show(report, _console())
    _judge([report])


def _judge(reports: list[Report], *, failed: bool = False) -> None:
    """Say which gates were not met, a line each, and end with the status that goes with it."""
    lines = [f"rota bench {report.name}: {gate}" for report in reports for gate in report.failed]
    for line in lines:
        print(line, file=sys.stderr)
    if lines or failed:
        raise typer.Exit(GATE_FAILED)


def _refuse(name: str, problem: str) -> NoReturn:
    print(f"rota bench {name}: {problem}", file=sys.stderr)
    raise typer.Exit(USAGE_ERROR)


def _progress(_discipline: str) -> Any:
    return _Bar() if sys.stderr.isatty() else None


class _Bar(Progress):
    """Takes itself away when all is done: nobody else knows when that is."""

    def __call__(self, done: int, total: int) -> None:
        """See Progress."""
        super().__call__(done, total)
        if done == total:
            self.clear()
