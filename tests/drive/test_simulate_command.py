"""`rota simulate` on the command line: answers for programs and for people, and one line for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.drive.simulate_command import Progress
from tests.needs import ROOT

ROTA = Path(sys.executable).with_name("rota")
CLUSTER = ROOT / "examples" / "cluster.yaml"
pytestmark = pytest.mark.slow


def rota(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([ROTA, *map(str, arguments)], input=stdin, capture_output=True, timeout=60, check=False)


def test_json_is_one_object_with_everything_in_it() -> None:
    run = rota("simulate", CLUSTER, "--json")
    answer = json.loads(run.stdout)
    assert run.returncode == 0
    assert list(answer) == ["end", "jobs", "nodes", "teams", "metrics", "alerts"]
    assert rota("simulate", CLUSTER, "--format", "json").stdout.count(b"\n") == 1


def test_standard_input_is_a_file_like_any_other() -> None:
    run = rota("simulate", "-", "--json", stdin=CLUSTER.read_bytes())
    assert json.loads(run.stdout)["jobs"] == json.loads(rota("simulate", CLUSTER, "--json").stdout)["jobs"]


def test_the_table_shows_who_waited_for_what() -> None:
    text = rota("simulate", CLUSTER).stdout.decode()
    chart = {line.split()[0]: line for line in text.splitlines()[:17]}
    assert "█" in chart["pretrain"]
    assert "·" not in chart["pretrain"]
    assert chart["finetune"].index("·") < chart["finetune"].index("█")
    assert "quota: speech holds 8" in text
    assert "cards held" in text


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.yaml", None, "cannot be read: No such file"),
        ("latin.yaml", b"about: caf\xe9", "not UTF-8"),
        ("broken.yaml", b"jobs: [", "not YAML"),
        ("empty.yaml", b"", "the file is empty"),
        ("list.yaml", b"[1]", "must hold a mapping"),
        ("zero.yaml", b"{nodes: [{name: n, gpus: 1, model: M, vram_gib: 1}], jobs: [{name: j, duration: 1, gpus: 0}]}",
         "jobs[0].gpus: must be at least 1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    run = rota("simulate", file)
    said = (run.stdout + run.stderr).decode()
    assert run.returncode == 2
    assert len(said.splitlines()) == 1
    assert says in said


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    run = rota("simulate", tmp_path, "--json")
    assert (run.returncode, len(run.stderr.splitlines()), run.stdout) == (2, 1, b"")


def test_what_is_not_in_effect_yet_is_said_in_one_line_and_played_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(
        "nodes: [{name: n, gpus: 1, model: M, vram_gib: 8}]\n"
        "jobs: [{name: j, gpus: 1, duration: 1h, silent: [{at: 5m, for: 4m}]}]\n"
    )
    run = rota("simulate", file, "--json")
    assert run.returncode == 0
    assert json.loads(run.stdout)["jobs"]["j"]["state"] == "succeeded"
    assert len(run.stderr.splitlines()) <= 1


def test_the_bar_is_drawn_from_the_second_second_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("scheduler.drive.simulate_command.time.monotonic", lambda: now)
    bar = Progress(width=10)
    bar(1, 10)
    assert capsys.readouterr().err == ""
    now = 1.5
    bar(5, 10)
    assert capsys.readouterr().err == "\r█████░░░░░ 5 of 10 jobs "
    bar(6, 10)
    assert capsys.readouterr().err == ""
    bar.clear()
    assert capsys.readouterr().err == "\r\033[K"
