"""Where the command line finds address and token, and whom it believes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota_client import shown
from rota_client.places import NoPlace, find, store, stored_path


def write(path: Path, url: str, token: str | None, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"url": url, "token": token}))
    path.chmod(mode)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "me"), "ROTA_HOME": str(tmp_path / "nowhere")}


def test_the_environment_comes_first(environ: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "nowhere" / "cli.json", "http://home", "h")
    found = find(environ | {"ROTA_URL": "http://env/", "ROTA_TOKEN": "e"}, tmp_path)
    assert (found.url, found.token) == ("http://env", "e")


def test_a_stored_token_goes_only_to_its_own_address(environ: dict[str, str], tmp_path: Path) -> None:
    store(stored_path(environ), "http://one", "t")
    assert find(environ | {"ROTA_URL": "http://one/"}, tmp_path).token == "t"
    assert find(environ | {"ROTA_URL": "http://two"}, tmp_path).token == ""


def test_then_the_rota_of_this_machine_then_the_stored_one(environ: dict[str, str], tmp_path: Path) -> None:
    store(stored_path(environ), "http://stored", "s")
    assert find(environ, tmp_path).url == "http://stored"
    write(tmp_path / "nowhere" / "cli.json", "http://home", "h")
    assert find(environ, tmp_path).url == "http://home"
    del environ["ROTA_HOME"]
    write(tmp_path / "project" / ".rota" / "cli.json", "http://above", "a")
    assert find(environ, tmp_path / "project" / "deep" / "down").url == "http://above"


def test_without_any_it_says_what_to_do(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NoPlace, match="rota login"):
        find(environ, tmp_path)


def test_a_token_that_others_can_read_is_not_used(environ: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "nowhere" / "cli.json", "http://home", "h", 0o644)
    with pytest.raises(NoPlace, match="chmod 600"):
        find(environ, tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": 1}', "not JSON", '{"url": "http://x", "token": 3}'])
def test_a_damaged_file_is_as_good_as_none(environ: dict[str, str], tmp_path: Path, text: str) -> None:
    write(tmp_path / "nowhere" / "cli.json", "", "").write_text(text)
    with pytest.raises(NoPlace):
        find(environ, tmp_path)


def test_a_token_does_not_show_itself(environ: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "nowhere" / "cli.json", "http://home", "secret")
    assert "secret" not in repr(find(environ, tmp_path))


def test_tables_are_aligned_whatever_the_letters() -> None:
    rows: list[dict[str, object]] = [{"a": "中文", "b": 1}, {"a": "x", "b": None}]
    text = shown.table(rows, {"A": lambda row: row["a"], "B": lambda row: row["b"]})
    assert text.splitlines() == ["A     B", "中文  1", "x"]


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("plain\n", "plain\n"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("50%\r100%", "50%\r100%"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]52;c;ZXZpbA==\x1b\\x", "x"),
        ("\x1b[2Jx\x1b[6n", "x"),
        ("\x07\x00\x9bx", "x"),
        ("\x1bcx", "x"),
    ],
)
def test_a_job_s_output_commands_no_terminal(written: str, seen: str) -> None:
    assert shown.without_commands(written) == seen


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (61, "1m01s"), (7_380, "2h03m"), (90_000, "1d01h"), (-3, "0s")]
)
def test_time_spans_read_well(seconds: float, text: str) -> None:
    assert shown.duration(seconds) == text
