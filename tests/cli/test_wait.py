"""`rota submit --wait` against a real server, the real loops and real processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.models import Job
from jobs.services import cancel, hold
from rota.embedded.layout import layout
from rota_client import codes
from scheduler.backends.local import LocalBackend
from scheduler.inventory.models import Cluster
from scheduler.inventory.services import create_cluster
from scheduler.logs import _local
from scheduler.policies import set_policy
from tests.api.asking import fresh_world, token_text
from tests.api.serving import looping, serving
from tests.integration.running import free_port, until
from tests.integration.world import World
from tests.services import Services

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
HELLO = 'print("hello from", __import__("os").environ["CUDA_VISIBLE_DEVICES"])'
MAIN = "from rota_client.cli import main; main()"
SLEEP = ("--", "sh", "-c", "echo up; exec sleep 60")


class Machine:
    """This machine as a cluster of four cards, and a command line on it."""

    def __init__(self, world: World, cluster: Cluster, url: str, home: Path) -> None:
        self.world, self.cluster = world, cluster
        self.begun: list[subprocess.Popen[str]] = []
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        roots = os.pathsep.join(["client", ".", "platform"])
        self.environ = kept | {
            "ROTA_URL": url, "ROTA_TOKEN": token_text(world.admin), "HOME": str(home), "PYTHONPATH": roots,
        }  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin `rota submit --wait WORDS`."""
        command = [sys.executable, "-c", MAIN, "submit", "--team", self.world.team.slug, "--wait", *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environ, start_new_session=True
        )
        self.begun.append(process)
        return process

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.begun:
            with process:
                process.kill()

    def submit(self, *words: str) -> tuple[int, str, str]:
        """Submit, wait, and return exit status, output and what was said beside it."""
        return ended(self.begin(*words))

    def job(self, **conditions: Any) -> Job:
        """The newest job, as soon as it is as it should be."""
        found: list[Job] = []

        def there() -> bool:
            found[:] = Job.objects.filter(**conditions).select_related("team", "user", "cluster").order_by("-pk")[:1]
            return bool(found)

        until(there, 30, lambda: list(Job.objects.values_list("name", "state", "state_why")))
        return found[0]


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str, str]:
    output, said = process.communicate(timeout=seconds)
    return process.returncode, output, said


