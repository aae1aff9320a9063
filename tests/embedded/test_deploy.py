"""The composed stack says the same as the supervisor: variables that exist, workers on the same queues."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from rota.embedded.children import workers
from rota.env import ROOT, SECRETS, VARIABLES, read

COMPOSE = ROOT / "docker-compose.yml"
OURS = ("init", "web", "tick", "worker", "beat")
ONLY_COMPOSE = {"ROTA_WORKER"}


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def queues(command: list[str] | tuple[str, ...]) -> list[str]:
    return command[command.index("-Q") + 1].split(",") if "-Q" in command else []


def test_each_variable_that_is_set_is_one_that_rota_reads() -> None:
    known = VARIABLES | {f"{name}_FILE" for name in SECRETS} | ONLY_COMPOSE
    for name in OURS:
        assert set(services()[name]["environment"]) <= known, name


def test_each_variable_is_in_the_reference_and_no_other() -> None:
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    named = set(re.findall(r"`((?:ROTA_|DATABASE_|REDIS_)[A-Z_]+|PORT)`", text))
    assert named == VARIABLES


def test_workers_and_queues_are_those_of_the_supervisor() -> None:
    ours = {child.name: child for child in workers(read({}), {}, 3)}
    composed = services()
    for name, child in {"tick": "tick-main", "worker": "work"}.items():
        command = composed[name]["command"]
        assert queues(command) == queues(ours[child].command)
        assert command[command.index("-P") + 1] == ours[child].command[ours[child].command.index("-P") + 1]
    assert "beat" in composed["beat"]["command"]


def test_every_long_lived_service_has_a_health_check_and_starts_again() -> None:
    image = (ROOT / "Dockerfile").read_text()
    for name, one in services().items():
        if name == "init":
            continue
        assert one["restart"] == "unless-stopped", name
        assert "test" in one.get("healthcheck", {}) or (name == "web" and "HEALTHCHECK" in image), name


def test_only_the_web_server_is_published_and_only_to_this_machine() -> None:
    published = {name: one["ports"] for name, one in services().items() if "ports" in one}
    assert published == {"web": ["${ROTA_PUBLISH:-127.0.0.1:8000}:8000"]}


def test_the_image_runs_as_nobody_special_from_hashed_requirements() -> None:
    image = (ROOT / "Dockerfile").read_text()
    assert "\nUSER rota\n" in image
    assert "--require-hashes" in image
    assert "curl" not in image


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="needs the client `docker compose`",
)
def test_docker_accepts_the_file() -> None:
    command = ["docker", "compose", "-f", str(COMPOSE), "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) >= set(OURS)
