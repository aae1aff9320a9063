"""`rota convert`: traces become scenarios, quickly, and a bad row is named."""

import io
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from scheduler.drive.convert import PRESETS, Columns, Target, convert_rows, rows_of, write_scenario
from scheduler.drive.convert_command import convert
from scheduler.drive.scenario import SpecError, load_scenario, parse_scenario
from scheduler.engine.demand import Group
from scheduler.engine.policy import Queueing
from tests.needs import SHARED

DATA = SHARED / "data"
PHILLY = DATA / "timeseries" / "philly_pollux.csv"
OPENB = DATA / "openb" / "openb_pod_list_default.csv"
HEADER = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
TARGET = Target(nodes=2, model="V100", vram_gib=32)


def philly(*rows: Sequence[str], target: Target = TARGET) -> list[dict[str, object]]:
    converted = convert_rows([HEADER, *rows], PRESETS["philly"], target)
    assert len(parse_scenario(converted.scenario).jobs) == len(converted.scenario["jobs"])
    jobs: list[dict[str, object]] = converted.scenario["jobs"]
    return jobs


def test_rows_become_jobs_in_the_order_of_submission() -> None:
    assert philly(
        ("2017-10-02 00:01:00", "66.0", "1", "66.0", "x"),
        ("2017-10-02 00:00:30", "2.5", "8", "20.0", "y"),
    ) == [
        {"name": "job-3", "at": 0, "team": "y", "gpus": 8, "duration": 2.5, "time_limit": 2.5},
        {"name": "job-2", "at": 30, "team": "x", "gpus": 1, "duration": 66, "time_limit": 66},
    ]


def test_more_cards_than_a_node_has_become_a_gang() -> None:
    (even, odd) = philly(("1", "9", "16", "", "x"), ("2", "9", "20", "", "x"))
    assert (even["replicas"], even["gpus"]) == (2, 8)
    groups = parse_scenario(
        {
            "nodes": [{"name": "n", "gpus": 8, "model": "V100", "vram_gib": 32}],
            "teams": [{"name": "x"}],
            "jobs": [odd],
        }
    ).jobs[0].spec.groups  # fmt: skip
    assert groups == (Group("nodes", 2, 8, 8_000, 32 * 1024), Group("rest", 1, 4, 4_000, 16 * 1024))


def test_the_time_asked_for_the_limit_and_the_speed() -> None:
    days = [(f"2017-10-0{day} 00:00:00", "100", "1", "", "x") for day in range(1, 6)]
    target = replace(TARGET, since="2017-10-02", until="2017-10-04", limit_factor=1.5, speed=2)
    assert [(job["name"], job["at"], job["time_limit"]) for job in philly(*days, target=target)] == [
        ("job-3", 0, 150),
        ("job-4", 43_200, 150),
    ]
    assert "time_limit" not in philly(days[0], target=replace(TARGET, limit_factor=None))[0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            ("yesterday", "1", "1", "", "x"),
            'timestamp: must be a date and time or a number of seconds, not "yesterday"',
        ),
        (("1", "-1", "1", "", "x"), 'duration: must be a number of seconds, not "-1"'),
        (("1", "nan", "1", "", "x"), 'duration: must be a number of seconds, not "nan"'),
        (("1", "", "1", "", "x"), 'duration: must be a number of seconds, not ""'),
        (("1", "1e300", "1", "", "x"), "duration: is too long"),
        (("1", "1", "1.5", "", "x"), 'num_gpus: must be a whole number of at least 0, not "1.5"'),
        (("1", "1", "-2", "", "x"), 'num_gpus: must be a whole number of at least 0, not "-2"'),
        (("1", "1", "9999999", "", "x"), 'num_gpus: must be a whole number of at least 0, not "9999999"'),
        (("1", "1", "1", "", "x" * 201), "cluster: must not be longer than 200 characters"),
    ],
    ids=range(9),
)
def test_a_bad_row_is_named(row: Sequence[str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        philly(("1", "1", "1", "", "x"), row)
    assert str(caught.value) == f"row 3, column {message}"


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([], PRESETS["philly"], 'row 1: there is no column "timestamp", there are none'),
        ([("a", "b")], Columns("a", "b"), "say which column holds the duration, or which ones the begin and the end"),
        ([("a", "b")], Columns("a", "b", duration="c"), 'row 1: there is no column "c", there are a, b'),
        ([("a", "b", "c")], Columns("a", "b", "c"), "no job is left: check the columns and the time asked for"),
        ([("a", "b", "c"), ("1", "2")], Columns("a", "b", "c"), "row 2: has 2 columns, fewer than the header"),
        (
            [("a", "b", "c"), ("1", "1", "x"), ("1", "1", "x")],
            Columns("a", "b", begin="a", end="a", name="c"),
            'row 3, column c: "x" is there twice',
        ),
        (
            [("a", "b", "c"), ("5", "1", "4")],
            Columns("a", "b", begin="a", end="c"),
            "row 2, column c: must not lie before the begin",
        ),
    ],
    ids=range(7),
)
def test_what_is_no_trace(rows: list[Sequence[str]], columns: Columns, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        convert_rows(rows, columns, TARGET)
    assert str(caught.value) == message


@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_written_reads_as_it_was(as_json: bool) -> None:
    rows = [("2017-10-02", "5", "1", "", team) for team in ("6214e9", "no", "108", "视觉", "a: b # c", '"')]
    scenario = convert_rows([HEADER, *rows], PRESETS["philly"], TARGET).scenario
    file = io.StringIO()
    write_scenario(scenario, file, as_json=as_json)
    assert parse_scenario(file.getvalue()) == parse_scenario(scenario)
    assert len(file.getvalue().splitlines()) > len(rows)


def test_the_openb_preset_knows_slices_models_and_those_that_never_ran() -> None:
    header = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time",
              "scheduled_time")  # fmt: skip
    rows = [
        header,
        ("p0", "6000", "12288", "1", "460", "V100|T4", "10", "110", "20"),
        ("p1", "6000", "12288", "0", "0", "", "10", "110", "20"),
        ("p2", "6000", "12288", "1", "1000", "", "10", "110", ""),
    ]
    converted = convert_rows(rows, PRESETS["openb"], replace(TARGET, vram_gib=33))
    assert converted.left_out == {"without GPUs": 1, "that never ran": 1}
    assert converted.scenario["jobs"] == [
        {"name": "p0", "at": 0, "team": "default", "gpus": 1, "cpus": 6, "memory_gib": 12, "share": True,
         "vram_gib": 14.72, "duration": 90, "time_limit": 90, "model": ["V100", "T4"]}
    ]  # fmt: skip
    assert parse_scenario(converted.scenario).jobs[0].spec.groups[0].models == ("V100", "T4")


