"""Real PostgreSQL and Valkey for tests, and Django set up for the suites that want it.

The pure suites never come here. A test module in a folder of DJANGO_SUITES gets Django set up before it is imported;
the first test that wants a database starts both servers, once for all runs and all xdist workers of this checkout.
They stop by themselves when the last process that uses them is gone, however it went. With DATABASE_URL and REDIS_URL
set, those are used instead.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import django
import pytest
import redis
from pytest_django import plugin as pytest_django

from rota.embedded import state
from rota.embedded.layout import Layout, digest, layout
from rota.embedded.place import database_owner, prepare
from rota.embedded.postgres import STATUS_LINE, pid_file
from rota.embedded.valkey import is_ready
from rota.env import ROOT

HOME = Path(f"/tmp/rota-tests-{os.getuid()}-{digest(ROOT)}")
PATHS = layout(HOME, os.getuid())
USERS = HOME / "users.lock"
START_SECONDS = 60
VALKEY_DATABASES = 16
_started: list[subprocess.Popen[bytes]] = []
"""Kept, not waited for: it outlives us if others still use it, and a forgotten Popen would complain."""


@dataclass(frozen=True, slots=True)
class Services:
    """The two stores of this process's tests; nobody else uses this database and this number of Valkey."""

    database_url: str
    redis_url: str


def set_up_django(config: pytest.Config) -> None:
    """Set Django up for this process's own database and Valkey number; does not start them. May be repeated."""
    if "DJANGO_SETTINGS_MODULE" in os.environ:
        return
    os.environ["DJANGO_SETTINGS_MODULE"] = "rota.settings"
    os.environ.setdefault("ROTA_SECRET_KEY", "only-for-tests-" + digest(ROOT) * 4)
    os.environ["ROTA_DB_POOL"] = "0"  # the test database could not be dropped while a pool has connections
    if "DATABASE_URL" not in os.environ:
        _home()
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        name = f"rota_{sha256(run.encode()).hexdigest()[:10]}"
        os.environ["DATABASE_URL"] = f"postgresql://rota@/{name}?host={PATHS.postgres_socket}"
        os.environ["REDIS_URL"] = f"unix://{PATHS.valkey_socket}?db={_free_number()}"
    django.setup()
    pytest_django._setup_django(config)  # it has set itself up before Django was, and blocks databases


def start() -> Services:
    """Make sure that the stores run, and keep them running while this process lives."""
    services = Services(os.environ["DATABASE_URL"], os.environ["REDIS_URL"])
    if str(PATHS.postgres_socket) in services.database_url:
        _hold(USERS, fcntl.LOCK_SH)
        starting = _hold(HOME / "start.lock", fcntl.LOCK_EX)
        if not state.is_locked(PATHS.lock):
            _launch()
        _wait()
        os.close(starting)
    with redis.Redis.from_url(services.redis_url) as client:
        client.flushdb()
    return services


def _home() -> Layout:
    return prepare(HOME, database_owner(os.environ.get("ROTA_POSTGRES_USER"), lambda _: None), lambda _: None)


def _hold(path: Path, how: int) -> int:
    """Take a lock that lasts until the descriptor is closed or this process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, how)
    return descriptor


def _free_number() -> int:
    for number in range(VALKEY_DATABASES):
        try:
            _hold(HOME / f"valkey-{number}.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return number
    raise RuntimeError(f"more than {VALKEY_DATABASES} test processes at a time share one Valkey")


def _launch() -> None:
    with (HOME / "stores.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("store_process.py"))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=clean_environ(ROTA_HOME=str(HOME)),
        )
    _started.append(process)


def _wait() -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        lines = pid_file(PATHS.postgres_data)
        ready = len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"
        if ready and is_ready(PATHS.valkey_socket):
            return
        if time.monotonic() > until:
            raise RuntimeError(f"the stores for tests do not start: {(HOME / 'stores.log').read_text()[-2000:]}")
        time.sleep(0.05)


def clean_environ(**more: str) -> dict[str, str]:
    """This process's environment without any configuration of Rota, for tests that start Rota themselves."""
    ours = ("ROTA_", "DJANGO_", "DATABASE_URL", "REDIS_URL", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours) and name != "PORT"}
    roots = [str(ROOT / root) for root in ("client", "platform", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(roots)} | more
