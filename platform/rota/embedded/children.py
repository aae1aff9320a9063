"""Which processes make up a running Rota. To add a long-lived one, add a Child to `workers`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rota.embedded import valkey
from rota.embedded.binaries import valkey_server
from rota.embedded.layout import Layout
from rota.embedded.place import Owner
from rota.embedded.postgres import Server, forget_stranger
from rota.env import ROOT, Env

SOURCE_ROOTS = ("client", "platform", ".")
WORK_THREADS = 8


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the supervisor keeps running.

    `stop_signal` asks it to end, SIGKILL follows after `grace` seconds. `orphan_signal` is what the kernel sends it
    when the supervisor itself is killed: the servers then stop cleanly, and the others, whose work is safe to break
    off anywhere, end at once.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals = signal.SIGKILL
    grace: float = 3.0
    owner: Owner | None = None
    pass_fds: tuple[int, ...] = ()
    text: bytes = b""
    """What it finds on standard input; a few kilobytes at most."""
    before: Callable[[], None] | None = None
    """Done before each start, also after a death."""


def python_environment(env: Env, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of our own Python children."""
    roots = [str((ROOT / root).resolve()) for root in SOURCE_ROOTS]
    inherited = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part and part not in roots]
    given = dict(environ)
    # Where bytecode must not lie beside the code, it lies in the virtual environment, else in the home: otherwise five
    # interpreters compile all of it at every start.
    if given.pop("PYTHONDONTWRITEBYTECODE", None):
        place = Path(sys.prefix) / ".cache" if os.access(sys.prefix, os.W_OK) else env.home
        given.setdefault("PYTHONPYCACHEPREFIX", str(place / "bytecode"))
    return given | {
        "DJANGO_SETTINGS_MODULE": "rota.settings",
        "PYTHONPATH": os.pathsep.join([*roots, *inherited]),
        "PYTHONUNBUFFERED": "1",
        "ROTA_HOME": str(env.home),
        "ROTA_LOG_FORMAT": "json",
        "PORT": str(env.port),
        "ROTA_BIND": env.bind,
    }


def stores(env: Env, paths: Layout, postgres: Server) -> list[Child]:
    """The two embedded servers. They are started first and stopped last."""
    return [
        Child(
            name="postgres",
            command=postgres.command,
            environment=postgres.environment,
            stop_signal=signal.SIGINT,  # PostgreSQL's "fast": end sessions, write everything, stop
            orphan_signal=signal.SIGINT,
            grace=8.0,
            owner=postgres.owner,
            before=partial(forget_stranger, paths),
        ),
        Child(
            name="valkey",
            command=valkey.command(valkey_server(env.valkey_bin), paths),
            environment={"PATH": os.defpath, "LC_ALL": "C"},
            orphan_signal=signal.SIGTERM,
        ),
    ]


def workers(env: Env, environ: Mapping[str, str], listener: int) -> list[Child]:
    """Everything that needs the stores: the web server on the socket `listener`, Celery's workers and beat."""
    ours = python_environment(env, environ)
    celery = (sys.executable, "-m", "celery", "-q", "-A", "rota.celery")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", env.log_level)
    queues = "default,dispatch,observe,ingest"
    ticks = [
        Child(
            name=f"tick-{group}",
            command=(*celery, "worker", "-n", f"tick-{group}@%h", "-P", "solo", "-Q", f"tick-{group}", *quiet),
            environment=ours,
        )
        for group in env.tick_groups
    ]
    threads = ("-P", "threads", "-c", str(WORK_THREADS))
    return [
        Child(
            name="web",
            command=(sys.executable, "-m", "rota.serve", "--fd", str(listener)),
            environment=ours,
            orphan_signal=signal.SIGTERM,
            pass_fds=(listener,),
        ),
        *ticks,
        Child(
            name="work", command=(*celery, "worker", "-n", "work@%h", *threads, "-Q", queues, *quiet), environment=ours
        ),
        Child(name="beat", command=(*celery, "beat", "--pidfile=", "--loglevel", env.log_level), environment=ours),
    ]


def backoff(failures: int) -> float:
    """Seconds to wait before a child is started again after `failures` quick deaths in a row (0.2 s to 30 s)."""
    return float(min(30.0, 0.2 * 2.0 ** min(failures, 10)))
