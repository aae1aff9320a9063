"""The process behind the database tests: runs the embedded stores, without durability, while any test process lives."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rota import env as environment
from rota.embedded.layout import recorded
from rota.embedded.output import Console
from rota.embedded.supervisor import Supervisor

LINGER = 2.0
"""Seconds without any user before the stores stop: time for the next worker, or the next run, to come."""


def main() -> int:
    """Run until nobody holds the lock of users. It is then taken, and kept to the end, so nobody comes too late."""
    env = environment.read(os.environ)
    users = os.open(env.home / "users.lock", os.O_RDWR)
    last_used = time.monotonic()

    def wanted() -> bool:
        nonlocal last_used
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            last_used = time.monotonic()
            return True
        if time.monotonic() - last_used > LINGER:
            return False
        fcntl.flock(users, fcntl.LOCK_UN)
        return True

    data: Path = recorded(env.home, os.getuid()).postgres_data
    shutil.rmtree(data, ignore_errors=True)  # making it anew takes less than a second and leaves nothing to repair
    return asyncio.run(_run(env, wanted))


async def _run(env: environment.Env, wanted: Callable[[], bool]) -> int:
    supervisor = Supervisor(env, os.environ, Console(verbose=True), durable=False)
    return await supervisor.run_stores(wanted)


if __name__ == "__main__":
    sys.exit(main())
