"""`rota up` for real: first start, second start, deaths of every part, and what is left afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from rota.embedded.processes import is_alive, read_stat
from scheduler.backends.local import LocalBackend
from tests.integration.running import Running, a_home, a_rota, until
from tests.services import Services

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def rota() -> Iterator[Running]:
    """One Rota for the tests that leave it as healthy as they found it; it runs a local job."""
    with a_home() as home, a_rota(home) as running:
        submit(running, {"team": "demo", "name": "goes-on", "command": ["sleep", "300"]})
        until(lambda: job_runs(running), 20, lambda: running.printed)
        yield running


def submit(rota: Running, body: dict[str, Any]) -> None:
    token = json.loads(rota.paths.cli.read_text())["token"]
    url, headers = f"http://127.0.0.1:{rota.port}/api/v1/jobs/", {"Authorization": f"Bearer {token}"}
    answer = httpx.post(url, json=body, headers=headers, timeout=20)
    assert answer.status_code == 201, answer.text


def job_runs(rota: Running) -> bool:
    attempts = LocalBackend(rota.paths.jobs).observe().attempts
    return [report.phase.value for report in attempts] == ["running"]


def test_a_first_start_tells_the_way_in_once_and_keeps_it_private(rota: Running) -> None:
    assert f"http://127.0.0.1:{rota.port}" in rota.printed
    password = re.search(r"the first sign-in:  (\S+)", rota.printed)
    assert password
    assert len(password.group(1)) == 24
    assert json.loads(rota.paths.cli.read_text())["url"] == f"http://127.0.0.1:{rota.port}"
    for path in (rota.paths.cli, rota.paths.secret_key, rota.paths.state):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(rota.home.stat().st_mode) & 0o027 == 0  # others nothing; as root PostgreSQL's group may pass
    logs = "".join(path.read_text() for path in rota.paths.logs.glob("*.log"))
    assert password.group(1) not in logs
    assert {path.stem for path in rota.paths.logs.glob("*.log")} >= {"postgres", "valkey", "web", "work", "beat"}


def test_the_one_time_password_opens_only_the_page_that_changes_it(rota: Running) -> None:
    password = re.findall(r"the first sign-in:  (\S+)", rota.printed)[0]
    with httpx.Client(base_url=f"http://127.0.0.1:{rota.port}", timeout=20) as browser:
        browser.get("/accounts/login/")
        form = {"csrfmiddlewaretoken": browser.cookies["csrftoken"], "login": "admin", "password": password}
        answer = browser.post("/accounts/login/", data=form)
        assert answer.status_code == 302, answer.text
        assert browser.get("/accounts/email/").headers["location"] == "/accounts/password/change/"
        page = browser.get("/accounts/password/change/")
        assert page.status_code == 200
        new = {"oldpassword": password, "password1": "quite another one", "password2": "quite another one"}
        token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[0]
        answer = browser.post("/accounts/password/change/", data={"csrfmiddlewaretoken": token, **new})
        assert answer.status_code == 302, answer.text
        assert browser.get("/accounts/email/").status_code == 200


def test_a_second_one_in_the_same_home_is_turned_away(rota: Running) -> None:
    said = rota.command("up")
    assert said.returncode == 1
    assert re.fullmatch(r"Rota already runs in .*\(process \d+\) at http://127\.0\.0\.1:\d+\. .*\n", said.stderr)
    assert rota.ready()


def test_a_taken_port_is_named_with_a_free_one(rota: Running) -> None:
    with a_home() as home:
        other = Running(home)
        other.port = rota.port
        said = other.command("up")
        assert said.returncode == 1
        assert re.fullmatch(rf"Port {rota.port} is taken .* PORT=\d+ make run\n", said.stderr), said.stderr


def test_check_finds_nothing_wrong(rota: Running) -> None:
    said = rota.command("check")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.endswith("nothing here stops Rota from running\n"), said.stdout


@pytest.mark.parametrize("name", ["postgres", "valkey", "web", "work", "tick-main", "beat"])
def test_a_killed_part_is_back_soon(rota: Running, name: str) -> None:
    others = {key: one for key, one in rota.children().items() if key != name}
    before = rota.child(name)
    os.kill(before.pid, signal.SIGKILL)
    until(lambda: rota.children().get(name, before) != before, 20, lambda: rota.printed)
    until(rota.ready, 20, lambda: rota.printed)
    assert {key: one for key, one in rota.children().items() if key != name} == others, "the others went on"
    assert job_runs(rota)


def test_a_killed_supervisor_leaves_nothing_but_jobs_and_starts_again(rota: Running) -> None:
    until(lambda: job_runs(rota), 20, lambda: rota.printed)
    children = rota.children()
    assert rota.process is not None
    rota.process.kill()
    rota.process.wait(10)
    until(lambda: not any(is_alive(one) for one in children.values()), 15, lambda: children)
    until(lambda: len(rota.everything_of_it()) <= 2, 5, rota.everything_of_it)  # the shim and its sleep
    assert job_runs(rota)
    seconds = rota.start()
    assert seconds < 15
    assert "one-time password" not in rota.printed
    assert job_runs(rota)


def test_terminated_it_stops_within_ten_seconds_and_down_ends_the_jobs(rota: Running) -> None:
    until(rota.ready, 20)
    status, seconds = rota.stop(signal.SIGTERM)
    assert (status, seconds < 10) == (0, True), rota.printed
    assert "jobs go on" in rota.printed.splitlines()[-2] + rota.printed.splitlines()[-1]
    assert not rota.children()
    assert job_runs(rota)
    said = rota.command("down", "--jobs")
    assert (said.returncode, said.stdout.splitlines()[-1]) == (0, "Ending 1 local job.")
    until(lambda: not rota.everything_of_it(), 5, rota.everything_of_it)


def test_a_stop_in_the_middle_of_a_first_start_is_clean() -> None:
    with a_home() as home:
        rota = Running(home)
        rota.begin()
        until(lambda: "First start" in rota.printed, 30, lambda: rota.printed)
        status, seconds = rota.stop(signal.SIGINT)
        assert seconds < 10
        assert status == 0, rota.printed
        until(lambda: not rota.everything_of_it(), 5, rota.everything_of_it)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand PostgreSQL to another user")
def test_root_in_a_private_folder_puts_the_data_where_postgresql_can_reach_it() -> None:
    with a_home(reachable=False) as home, a_rota(home) as rota:
        assert re.search(
            r"PostgreSQL runs as \S+, who cannot pass /tmp/rota-up-\S+: its data lies in (\S+)\.", rota.printed
        )
        assert rota.paths.data != home
        assert rota.ready()
        owner = (rota.paths.postgres_data / "PG_VERSION").stat().st_uid
        assert owner != 0
        server = rota.child("postgres")
        assert read_stat(server.pid)
        assert Path(f"/proc/{server.pid}").stat().st_uid == owner


def test_data_of_another_major_version_is_left_alone_and_named() -> None:
    with a_home() as home:
        data = home / "postgres"
        data.mkdir(parents=True)
        (data / "PG_VERSION").write_text("9\n")
        said = Running(home).command("up")
        assert said.returncode == 1
        assert re.fullmatch(
            r"The data in \S+ was written by PostgreSQL 9, and here is only [0-9, ]+\. .*\n", said.stderr
        )
        assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_given_stores_are_used_and_none_is_started(services: Services) -> None:
    with a_home() as home, a_database(services) as url:
        rota = Running(home)
        rota.more = {"DATABASE_URL": url, "REDIS_URL": services.redis_url, "ROTA_SECRET_KEY": "0123456789" * 4}
        try:
            rota.start()
            assert rota.ready()
            assert set(rota.children()) == {"web", "tick-main", "work", "beat"}
            assert not rota.paths.postgres_data.exists()
            said = rota.command("check")
            assert (said.returncode, "error" in said.stdout) == (0, False), said.stdout
        finally:
            rota.stop()
        until(lambda: not rota.everything_of_it(), 5, rota.everything_of_it)


@contextmanager
def a_database(services: Services) -> Iterator[str]:
    """An empty database of its own, given as its URL."""
    name = f"given_{os.getpid()}"
    parts = urlsplit(services.database_url)
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield parts._replace(path=f"/{name}").geturl()
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
