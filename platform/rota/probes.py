"""What `rota check` asks of the world around the settings: stores, tables, clocks, disk. Each answer is one line."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info
from django.core.checks import Warning as Caution
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor

from rota.embedded import state
from rota.embedded.binaries import OLDEST_POSTGRES, choose_postgres, postgres_installations, valkey_server
from rota.embedded.errors import CannotStart
from rota.embedded.postgres import data_major
from rota.health import PROBE_SECONDS, connection_parameters, one_line

OLDEST_BROKER = (6, 2)
CLOCK_WARNING, CLOCK_ERROR = 2.0, 30.0
"""Seconds that this machine's clock may differ from a store's: leases and windows are compared across them."""
LEAST_FREE_BYTES = 1 << 30


def run() -> list[CheckMessage]:
    """All probes. Embedded servers that do not run are no error: `rota up` starts them."""
    found = list(home())
    if settings.ENV.database is None and not state.is_locked(settings.LAYOUT.lock):
        return [*found, *programs()]
    return [*found, *database(), *broker()]


def home() -> Iterator[CheckMessage]:
    """Whether the home can be written and has room."""
    folder = settings.ENV.home
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Error(f"ROTA_HOME: cannot write to {existing}: {error.strerror}", id="rota.E010")
        return
    free = shutil.disk_usage(existing).free
    if free < LEAST_FREE_BYTES:
        yield Caution(f"ROTA_HOME: only {free >> 20} MiB are free on the disk of {existing}", id="rota.W010")


def programs() -> Iterator[CheckMessage]:
    """Whether `rota up` would find the programs of the embedded servers."""
    data = settings.LAYOUT.postgres_data
    try:
        chosen = choose_postgres(postgres_installations(settings.ENV.postgres_bin), data_major(data), data)
        valkey_server(settings.ENV.valkey_bin)
    except CannotStart as error:
        yield Error(str(error), id="rota.E011")
    else:
        said = f"the embedded PostgreSQL {chosen.major} and Valkey do not run now, so they were not asked"
        yield Info(said, hint="`rota up` starts them.", id="rota.I001")


def database() -> Iterator[CheckMessage]:
    """Reachable, new enough, keeps what it is told, keeps time, has the tables."""
    try:
        with psycopg.connect(**connection_parameters()) as connection:
            if connection.info.server_version < OLDEST_POSTGRES * 10000:
                version = connection.info.parameter_status("server_version")
                yield Error(f"DATABASE_URL: PostgreSQL {version} is older than {OLDEST_POSTGRES}", id="rota.E021")
                return
            yield from _database_facts(connection)
    except psycopg.Error as error:
        yield Error(f"DATABASE_URL: the database cannot be reached: {one_line(error)}", id="rota.E020")
        return
    yield from _tables()


def _database_facts(connection: psycopg.Connection[Any]) -> Iterator[CheckMessage]:
    facts = connection.execute(
        "SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('server_encoding'),"
        " current_setting('fsync'), current_setting('max_connections')::int,"
        " has_schema_privilege(current_user, current_schema(), 'CREATE')"
    ).fetchone()
    assert facts is not None
    there, encoding, fsync, connections_allowed, may_create = facts
    yield from clock("the database", time.time() - float(there))
    if encoding != "UTF8":
        yield Error(f"DATABASE_URL: the database's encoding is {encoding} and must be UTF8", id="rota.E022")
    if fsync != "on":
        yield Caution("DATABASE_URL: the server runs with fsync off: a crash may lose jobs", id="rota.W021")
    if not may_create:
        yield Error("DATABASE_URL: this user may not create tables in the database", id="rota.E023")
    if connections_allowed < 4 * max(settings.ENV.db_pool, 1):
        said = (
            f"ROTA_DB_POOL: {settings.ENV.db_pool} per process is much for a server that allows {connections_allowed}"
        )
        yield Caution(said, hint="Raise max_connections or lower ROTA_DB_POOL.", id="rota.W022")


def _tables() -> Iterator[CheckMessage]:
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    missing = [
        f"{step.app_label}.{step.name}" for step, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())
    ]
    if missing:
        some = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        said = f"the tables are not up to date: {len(missing)} migrations are missing ({some})"
        yield Error(said, hint="Run `python manage.py bootstrap`.", id="rota.E024")


def broker() -> Iterator[CheckMessage]:
    """Reachable, new enough, does not throw away what it was given, keeps time."""
    url = settings.BROKER.url
    client = redis.Redis.from_url(url, socket_connect_timeout=PROBE_SECONDS, socket_timeout=PROBE_SECONDS)
    try:
        facts: dict[str, Any] = client.info()
        seconds, micros = client.time()
    except (redis.RedisError, OSError) as error:
        yield Error(f"REDIS_URL: the broker cannot be reached: {one_line(error)}", id="rota.E030")
        return
    finally:
        client.close()
    version = str(facts.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_BROKER:
        yield Error(f"REDIS_URL: version {version} is older than {'.'.join(map(str, OLDEST_BROKER))}", id="rota.E031")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and facts.get("maxmemory", 0):
        said = f"REDIS_URL: the server's maxmemory-policy is {policy}: full, it would drop queued work"
        yield Caution(said, hint="Set it to noeviction.", id="rota.W030")
    yield from clock("the broker", time.time() - (seconds + micros / 1e6))


def clock(whose: str, ahead: float) -> Iterator[CheckMessage]:
    """Whether this machine's clock, `ahead` seconds before another's, is near enough to it."""
    if abs(ahead) > CLOCK_WARNING:
        kind = Error if abs(ahead) > CLOCK_ERROR else Caution
        said = f"clock: this machine is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {whose}"
        yield kind(said, hint="Let both follow a time server (NTP).", id="rota.E040" if kind is Error else "rota.W040")
