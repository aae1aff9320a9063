"""The words `up`, `down` and `check` of the command `rota`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from rota import env as environment
from rota.embedded import state
from rota.embedded.children import python_environment
from rota.embedded.jobs import end_local_jobs
from rota.embedded.layout import recorded
from rota.embedded.output import Console
from rota.embedded.processes import is_alive, send
from rota.embedded.supervisor import Supervisor

STOP_SECONDS = 20.0


def up(
    *,
    port: Annotated[int | None, typer.Option(help="Port of the web server (default: PORT, else 8000).")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show each phase and what all parts say.")] = False,
) -> None:
    """Run all of Rota on this machine until Ctrl-C: web server, workers and, unless given, PostgreSQL and Valkey."""
    environ = dict(os.environ) | ({"PORT": str(port)} if port is not None else {})
    env = _read(environ)
    raise typer.Exit(asyncio.run(_up(env, environ, Console(verbose=verbose))))


async def _up(env: environment.Env, environ: dict[str, str], console: Console) -> int:
    return await Supervisor(env, environ, console).run()


def down(
    *,
    jobs: Annotated[bool, typer.Option("--jobs", help="End what local jobs run, too; it begins anew later.")] = False,
) -> None:
    """Stop the Rota that runs in this home, as Ctrl-C in its terminal does."""
    env = _read(dict(os.environ))
    paths = recorded(env.home, os.getuid())
    running = state.load(paths.state)
    if running is None or not is_alive(running.supervisor):
        typer.echo(f"No Rota runs in {env.home}.")
    else:
        send(running.supervisor.pid, signal.SIGTERM)
        if not _soon(lambda: not is_alive(running.supervisor)):
            typer.echo(f"Rota (process {running.supervisor.pid}) does not stop; see {paths.logs}.", err=True)
            raise typer.Exit(1)
        typer.echo("Rota is stopped.")
    if jobs and not end_local_jobs(paths.jobs, typer.echo):
        raise typer.Exit(1)


def check() -> None:
    """Say what is wrong with this configuration: variables, home, database, broker, secret, clock, tables."""
    environ = dict(os.environ)
    for line in environment.likely_typos(environ):
        typer.echo(f"warning  {line}")
    raise typer.Exit(_manage(_read(environ), environ, "diagnose"))


def _read(environ: dict[str, str]) -> environment.Env:
    try:
        return environment.read(environ)
    except environment.EnvError as error:
        for line in error.problems:
            typer.echo(f"error    {line}", err=True)
        raise typer.Exit(1) from None


def _manage(env: environment.Env, environ: dict[str, str], command: str) -> int:
    """Run a management command in a process of its own, with its output on ours."""
    known = {"ROTA_LOG_LEVEL": "error", "ROTA_DB_POOL": "0"}
    variables = python_environment(env, environ) | known | {"ROTA_LOG_FORMAT": "console"}
    program = [sys.executable, str(environment.ROOT / "manage.py"), command]
    return subprocess.run(program, env=variables, check=False).returncode


def _soon(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + STOP_SECONDS
    while time.monotonic() < until:
        if happened():
            return True
        time.sleep(0.05)
    return False
