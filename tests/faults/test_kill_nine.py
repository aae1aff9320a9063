"""`kill -9` of every part of a running Rota, and of all of it, while real jobs run on this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.embedded.processes import is_alive
from rota_client.shim.processes import descendants
from scheduler.backends.local import LocalBackend
from tests.integration.running import Running, a_home, a_rota, until

pytestmark = pytest.mark.timeout(400)

PARTS = ("work", "tick-main", "web", "valkey", "postgres", "beat")


@pytest.fixture(scope="module")
def rota() -> Iterator[Running]:
    with a_home() as home, a_rota(home) as running:
        yield running
        running.command("down", "--jobs")
        until(lambda: not running.everything_of_it(), 15, running.everything_of_it)


class Api:
    """The REST interface of a Rota that may be away at any moment."""

    def __init__(self, rota: Running) -> None:
        self.rota = rota

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """One request; None where it did not come through, so that nobody knows whether it was done."""
        token = json.loads(self.rota.paths.cli.read_text())["token"]
        headers = {"Authorization": f"Bearer {token}"} | more.pop("headers", {})
        url = f"http://127.0.0.1:{self.rota.port}/api/v1/{path}"
        try:
            answer = httpx.request(method, url, headers=headers, timeout=10, **more)
        except httpx.HTTPError:
            return None
        return None if answer.status_code >= 500 else answer

    def submit(self, name: str, script: str, *, seconds: float = 30, **more: Any) -> str:
        """Submit until it is certain that it was taken in, once; the job's key."""
        body = {"team": "demo", "name": name, "retries": 0, "command": ["bash", "-c", script], **more}
        end = time.monotonic() + seconds
        while True:
            answer = self.ask("POST", "jobs", json=body, headers={"Idempotency-Key": f"key of {name}"})
            if answer is not None:
                assert answer.status_code in (200, 201), answer.text
                return str(answer.json()["key"])
            assert time.monotonic() < end, self.rota.printed
            time.sleep(0.2)

    def job(self, key: str) -> dict[str, Any]:
        answer = self.ask("GET", f"jobs/{key}")
        return {} if answer is None else dict(answer.json())

    def wait(self, key: str, *states: str, seconds: float = 40) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def there() -> bool:
            found.clear()
            found.update(self.job(key))
            return found.get("state") in states

        until(there, seconds, lambda: (found, self.rota.printed[-3000:]))
        return found


@pytest.fixture
def api(rota: Running) -> Api:
    return Api(rota)


@pytest.fixture
def gate(rota: Running) -> Path:
    """A file for which jobs wait; whoever runs them can see it."""
    path = rota.home.parent / f"go-{time.monotonic_ns()}"
    rota.home.parent.chmod(0o755)
    return path


def waiting_for(gate: Path, then: str) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.1; done; {then}"


def alive(rota: Running) -> dict[str, int]:
    """The attempts that really run, with their shims' first command as proof that it is still the same process."""
    backend = LocalBackend(rota.paths.jobs)
    backend.observe()
    return {
        key: watch.replicas[0].command.pid
        for key, watch in backend._watched.items()
        if not watch.report.phase.ended and watch.replicas[0].command is not None
    }


def kill_everything(rota: Running) -> None:
    """The whole tree: the supervisor, and one by one whatever is a descendant of it."""
    children = rota.children()
    assert rota.process is not None
    below = descendants(rota.process.pid)
    assert {child.pid for child in children.values()} <= {seen.pid for seen in below}
    rota.process.kill()
    for seen in below:
        with suppress(ProcessLookupError):
            os.kill(seen.pid, signal.SIGKILL)
    rota.process.wait(10)
    until(lambda: not any(is_alive(one) for one in children.values()), 15, lambda: children)


def test_jobs_outlive_the_death_of_every_part_and_end_with_their_true_exit_codes(
    rota: Running, api: Api, gate: Path
) -> None:
    good = api.submit("good", waiting_for(gate, "echo well; exit 0"))
    bad = api.submit("bad", waiting_for(gate, "exit 5"))
    shot = api.submit("shot", waiting_for(gate, "kill -9 $$"))
    for key in (good, bad, shot):
        api.wait(key, "running")
    queued = api.submit("queued", "echo $ROTA_GPUS; exit 3", gpus=3)
    until(lambda: (api.job(queued).get("reason") or {}).get("code") == "gpus", 20, lambda: api.job(queued))
    before = alive(rota)
    assert len(before) == 3
    for part in PARTS:
        was = rota.child(part)
        os.kill(was.pid, signal.SIGKILL)
        until(lambda part=part, was=was: rota.children().get(part, was) != was, 30, lambda: rota.printed)  # type: ignore[misc]
        until(rota.ready, 40, lambda: rota.printed)
        assert alive(rota) == before, f"after the death of {part}"
    kill_everything(rota)
    assert alive(rota) == before
    rota.start()
    assert alive(rota) == before
    for key in (good, bad, shot):
        found = api.wait(key, "running")
        assert (found["attempt_count"], found["exit_code"]) == (1, None)
    assert api.job(queued)["state"] == "queued"
    gate.touch()
    assert api.wait(good, "succeeded")["exit_code"] == 0
    assert api.wait(bad, "failed")["exit_code"] == 5
    assert api.wait(shot, "failed")["exit_code"] == 137
    assert api.wait(queued, "failed")["exit_code"] == 3
    assert all(api.job(key)["attempt_count"] == 1 for key in (good, bad, shot, queued))
    text = api.ask("GET", f"jobs/{good}/logs")
    assert text is not None
    assert "well" in text.text


def test_a_job_that_ends_while_all_is_down_is_known_by_its_true_exit_code(rota: Running, api: Api, gate: Path) -> None:
    key = api.submit("ends-alone", waiting_for(gate, "exit 42"), gpus=4)
    api.wait(key, "running")
    kill_everything(rota)
    gate.touch()
    until(lambda: not alive(rota), 10, lambda: alive(rota))
    rota.start()
    found = api.wait(key, "failed")
    assert (found["exit_code"], found["attempt_count"]) == (42, 1)
    after = api.submit("after", "exit 0", gpus=4)
    assert api.wait(after, "succeeded")["exit_code"] == 0


def test_what_was_accepted_is_there_once_whoever_is_killed_meanwhile(rota: Running, api: Api) -> None:
    keys: dict[str, str] = {}
    for number, part in enumerate(("web", "work", "postgres", "tick-main", "valkey")):
        names = [f"many-{number}-{each}" for each in range(4)]
        for name in names[:2]:
            keys[name] = api.submit(name, "exit 0")
        os.kill(rota.child(part).pid, signal.SIGKILL)
        for name in names[1:]:  # the second one again, with its own key
            found = api.submit(name, "exit 0")
            assert keys.setdefault(name, found) == found
        until(rota.ready, 40, lambda: rota.printed)
    assert len(set(keys.values())) == len(keys) == 20
    for key in keys.values():
        assert api.wait(key, "succeeded", seconds=90)["exit_code"] == 0
    until(lambda: not alive(rota), 10, lambda: alive(rota))
