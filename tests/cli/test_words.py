"""The words of `rota` against a real server: what they print, in which form, and how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from api.scopes import Scope
from rota_client import cli, codes
from rota_client.client import ApiError, Client
from teams.models import User
from tests.api.asking import fresh_world, token_text
from tests.api.serving import serving
from tests.integration.world import World
from tests.services import Services

pytestmark = pytest.mark.django_db(transaction=True)


class Terminal:
    """A person at a command line."""

    def __init__(self, url: str, world: World, home: Path) -> None:
        self.url, self.world = url, world
        self.environ: dict[str, str | None] = {
            "ROTA_URL": url, "ROTA_TOKEN": token_text(world.admin), "HOME": str(home), "XDG_CONFIG_HOME": None,
            "ROTA_HOME": None, "COLUMNS": "200",
        }  # fmt: skip

    def run(self, *words: str, status: int = 0, **environ: str | None) -> Result:
        """Run `rota WORDS`."""
        app = cli.build(words, cli.plugins())
        result = CliRunner().invoke(app, words, env=self.environ | environ)
        assert result.exit_code == status, (result.output, result.exception)
        return result

    def values(self, *words: str) -> Any:
        """The values that a word prints as JSON."""
        return json.loads(self.run(*words, "-o", "json").stdout)


@pytest.fixture
def terminal(services: Services, tmp_path: Path) -> Iterator[Terminal]:
    world = fresh_world()
    with serving() as url:
        yield Terminal(url, world, tmp_path)


def test_a_job_is_submitted_with_every_option(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "yes")
    options = ["--gpus", "2", "--replicas", "3", "--vram", "10", "--model", "H100", "--model", "A100",
               "--name", "big", "--priority", "high", "--time-limit", "2h", "--env", "K=V=W", "-e", "FROM_HERE",
               "--label", "a=b", "--cwd", "/srv", "--cluster", terminal.world.cluster.slug, "--retries", "1",
               "--cpus", "4", "--memory", "16", "--kind", "training", "--idempotency-key", "k1"]  # fmt: skip
    team, command = ("--team", terminal.world.team.slug), ("--", "python3", "-c", "print(1)")
    job = json.loads(terminal.run("submit", "-o", "json", *team, *options, *command).stdout)
    assert job["spec"] == {
        "name": "big", "gpus": 2, "replicas": 3, "vram_gib": 10.0, "model": ["H100", "A100"], "cpus": 4.0,
        "memory_gib": 16.0, "kind": "training", "priority": "high", "time_limit": "2h", "retries": 1, "cwd": "/srv",
        "command": ["python3", "-c", "print(1)"], "env": {"K": "V=W", "FROM_HERE": "yes"}, "labels": {"a": "b"},
    }  # fmt: skip
    again = json.loads(terminal.run("submit", "-o", "json", *team, *options, *command).stdout)
    assert again["key"] == job["key"]
    assert terminal.values("job", "show", "big")["key"] == job["key"]


def test_a_file_is_a_job_that_options_override(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: night\nenv: {A: '1'}\ncommand: [echo, no]\nscale: [{from: 20:00, to: 08:00, replicas: 1}]\n")
    job = terminal.values("submit", "-f", str(path), "-t", terminal.world.team.slug, "-e", "B=2", "--gpus", "2")
    assert job["spec"]["scale"][0]["from"] == "20:00"
    assert (job["spec"]["env"], job["gpus"], job["spec"]["command"]) == ({"A": "1", "B": "2"}, 2, ["echo", "no"])
    for text in ("a: [", "- a", "a: 1\na: 2", "1: 2"):
        path.write_text(text)
        assert str(path) in terminal.run("submit", "-f", str(path), status=codes.USAGE).stderr
    assert "No such file" in terminal.run("submit", "-f", str(tmp_path / "none"), status=codes.USAGE).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "0", "--", "true"), "gpus: must be at least 1"),
        (("--team", "nobody", "--", "true"), "team: there is no team"),
        (("--env", "=1", "--", "true"), "--env: '=1' must be NAME=VALUE"),
        (("--env", "CUDA_VISIBLE_DEVICES=0", "--", "true"), "env.CUDA_VISIBLE_DEVICES: is not a job's to set"),
        (("--gpus", "1"), "what is to run?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(terminal: Terminal, words: tuple[str, ...], said: str) -> None:
    status = codes.FAILED if "nobody" in words else codes.USAGE
    result = terminal.run("submit", "--team", terminal.world.team.slug, *words, status=status)
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_jobs_are_listed_explained_and_changed(terminal: Terminal) -> None:
    team = terminal.world.team.slug
    keys = [json.loads(terminal.run("submit", "-o", "json", "-t", team, "-n", name, "--", "true").stdout)["key"]
            for name in ("one", "two")]  # fmt: skip
    lines = terminal.run("job", "list").stdout.splitlines()
    assert lines[0].split() == ["KEY", "NAME", "TEAM", "USER", "STATE", "REASON", "GPUS", "SUBMITTED"]
    assert [line.split()[:2] for line in lines[1:]] == [[keys[1], "two"], [keys[0], "one"]]
    assert [job["key"] for job in terminal.values("job", "list", "--name", "one")] == [keys[0]]
    assert len(terminal.values("job", "list", "--limit", "1")) == 1
    why = terminal.run("job", "why", "one").stdout
    assert "turn" in why
    assert "nobody has looked at it yet" in why
    assert yaml.safe_load(terminal.run("job", "why", "one", "-o", "yaml").stdout)["code"] == "turn"
    assert "is held" in terminal.run("job", "hold", "one", "--why", "later").stderr
    assert terminal.values("job", "list", "--state", "held")[0]["key"] == keys[0]
    terminal.run("job", "release", "one")
    assert "is cancelled" in terminal.run("job", "cancel", *keys).stderr
    again = terminal.values("job", "retry", "one")
    assert again["retry_of"] == keys[0]
    events = terminal.run("job", "events", keys[0]).stdout
    assert [line.split()[2] for line in events.splitlines()[1:]] == ["submit", "hold", "release", "cancel"]
    assert "there is no job three" in terminal.run("job", "show", "three", status=codes.FAILED).stderr


def test_nodes_are_looked_after(terminal: Terminal) -> None:
    assert terminal.run("node", "list").stdout.splitlines()[1].split()[1:5] == ["n1", "ready", "H100", "8/8"]
    assert "cordoned" in terminal.run("node", "cordon", "n1", "--why", "fan").stdout
    assert terminal.values("node", "show", "n1")["cordon_why"] == "fan"
    assert "draining" in terminal.run("node", "drain", "n1", "--why", "fan", "-c", terminal.world.cluster.slug).stdout
    assert "ready" in terminal.run("node", "uncordon", "n1").stdout
    assert "there is no node n9" in terminal.run("node", "show", "n9", status=codes.FAILED).stderr


def test_quotas_are_shown_and_set(terminal: Terminal) -> None:
    team = terminal.world.team.slug
    terminal.run("quota", "set", team, "--model", "H100", "--guaranteed", "2", "--limit", "50%", "--why", "plan")
    terminal.run("quota", "set", team, "--model", "H100", "--guaranteed", "3", "--why", "more")
    line = terminal.run("quota", "show", team).stdout.splitlines()[1]
    assert line.split()[2:5] == ["H100", "3", "50%"]
    terminal.run("quota", "set", team, "--model", "H100", "--limit", "none", "--why", "free")
    assert terminal.values("quota", "show")[0]["quotas"][0]["limit"] is None
    terminal.run("quota", "set", team, "--model", "H100", "--remove", "--why", "over")
    assert terminal.values("quota", "show") == []
    assert "guaranteed" in terminal.run("quota", "set", team, "--why", "x", status=codes.USAGE).stderr


def test_teams_and_clusters_are_listed(terminal: Terminal) -> None:
    team = terminal.world.team.slug
    assert terminal.run("team", "list").stdout.splitlines()[1].split()[0] == team
    assert len(terminal.values("team", "members", team)) == 3
    assert "8/8 H100" in terminal.run("cluster", "list").stdout


def test_tokens_are_made_used_and_revoked(terminal: Terminal) -> None:
    made = terminal.run("token", "create", "ci", "--scope", "read", "--days", "3")
    token = made.stdout.strip()
    assert token.startswith("rota_")
    assert "it is not shown again" in made.stderr
    assert terminal.run("job", "list", ROTA_TOKEN=token).exit_code == 0
    refused = terminal.run("submit", "--", "true", status=codes.NO_PERMISSION, ROTA_TOKEN=token)
    assert "this needs submit" in refused.stderr
    key = token[5:17]
    assert key in terminal.run("token", "list").stdout
    assert token not in terminal.run("token", "list").stdout
    terminal.run("token", "revoke", key)
    said = terminal.run("job", "list", status=codes.NO_PERMISSION, ROTA_TOKEN=token).stderr
    assert "wrong, expired or revoked" in said
    assert "rota login" in said


def test_users_are_added_and_given_new_passwords(terminal: Terminal) -> None:
    made = terminal.run("user", "add", "ada", "--email", "ada@example.org", "--full-name", "Ada L.")
    password = made.stdout.strip()
    assert "it is not shown again" in made.stderr
    assert User.objects.get(username="ada").check_password(password)
    assert terminal.values("user", "add", "grace", "--admin")["admin"] is True
    listed = terminal.run("user", "list").stdout
    assert "ada@example.org" in listed
    assert password not in listed
    new = terminal.run("user", "reset-password", "ada").stdout.strip()
    ada = User.objects.get(username="ada")
    assert (ada.check_password(new), ada.check_password(password)) == (True, False)
    assert "username: there is already a user ada" in terminal.run("user", "add", "ada", status=codes.FAILED).stderr
    assert "username: " in terminal.run("user", "add", "a b", status=codes.USAGE).stderr
    assert "no user eve" in terminal.run("user", "reset-password", "eve", status=codes.FAILED).stderr
    mine = token_text(terminal.world.ann)
    terminal.run("user", "list", status=codes.NO_PERMISSION, ROTA_TOKEN=mine)


def test_login_keeps_address_and_token_to_oneself(terminal: Terminal, tmp_path: Path) -> None:
    token = token_text(terminal.world.ann, Scope.READ)
    said = terminal.run("login", terminal.url, ROTA_URL=None, ROTA_TOKEN=token).stderr
    assert terminal.world.ann.username in said
    path = tmp_path / ".config" / "rota" / "cli.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {"url": terminal.url, "token": token}
    terminal.run("job", "list", ROTA_TOKEN=None)
    wrong = terminal.run("login", terminal.url, "--token", "rota_x", status=codes.NO_PERMISSION)
    assert "wrong, expired or revoked" in wrong.stderr
    assert json.loads(path.read_text())["token"] == token


def test_a_program_can_use_the_client(terminal: Terminal) -> None:
    with Client(terminal.url, terminal.environ["ROTA_TOKEN"]) as client:
        job = client.submit({"name": "sdk", "team": terminal.world.team.slug, "command": ["true"]})
        assert client.job(job["key"])["state"] == "queued"
        assert [each["key"] for each in client.jobs(name="sdk")] == [job["key"]]
        assert list(client.log(job["key"])) == []
        with pytest.raises(ApiError, match="gpus: must be at least 1") as caught:
            client.submit({"name": "x", "gpus": 0, "team": terminal.world.team.slug})
        assert (caught.value.code, caught.value.errors[0]["path"]) == ("invalid", "gpus")
        for number in range(5):
            client.submit({"name": f"n{number}", "team": terminal.world.team.slug, "command": ["true"]})
        assert len(list(client.pages("jobs/", limit=2))) == 6
        assert len(list(client.pages("jobs/", limit=2, most=3))) == 3
