"""Each workload on a tiny size: it says what programs rely on, and its gates see what they are there to see."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import commands, engine, wait
from bench.gates import Gate, Target
from bench.report import Report, Unavailable
from scheduler.engine.cycle import decide
from scheduler.engine.demand import Shape
from scheduler.engine.policy import Placement

TINY = engine.Size(nodes=12, gpus=4, pending=60, shapes=20, repeats=1, growth=(8, 16))


def trace(folder: Path, jobs: int = 400, seed: int = 1) -> Path:
    """A trace in the columns of the public one; one job in twenty is larger than a node."""
    draw = random.Random(seed)
    rows = [
        f"2017-10-0{2 + at * 3 // jobs} {at % 24:02}:{draw.randrange(60):02}:00,{draw.randrange(600, 9000)}.0,"
        f"{draw.choice([1, 1, 2, 4, 8] if at % 20 else [12, 16])},1,vc{at % 3}"
        for at in range(jobs)
    ]
    path = folder / "trace.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def experiment(tmp_path: Path) -> wait.Experiment:
    return wait.Experiment(trace=trace(tmp_path), nodes=4)


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `rota bench ARGUMENTS`."""
    result = CliRunner().invoke(commands.bench, arguments)
    return result.exit_code, result.stdout, result.stderr


# -- engine


def test_engine_prints_what_programs_rely_on() -> None:
    status, output, _ = run(
        "engine", "--nodes", "12", "--gpus", "4", "--pending", "60", "--repeats", "1", "--no-growth", "--json"
    )
    told = json.loads(output)
    names = ("placements_per_second", "decide_seconds", "decide_seconds_distinct", "ratio_to_reference")
    assert all(told[name] > 0 for name in names)
    assert told["first"].keys() == told["cpu"].keys() == set(names[:3])
    assert told["fill"].keys() == set(Placement)
    assert status == (1 if any(bar["kind"] == "gate" and not bar["met"] for bar in told["bars"]) else 0)


@pytest.mark.slow
def test_engine_measures_growth_for_every_placement() -> None:
    report = engine.measure(TINY)
    growth = report.figures["growth"]
    assert growth["nodes"] == [8, 16]
    assert set(growth["exponent"]) == {*(f"fill, {placement}" for placement in Placement), "decide"}
    assert {bar.what for bar in report.bars} >= {f"growth with nodes, {what}" for what in growth["exponent"]}
    assert not any(isinstance(bar, Target) for bar in report.bars), "the budgets speak of the full size"


def test_engine_fills_the_same_as_the_reference() -> None:
    report = engine.measure(replace(TINY, growth=()))
    filled = report.figures["fill"]["hybrid"]["placements"]
    assert 0 < report.figures["reference"]["placements"] <= filled


@pytest.mark.parametrize("shapes", [20, 60])
def test_on_the_full_cluster_all_wait_and_none_starts(shapes: int) -> None:
    roster = engine.full_roster(12, 4, 60, shapes, filling_shapes=20)
    lanes = roster.snapshot(0.0).lanes
    assert sum(len(lane.jobs) for lane in lanes) == 60
    assert len(lanes) <= shapes
    plan = decide(roster.snapshot(0.0), roster.policy, 0.0)
    assert not plan.starts
    assert len(plan.waiting) == len(lanes)


def test_distinct_jobs_have_a_lane_each() -> None:
    assert len(engine.full_roster(12, 4, 60, 60, filling_shapes=20).snapshot(0.0).lanes) >= 58


def test_the_power_of_growth() -> None:
    assert engine.exponent((100, 1_000, 10_000), (1.0, 10.0, 100.0)) == pytest.approx(1.0)
    assert engine.exponent((10, 20, 40), (1.0, 4.0, 16.0)) == pytest.approx(2.0)
    assert engine.exponent((10,), (1.0,)) is None


@pytest.mark.slow
def test_engine_gates_see_a_slow_engine_and_quadratic_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    class Instant:
        def __init__(self, _nodes: object) -> None: ...

        def place_all(self, shapes: list[Shape]) -> int:
            return sum(shape.replicas for shape in shapes)

    monkeypatch.setattr(engine, "BestFit", Instant)
    monkeypatch.setattr(engine, "exponent", lambda _sizes, _seconds: 2.0)
    failed = {gate.what for gate in engine.measure(TINY).failed}
    assert {"ratio to the reference", "growth with nodes, fill, hybrid", "growth with nodes, decide"} <= failed


# -- wait


def test_wait_prints_what_programs_rely_on(tmp_path: Path) -> None:
    status, output, errors = run("wait", "--trace", str(trace(tmp_path)), "--nodes", "4", "--json")
    told = json.loads(output)
    assert (status, errors) == (0, "")
    assert told["fifo"].keys() >= {"wait_minutes", "turnaround_minutes", "wait_minutes_big", "use_ratio", "cycles"}
    assert told["fifo"]["wait_minutes"].keys() == {"mean", "p50", "p95"}
    assert told["fifo"]["succeeded"] == told["reference"]["jobs"] == 400
    assert told["fifo"]["wait_minutes"]["mean"] > 1, "a trace in which nobody waits would prove nothing"


