"""Probes of the stores, each quick and each with a one-line answer, used by `/readyz` and `rota check`."""

from __future__ import annotations

from typing import Any

import psycopg
import redis
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

PROBE_SECONDS = 2


def readiness() -> dict[str, str | None]:
    """For each store None, or one line that says what is wrong with it."""
    return {"database": database_problem(), "broker": broker_problem()}


def database_problem() -> str | None:
    """Connect anew, outside the pool: a pool that is merely busy does not make the process unready."""
    try:
        with psycopg.connect(**connection_parameters()) as connection:
            connection.execute("SELECT 1")
    except psycopg.Error as error:
        return one_line(error)
    return None


def connection_parameters() -> dict[str, Any]:
    """What psycopg needs to reach the default database, with a short time-out."""
    parameters = connections[DEFAULT_DB_ALIAS].get_connection_params()
    wanted = {name: value for name, value in parameters.items() if name not in ("pool", "cursor_factory", "context")}
    return wanted | {"connect_timeout": PROBE_SECONDS, "autocommit": True}


def broker_problem() -> str | None:
    """Ping the broker anew, outside any pool."""
    client = redis.Redis.from_url(
        settings.BROKER.url, socket_connect_timeout=PROBE_SECONDS, socket_timeout=PROBE_SECONDS
    )
    try:
        client.ping()
    except (redis.RedisError, OSError) as error:
        return one_line(error)
    finally:
        client.close()
    return None


def one_line(error: BaseException) -> str:
    """The first line of an error's text: drivers like to give several."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
