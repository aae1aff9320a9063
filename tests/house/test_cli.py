"""The `rota` command itself: finding words, importing only the one that is called, and saying what is wrong."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rota_client import __version__, cli

GREET = '''"""Words for greeting."""

import typer

def greet(name: str) -> None:
    """Say hello.

    More of it."""
    typer.echo(f"hello {name}")

group = typer.Typer()

@group.command()
def wave() -> None:
    typer.echo("waves")

@group.command()
def bow() -> None:
    typer.echo("bows")
'''


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, EntryPoint]:
    """Two words of a working module and one of a module that must not be imported."""
    (tmp_path / "greeting_plugin.py").write_text(GREET)
    (tmp_path / "broken_plugin.py").write_text('"""Words that break."""\n\nimport no_such_module\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "greeting_plugin", raising=False)
    values = {
        "greet": "greeting_plugin:greet",
        "body": "greeting_plugin:group",
        "broken": "broken_plugin:run",
        "gone": "no_such_package.commands:run",
    }
    return {word: EntryPoint(word, value, cli.GROUP) for word, value in values.items()}


def call(words: dict[str, EntryPoint], *arguments: str) -> tuple[int, str]:
    """Return exit status and output of `rota ARGUMENTS`."""
    result = CliRunner().invoke(cli.build(arguments, words), arguments)
    return result.exit_code, result.output


def test_a_function_is_a_command(words: dict[str, EntryPoint]) -> None:
    assert call(words, "greet", "Ada") == (0, "hello Ada\n")


def test_a_typer_is_a_group(words: dict[str, EntryPoint]) -> None:
    assert call(words, "body", "wave") == (0, "waves\n")


def test_help_names_every_word_and_imports_none(words: dict[str, EntryPoint]) -> None:
    status, output = call(words, "--help")
    assert status == 0
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert {"greet Say hello.", "body Words for greeting.", "broken Words that break.", "gone"} <= set(lines)
    assert "greeting_plugin" not in sys.modules


def test_an_unknown_word_is_named(words: dict[str, EntryPoint]) -> None:
    status, output = call(words, "great")
    assert status == 2
    assert "No such command 'great'. Did you mean 'greet'?" in output


@pytest.mark.parametrize(
    ("word", "why"), [("broken", "No module named 'no_such_module'"), ("gone", "No module named 'no_such_package'")]
)
def test_a_word_that_does_not_load_says_why(words: dict[str, EntryPoint], word: str, why: str) -> None:
    with pytest.raises(cli.BrokenPlugin, match=f"'{word}' is not usable here.*{why}"):
        cli.build([word], words)


def test_two_packages_cannot_share_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    rivals = [EntryPoint("run", "one:run", cli.GROUP), EntryPoint("run", "two:run", cli.GROUP)]
    monkeypatch.setattr(cli, "entry_points", lambda **_: rivals)
    with pytest.raises(cli.BrokenPlugin, match="two packages want the word 'run': one:run and two:run"):
        cli.plugins()


def test_the_version(words: dict[str, EntryPoint]) -> None:
    assert call(words, "--version") == (0, f"rota {__version__}\n")


def test_the_installed_words_load() -> None:
    for word, entry in cli.plugins().items():
        assert isinstance(cli.build([word], {word: entry}), typer.Typer)


def test_the_script_starts_without_a_server_package() -> None:
    script = "import sys, rota_client.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert {"django", "numpy", "scheduler", "jobs", "quotas"}.isdisjoint(loaded)


@pytest.mark.parametrize(("redirect", "status", "said"), [
    (">/dev/full", 1, "rota: standard output: No space left on device"), (">&-", 0, ""),
])  # fmt: skip
def test_an_output_that_takes_nothing_is_no_crash(redirect: str, status: int, said: str) -> None:
    scenario = '{"nodes": [{"name": "n", "gpus": 1, "model": "L40", "vram_gib": 48}], "jobs": []}'
    line = f'"{sys.executable}" -c "from rota_client.cli import main; main()" simulate - --json {redirect}'
    done = subprocess.run(["bash", "-c", line], check=False, input=scenario, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (status, said)