APP = typer.Typer()
APP.command()(convert)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(APP, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_the_command(tmp_path: Path, suffix: str) -> None:
    trace, output = tmp_path / "trace.csv", tmp_path / f"out{suffix}"
    trace.write_text("when,secs,cards,who\n0,10,1,x\n5,10,0,x\n", encoding="utf-8-sig")
    code, _, said = run(
        str(trace), "--submit", "when", "--duration", "secs", "--gpus", "cards", "--team", "who", "--nodes", "3",
        "--node-model", "H100", "--policy", "queueing=fifo", "--policy", "retry.max=2", "-o", str(output),
    )  # fmt: skip
    assert (code, said) == (0, "1 jobs, left out: 1 rows without GPUs\n")
    scenario = load_scenario(output)
    assert [node.name for node in scenario.nodes] == ["n0", "n1", "n2"]
    assert (scenario.policy.queueing, scenario.policy.retry.max) == (Queueing.FIFO, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.csv", "--preset", "philly"], "nope.csv: No such file or directory"),
        (["nope.csv", "--preset", "borg"], "--preset: must be one of philly, elasticflow, openb"),
        (["nope.csv"], "--submit: is missing: name the column, or a --preset"),
        (["nope.csv", "--preset", "philly", "--policy", "fifo"], "--policy: must be KEY=VALUE, not 'fifo'"),
        (
            ["nope.csv", "--preset", "philly", "--policy", "queueing=lifo"],
            'policy.queueing: must be one of fifo, fair, capacity, not "lifo"',
        ),
    ],
    ids=range(5),
)
def test_the_command_refuses_in_one_line(arguments: list[str], message: str) -> None:
    assert run(*arguments, "--nodes", "3") == (2, "", f"rota convert: {message}\n")


@pytest.mark.slow
@pytest.mark.needs("shared")
def test_the_whole_philly_trace_takes_a_few_seconds() -> None:
    begun = time.process_time()
    with PHILLY.open(newline="", encoding="utf-8") as file:
        everything = convert_rows(rows_of(file), PRESETS["philly"], Target(nodes=80))
    assert time.process_time() - begun < 5
    assert len(everything.scenario["jobs"]) == 82_247
    with PHILLY.open(newline="", encoding="utf-8") as file:
        weeks = Target(nodes=80, since="2017-10-02", until="2017-10-30")
        month = convert_rows(rows_of(file), PRESETS["philly"], weeks)
    assert len(parse_scenario(month.scenario).jobs) == 46_070


@pytest.mark.slow
@pytest.mark.needs("shared")
def test_the_whole_openb_list() -> None:
    with OPENB.open(newline="", encoding="utf-8") as file:
        converted = convert_rows(rows_of(file), PRESETS["openb"], Target(nodes=80))
    assert len(parse_scenario(converted.scenario).jobs) + sum(converted.left_out.values()) == 8_152
