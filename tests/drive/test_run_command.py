"""`rota run` for real: processes on this machine's (virtual) cards, their ends, their logs, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.needs import ROOT

ROTA = Path(sys.executable).with_name("rota")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def start(tmp_path: Path, file: Path, *options: str, cards: int = 4) -> subprocess.Popen[str]:
    env = os.environ | {"ROTA_LOCAL_GPUS": str(cards)}
    command = [str(ROTA), "run", str(file), "--log-dir", str(tmp_path / "logs"), *options]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(tmp_path: Path, text: str, *options: str, cards: int = 4) -> tuple[int, str, str]:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    process = start(tmp_path, file, *options, cards=cards)
    out, err = process.communicate(timeout=60)
    assert left_behind(tmp_path) == []
    return process.returncode, out, err


def left_behind(tmp_path: Path) -> list[str]:
    """Processes that carry the mark of any run below this folder."""
    marks = [b"ROTA_SHIM=" + path.read_bytes().strip().partition(b"=")[2] for path in (tmp_path / "logs").glob("*/id")]
    assert marks
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = environ.read_bytes()
        except OSError:
            continue
        if any(mark in content for mark in marks):
            found.append(environ.parent.name)
    return found


def log(attempt: dict[str, Any], rank: int = 0) -> str:
    return "".join(path.read_text() for path in sorted(Path(attempt["logs"], str(rank)).glob("output.*")))


def test_the_workstation_example(tmp_path: Path) -> None:
    begun = time.monotonic()
    process = start(tmp_path, ROOT / "examples" / "workstation.yaml", "--format", "json")
    out, err = process.communicate(timeout=90)
    assert time.monotonic() - begun < 40
    assert left_behind(tmp_path) == []
    assert process.returncode == 1  # the runaway is meant to fail
    assert "4 virtual cards" in err
    answer = json.loads(out)
    jobs = answer["jobs"]

    # Two jobs of three cards, one after the other; the second says what it waits for.
    assert jobs["first"]["state"] == jobs["second"]["state"] == "succeeded"
    assert jobs["second"]["started"] >= jobs["first"]["ended"]
    assert jobs["second"]["started"] - jobs["first"]["ended"] < 1
    assert {wait["reason"] for wait in jobs["second"]["waits"]} == {"gpus"}
    assert "has cards 0,1,2" in log(jobs["second"]["attempts"][0])
    # A gang that talks.
    gang = jobs["gang"]["attempts"][0]
    assert log(gang, 0) == "rank 0 of 2 hears: hello from rank 1\n"
    assert log(gang, 1) == "rank 1 of 2 hears: hello from rank 0\n"
    # A failure and a kill, both tried again.
    for name, code, said in (("flaky", 3, "not this time\n"), ("struck", 137, "struck\n")):
        tries = jobs[name]["attempts"]
        assert jobs[name]["state"] == "succeeded"
        assert [(one["end"], one["exit_code"]) for one in tries] == [("failed", code), ("completed", 0)]
        assert [log(one) for one in tries] == [said, "worked\n"]
        assert "backoff" in {wait["reason"] for wait in jobs[name]["waits"]}
        assert tries[1]["started"] - tries[0]["ended"] >= 0.75
    # A daemon that would stay for an hour.
    runaway = jobs["runaway"]["attempts"]
    assert (jobs["runaway"]["state"], [one["end"] for one in runaway]) == ("failed", ["time_limit"])
    assert 3 <= runaway[0]["ended"] - runaway[0]["started"] < 8
    assert log(runaway[0]).startswith("sent a daemon\n")
    # No card is ever held twice.
    for gpu in range(4):
        spans = sorted(
            (one["started"], one["ended"]) for job in jobs.values() for one in job["attempts"]
            if any(gpu in piece["gpus"] for piece in one["placement"])
        )  # fmt: skip
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


QUICK = """
jobs:
  - {name: a, gpus: 2, command: [sh, -c, "echo $GREETING; sleep 0.3"], env: {GREETING: hello}}
  - {name: b, gpus: 1, command: [pwd], cwd: /usr, after: [a]}
