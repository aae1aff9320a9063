"""A PostgreSQL and a Valkey of a benchmark's own, as durable as real ones, gone when it is done.

    with stores() as environment:       # what a process needs to use them
        ...

Run as a program (`python bench/stores.py`, with ROTA_HOME) it is the process that keeps them, until its input closes.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Unavailable
from rota import env as environment
from rota.embedded.layout import recorded
from rota.embedded.output import Console
from rota.embedded.supervisor import Supervisor

READY_S = 90.0


@contextmanager
def stores() -> Iterator[dict[str, str]]:
    """Start both and give the environment of a process that uses them. Raises Unavailable where they do not start."""
    base = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    base.chmod(0o755)  # as root PostgreSQL is somebody else, who has to pass
    home = base / "home"
    roots = [str(environment.ROOT / root) for root in ("client", "platform", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "DATABASE_", "REDIS_"))}
    own = kept | {"PYTHONPATH": os.pathsep.join(roots), "ROTA_HOME": str(home), "ROTA_DEMO": "0", "ROTA_DB_POOL": "0"}
    log = base / "log"
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=output, stderr=output, env=own,
            start_new_session=True,
        )  # fmt: skip
        try:
            _wait(home, keeper, log)
            yield own
        finally:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait(30)
            _remove(base, home)


def _wait(home: Path, keeper: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_S
    while not (home / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > until:
            raise Unavailable(f"PostgreSQL and Valkey do not start: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.05)


def _remove(base: Path, home: Path) -> None:
    paths = recorded(home, os.getuid())
    for folder in (paths.data, paths.sockets, base):
        if folder.is_relative_to(tempfile.gettempdir()) or folder != home:
            shutil.rmtree(folder, ignore_errors=True)


def _keep() -> int:
    """Keep both running until standard input is closed."""
    env = environment.read(os.environ)
    ready = env.home / "ready"

    def wanted() -> bool:
        ready.touch()  # asked for the first time when both are ready
        return not select.select([sys.stdin], [], [], 0)[0]

    async def run() -> int:
        return await Supervisor(env, os.environ, Console(verbose=True)).run_stores(wanted)

    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(_keep())
