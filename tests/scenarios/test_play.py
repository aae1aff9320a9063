"""Scenario files are played and their answers checked: ours beside this test, and those that many projects share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler.drive.scenario import load_file, parse_scenario
from scheduler.drive.simulate import simulate
from tests.needs import ROOT, SHARED
from tests.scenarios.invariants import faults, words

FILES = sorted((Path(__file__).parent / "files").glob("*.yaml"))
ROTA = Path(sys.executable).with_name("rota")
SHARED_FILES = (
    "01", "02", "03", "15", "16", "17", "18", "19", "27", "33", "35", "37", "39", "44", "45", "48", "49", "54", "56",
    "90", "91", "92", "93", "94", "95", "96", "97",
)  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_file_expects_holds(file: Path) -> None:
    plain = load_file(file)
    assert isinstance(plain, dict)
    scenario = parse_scenario(plain)
    answer = json.loads(json.dumps(simulate(scenario).answer()))
    assert faults(scenario, answer) == []
    names = words(answer)
    assert [line for line in plain["expect"] if not eval(line, names)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_same_file_gives_the_same_answer(file: Path) -> None:
    answers = [simulate(parse_scenario(load_file(file))).answer() for _ in range(2)]
    for answer in answers:
        del answer["metrics"]["wall_seconds"]
    assert json.dumps(answers[0]) == json.dumps(answers[1])


def test_two_processes_agree_to_the_byte_but_for_the_time_they_took(tmp_path: Path) -> None:
    spread = [_play(ROOT / "tests/scenarios/files/retries.yaml", {"PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    assert spread[0] == spread[1]
    assert '"wall_seconds":' not in spread[0]


def _play(file: Path, env: dict[str, str]) -> str:
    run = subprocess.run(
        [ROTA, "simulate", file, "--json"], env=os.environ | env, capture_output=True, text=True, timeout=60, check=True
    )
    head, _, tail = run.stdout.partition('"wall_seconds":')
    return head + tail.partition("}")[2]


@pytest.mark.slow
@pytest.mark.needs("shared")
@pytest.mark.parametrize("number", SHARED_FILES)
def test_the_shared_files_pass_their_own_check(number: str) -> None:
    found: list[Any] = sorted((SHARED / "scenarios").glob(f"{number}-*.yaml"))
    assert found, f"there is no file {number} any more"
    check = [sys.executable, SHARED / "scenarios" / "check.py", "--rota", str(ROTA), *found]
    run = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