"""


def test_all_is_well_is_status_0_with_a_line_for_each_event(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, QUICK, cards=2)
    assert code == 0
    assert "2 virtual cards" in err
    events = [line.split(maxsplit=3)[2:] for line in out.splitlines()[:-1]]
    assert ["a", "starts on cards 0, 1"] in events
    assert any(
        name == "b" and what.startswith("waits (not_before): waits for other jobs: a is") for name, what in events
    )
    assert ["b", "succeeded"] in events
    assert out.splitlines()[-1].startswith("2 succeeded in ")
    logs = Path(out.split("logs in ")[-1].strip())
    assert logs.parent == tmp_path / "logs"
    assert [path.read_text() for path in sorted(logs.glob("attempts/*/0/output.*"))] == ["hello\n", "/usr\n"]


def test_a_failure_is_status_1_and_names_its_logs(tmp_path: Path) -> None:
    code, out, _ = run(
        tmp_path,
        "policy: {retry: {max: 0}}\njobs: [{name: bad, command: [sh, -c, 'exit 4']}, {name: no, command: [nope]}]",
    )
    assert code == 1
    bad = next(line for line in out.splitlines() if line.startswith("bad: failed"))
    assert "exit code 4" in bad
    assert Path(bad.split("logs in ")[-1].rstrip(")")).is_dir()
    no = next(line for line in out.splitlines() if line.startswith("no: failed"))
    assert "no retry is left (limit 0): command nope: not found" in no
    assert "exit code 127" in no


def test_what_can_never_start_does_not_keep_anybody_waiting(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "jobs: [{name: huge, gpus: 9, command: ['true']}, {name: ok, command: ['true']}]")
    assert code == 1
    assert "huge: queued, impossible: " in out
    assert out.splitlines()[-1].startswith("1 queued, 1 succeeded")


LONG = """
jobs:
  - {name: polite, gpus: 1, command: [sh, -c, "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"]}
  - {name: stubborn, gpus: 1, command: [sh, -c, "trap : TERM INT HUP; echo up; while :; do sleep 0.1; done"]}
  - {name: later, gpus: 1, at: 1h, command: ["true"]}
  - {name: waits, gpus: 1, command: ["true"]}
"""


def long(tmp_path: Path) -> subprocess.Popen[str]:
    """Start jobs that do not end by themselves, wait until both are up."""
    file = tmp_path / "jobs.yaml"
    file.write_text(LONG.replace("stubborn, gpus: 1,", "stubborn, gpus: 1, checkpoint: {grace: 20s},"))
    process = start(tmp_path, file, "--format", "json", cards=2)
    until = time.monotonic() + 30
    while sum("up" in path.read_text() for path in tmp_path.glob("logs/*/attempts/*/0/output.*")) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_cleanly_and_a_second_one_at_once(tmp_path: Path, first: signal.Signals) -> None:
    process = long(tmp_path)
    process.send_signal(first)
    time.sleep(1.5)
    assert process.poll() is None  # one is given its time
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert time.monotonic() - asked < 5
    assert process.returncode == 130
    assert left_behind(tmp_path) == []
    answer = json.loads(out)
    assert answer["interrupted"]
    states = {name: job["state"] for name, job in answer["jobs"].items()}
    assert states == {"polite": "cancelled", "stubborn": "cancelled", "later": "queued", "waits": "cancelled"}
    assert log(answer["jobs"]["polite"]["attempts"][0]).endswith("saved\n")
    assert answer["jobs"]["stubborn"]["attempts"][0]["exit_code"] == 137


def test_until_ends_what_still_runs(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "until: 1s\njobs: [{name: j, command: [sleep, '60']}]", "--format", "json")
    answer = json.loads(out)
    assert code == 1
    assert (answer["jobs"]["j"]["state"], answer["jobs"]["j"]["message"]) == ("cancelled", "the file's time is over")
    assert 1 <= answer["end"] < 5


@pytest.mark.parametrize(
    ("text", "options", "env", "says"),
    [
        ("jobs: [{name: j}]", [], {}, "jobs[0].command: is missing"),
        ("nodes: []\njobs: [{name: j, command: [x]}]", [], {}, "nodes: must be left out"),
        ("jobs: [{name: j, command: [x], env: {ROTA_RANK: '0'}}]", [], {}, "jobs[0].env.ROTA_RANK: is set by Rota"),
        ("jobs: [{name: j, command: [x]}]", [], {"ROTA_LOCAL_GPUS": "many"}, "ROTA_LOCAL_GPUS: must be"),
        ("jobs: [{name: j, command: [x]}]", ["--log-dir", "/proc/nowhere"], {}, "--log-dir: /proc/nowhere"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, text: str, options: list[str], env: dict[str, str], says: str
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    env = {**os.environ, "TMPDIR": str(tmp_path), **env}
    done = subprocess.run(
        [ROTA, "run", file, *options], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert len((done.stdout + done.stderr).splitlines()) == 1
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_terminal_gets_a_live_table(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs: [{name: one, gpus: 2, command: [sleep, '1']}, {name: two, gpus: 2, command: ['true']}]")
    line = f"{ROTA} run {file} --log-dir {tmp_path / 'logs'}"
    env = {**os.environ, "ROTA_LOCAL_GPUS": "2", "TERM": "xterm", "COLUMNS": "120"}
    done = subprocess.run(["script", "-qec", line, "/dev/null"], env=env, capture_output=True, timeout=60, check=False)
    screen = done.stdout.decode()
    assert done.returncode == 0
    assert "gpus: needs 2 GPUs, 0 of 2 free" in screen
    assert "2 succeeded in " in screen
    assert left_behind(tmp_path) == []