@pytest.fixture
def place(services: Services, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A world whose default cluster is this machine, with its loops running; the server is the test's."""
    monkeypatch.setenv("ROTA_LOCAL_GPUS", "4")
    settings.LAYOUT = layout(tmp_path, os.getuid())
    world = fresh_world()
    Cluster.objects.update(is_default=False)
    cluster = create_cluster(slug="local", name="Here", backend="local", is_default=True, open_to_all=True)
    try:
        with looping(cluster.pk):
            yield world, cluster, tmp_path
    finally:
        backend = LocalBackend(settings.LAYOUT.jobs)
        for report in backend.observe().attempts:
            backend.stop(report.attempt, grace_s=0)
        until(lambda: all(report.phase.ended for report in backend.observe().attempts), 20)
        _local.cache_clear()


@pytest.fixture
def machine(place: Any) -> Iterator[Machine]:
    world, cluster, home = place
    with serving() as url:
        machine = Machine(world, cluster, url, home)
        try:
            yield machine
        finally:
            machine.close()


def test_hello_prints_its_card_and_ends_well(machine: Machine) -> None:
    status, output, said = machine.submit("--gpus", "1", "--name", "hello", "--", "python3", "-c", HELLO)
    assert (status, output.startswith("hello from "), output.count("\n")) == (codes.SUCCEEDED, True, 1), said
    assert "hello" in said
    assert said.splitlines()[-1].startswith(f"hello ({Job.objects.get().key}) has succeeded (after ")


def test_a_failure_is_told_with_its_exit_code(machine: Machine) -> None:
    words = ("--retries", "0", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    status, output, said = machine.submit(*words)
    assert (status, output) == (codes.FAILED, "out\nerr\n")
    assert "has failed with exit code 7" in said


def test_output_comes_as_it_is_written_and_in_full(machine: Machine) -> None:
    end = "print('half', end='', flush=True); time.sleep(1); print('é')"
    script = f"import time\nfor n in range(20000): print(n, 'é' * 9)\n{end}"
    status, output, said = machine.submit("--", "python3", "-c", script)
    assert status == codes.SUCCEEDED, said
    lines = output.splitlines()
    assert len(lines) == 20_001
    assert lines[19_999] == "19999 " + "é" * 9
    assert lines[-1] == "halfé"


def test_the_reason_is_shown_while_it_waits(machine: Machine) -> None:
    first = machine.begin("--gpus", "3", "--name", "first", "--", "sleep", "3")
    machine.job(name="first", state="running")
    status, _, said = machine.submit("--gpus", "3", "--name", "second", "--", "true")
    assert status == codes.SUCCEEDED
    assert any(" is queued: gpus: " in line for line in said.splitlines()), said
    assert ended(first)[0] == codes.SUCCEEDED
    one, two = (Job.objects.get(name=name) for name in ("first", "second"))
    assert one.finished_at is not None
    assert two.first_started_at is not None
    assert two.first_started_at >= one.finished_at


def test_each_end_has_its_own_status(machine: Machine) -> None:
    process = machine.begin(*SLEEP)
    job = machine.job(state="running")
    cancel(user=machine.world.lead, job=job, why="enough")
    status, output, said = ended(process)
    assert (status, output) == (codes.CANCELLED, "up\n")
    assert "was cancelled: enough" in said

    blocked = machine.begin("--gpus", "9", "--", "true")
    hold(user=machine.world.lead, job=machine.job(state="queued"), why="not today")
    status, _, said = ended(blocked)
    assert status == codes.HELD
    assert "not today" in said

    rules = {"backpressure": {"max_pending_per_team": 1}}
    set_policy(author=machine.world.admin, cluster=machine.cluster, policy=rules, reason="x")
    status, _, said = machine.submit("--", "true")
    assert status == codes.REJECTED
    assert "was rejected" in said


def test_a_time_to_wait_ends_the_waiting_and_not_the_job(machine: Machine) -> None:
    status, output, said = machine.submit("--timeout", "3", *SLEEP)
    assert (status, output) == (codes.TIMEOUT, "up\n")
    job = machine.job(state="running")
    assert f"`rota job logs --follow {job.key}`" in said


def test_ctrl_c_ends_the_waiting_and_not_the_job(machine: Machine) -> None:
    process = machine.begin(*SLEEP)
    job = machine.job(state="running")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    status, _, said = ended(process, 15)
    assert status == codes.INTERRUPTED
    assert f"`rota job cancel {job.key}`" in said
    assert "Traceback" not in said
    time.sleep(0.5)
    assert Job.objects.get(pk=job.pk).state == "running"


def test_a_server_that_is_away_for_a_while_is_waited_for(place: Any) -> None:
    world, cluster, home = place
    port = free_port()
    script = "import time\nfor n in range(6): print(n, flush=True); time.sleep(1)"
    with serving(port) as url:
        machine = Machine(world, cluster, url, home)
        process = machine.begin("--name", "long", "--", "python3", "-c", script)
        machine.job(state="running")
    time.sleep(2)
    assert process.poll() is None
    with serving(port):
        status, output, said = ended(process)
    assert (status, output) == (codes.SUCCEEDED, "0\n1\n2\n3\n4\n5\n"), said
    assert "does not answer" in said
    assert Job.objects.count() == 1
    machine.close()


def test_where_nobody_answers_that_is_said(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": "client",
               "ROTA_URL": f"http://127.0.0.1:{free_port()}"}  # fmt: skip
    command = [sys.executable, "-c", MAIN, "job", "list"]
    found = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=30)
    assert found.returncode == codes.UNREACHABLE
    assert found.stdout == ""
    assert "does not answer" in found.stderr


def test_output_can_be_had_as_plain_text(machine: Machine) -> None:
    """As curl asks for it: a piece from an offset on, or all of it while it is written."""
    process = machine.begin("--", "sh", "-c", "echo one; sleep 2; echo two")
    job = machine.job(state="running")
    headers = {"Authorization": f"Bearer {machine.environ['ROTA_TOKEN']}"}
    url = f"{machine.environ['ROTA_URL']}/api/v1/jobs/{job.key}/logs/"
    with httpx.stream("GET", f"{url}?follow=true", headers=headers | {"Accept": "text/plain"}, timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        pieces = list(answer.iter_text())
    assert "".join(pieces) == "one\ntwo\n"
    assert len(pieces) > 1
    assert ended(process)[0] == codes.SUCCEEDED
    piece = httpx.get(f"{url}?format=txt&offset=4&limit=2", headers=headers)
    assert piece.text == "tw"
    assert piece.headers["Rota-Log-Next-Offset"] == "6"
    assert (piece.headers["Rota-Log-Eof"], piece.headers["Rota-Log-Attempt"]) == ("false", "1")
    plain = httpx.get(f"{url}?offset=6", headers=headers).json()
    assert plain == {"attempt": 1, "replica": 0, "offset": 6, "next_offset": 8, "eof": True, "text": "o\n"}
    missing = httpx.get(f"{url}?attempt=2", headers=headers)
    assert (missing.status_code, missing.json()["code"]) == (404, "attempt_not_found")
    began = time.monotonic()
    assert httpx.get(f"{url}?offset=8&wait=5", headers=headers).json()["eof"] is True
    assert time.monotonic() - began < 3