def test_rota_starts_every_job_when_the_reference_does(experiment: wait.Experiment) -> None:
    figures = wait.measure(experiment).figures
    assert figures["reference"]["same_start"] == 400
    for name in ("wait_minutes", "turnaround_minutes", "wait_minutes_big", "use_ratio"):
        assert figures["fifo"][name] == pytest.approx(figures["reference"][name])


def test_who_may_overtake_waits_less(experiment: wait.Experiment) -> None:
    figures = wait.measure(replace(experiment, disciplines=("fifo", "greedy", "fair", "capacity"))).figures
    assert figures["greedy"]["wait_minutes"]["mean"] < figures["fifo"]["wait_minutes"]["mean"]
    assert all(figures[name]["succeeded"] == 400 for name in ("greedy", "fair", "capacity"))


def test_wait_gates_see_another_discipline_and_lost_jobs(
    experiment: wait.Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "DISCIPLINES", {"fifo": {"queueing": "fifo", "backfill": True}})
    assert "fifo: mean wait off the reference's" in {gate.what for gate in wait.measure(experiment).failed}
    figures = {"jobs": 10, "succeeded": 9, "cycles": 21, "load_seconds": 1.0, "wall_seconds": 1_000.0}
    bars = wait.bars_of("fifo", figures)
    assert [bar.met for bar in bars if isinstance(bar, Gate)] == [False, False]


def test_a_cut_ends_with_its_last_day() -> None:
    assert wait.until("2017-10-29") == "2017-10-30"
    assert wait.until("2017-10-29 12:00:00") == "2017-10-29 12:00:00"
    assert wait.until("20171029") == "20171029"
    assert wait.until(None) is None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--trace", "/nowhere/trace.csv"), "there is no trace /nowhere/trace.csv"),
        (("--preset", "openb"), "--preset: must be philly or elasticflow, not 'openb'"),
        (("--discipline", "lottery"), "--discipline: must be one of fifo, greedy, fair, capacity, not 'lottery'"),
    ],
)
def test_wait_refuses_in_one_line(arguments: tuple[str, ...], line: str) -> None:
    status, output, errors = run("wait", *arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(f"rota bench wait: {line}")
    assert errors.count("\n") == 1


def test_wait_refuses_a_broken_trace_by_row(tmp_path: Path) -> None:
    path = trace(tmp_path, jobs=3)
    path.write_text(path.read_text() + "2017-10-04 01:00:00,soon,1,1,vc0\n")
    status, _, errors = run("wait", "--trace", str(path))
    assert status == 2
    assert "row 5, column duration" in errors


@pytest.mark.slow
@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    ("file", "preset", "cut", "jobs"),
    [
        ("philly_pollux.csv", "philly", ("--from", "2017-10-02", "--to", "2017-10-02", "--nodes", "40"), 1_300),
        ("elasticflow_philly_103959.csv", "elasticflow", ("--from", "0", "--to", "3000000", "--nodes", "2"), 200),
    ],
)
def test_cuts_of_the_public_traces(shared: Path, file: str, preset: str, cut: tuple[str, ...], jobs: int) -> None:
    path = shared / "data" / "timeseries" / file
    status, output, errors = run("wait", "--trace", str(path), "--preset", preset, *cut, "--json")
    told = json.loads(output)
    assert (status, errors) == (0, "")
    assert told["fifo"]["succeeded"] == told["reference"]["same_start"] > jobs


# -- all


@pytest.fixture
def workloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, commands.Workload]]:
    """A workload that passes, one that fails and one that cannot run; results go elsewhere."""

    def report(name: str, value: float) -> Report:
        return Report(name, {"value": value}, (Gate("value", value, "at_least", 1),))

    def unavailable() -> Report:
        raise Unavailable("there is no trace")

    words = {
        "good": commands.Workload("passes", lambda: report("good", 2), lambda: report("good", 1)),
        "bad": commands.Workload("fails", lambda: report("bad", 0.5), lambda: report("bad", 1)),
        "gone": commands.Workload("is not here", unavailable, unavailable),
    }
    monkeypatch.setattr(commands, "WORKLOADS", words)
    monkeypatch.setattr(commands, "write", lambda report: (tmp_path / report.name).write_text(report.name))
    monkeypatch.delenv("ROTA_REQUIRE_ALL", raising=False)
    yield words
    assert {path.name for path in tmp_path.iterdir()} <= words.keys()


def test_all_fails_with_a_line_for_each_gate(workloads: dict[str, commands.Workload], tmp_path: Path) -> None:
    status, output, errors = run("all")
    assert status == 1
    assert "FAILED" in output
    assert "rota bench bad: value is 0.5, it has to be ≥ 1\n" in errors
    assert "rota bench gone: skipped, there is no trace\n" in errors
    assert {path.name for path in tmp_path.iterdir()} == {"good", "bad"}


def test_all_passes_when_every_gate_does(
    workloads: dict[str, commands.Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, output, _ = run("all", "--quick", "--json")
    assert status == 0
    assert json.loads(output).keys() == {"good", "bad"}
    monkeypatch.setenv("ROTA_REQUIRE_ALL", "1")
    assert run("all", "--quick")[0] == 1, "what cannot be measured is a failure where everything has to be there"


def test_list_names_every_workload() -> None:
    status, output, _ = run("list")
    assert status == 0
    assert all(name in output for name in commands.WORKLOADS)
