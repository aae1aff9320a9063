"""Brings everything up in order, keeps it up, and takes it down again: what `rota up` runs.

One process, one thread, one event loop. The order: the home, its lock, the port, leftovers of an earlier run, the
stores, `manage.py bootstrap`, then web server, workers and beat. Down goes the other way round. Local jobs are no
children of these (their shims have sessions of their own) and go on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.embedded import postgres, state, valkey
from rota.embedded.children import Child, python_environment, stores, workers
from rota.embedded.errors import CannotStart
from rota.embedded.keeper import LOUD_AFTER, Keeper, Reaper, run_to_end
from rota.embedded.layout import Layout
from rota.embedded.listener import listen, local_url
from rota.embedded.output import Console, LogFile, understand
from rota.embedded.place import database_owner, prepare
from rota.embedded.processes import identify
from rota.env import ROOT, Env

READY_SECONDS = 90.0
"""How long a part may take to become ready before the start is given up."""


class Supervisor:
    """One running Rota."""

    def __init__(
        self,
        env: Env,
        environ: Mapping[str, str],
        console: Console,
        *,
        durable: bool = True,
        extra: Sequence[Child] = (),
    ) -> None:
        """`durable=False` gives up the safety of the data for speed; `extra` are run beside the usual workers."""
        self._env, self._environ, self._console = env, environ, console
        self._durable, self._extra = durable, extra
        self._paths: Layout
        self._url = local_url(env.bind, env.port)
        self._reaper = Reaper()
        self._keepers: list[Keeper] = []
        self._stop = asyncio.Event()
        self._began = time.monotonic()
        self._listener: socket.socket | None = None

    async def run(self) -> int:
        """Run until a signal says stop. Returns the exit status; a start that fails is said in one line."""
        self._install_signals()
        lock = None
        try:
            self._paths = self._prepare_home()
            lock = self._take_lock()
            self._listener = listen(self._env.bind, self._env.port)
            self._console.phase(f"home {self._env.home}, listening on {self._env.bind}:{self._env.port}")
            if await self._unless_stopped(self._start()):
                await self._stop.wait()
            status = 0
        except CannotStart as error:
            print(error, file=sys.stderr, flush=True)
            status = 1
        finally:
            await self._take_down(was_up=lock is not None)
            _release(lock)
        return status

    async def run_stores(self, wanted: Callable[[], bool]) -> int:
        """Run only the two stores, for as long as `wanted` says so: for tests."""
        self._install_signals()
        lock = None
        try:
            self._paths = self._prepare_home()
            lock = self._take_lock()
            await self._start_stores()
            while wanted() and not self._stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), 0.25)
        finally:
            await self._take_down(was_up=False)
            _release(lock)
        return 0

    # --- up ---

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reaper)

    def _prepare_home(self) -> Layout:
        self._owner = database_owner(self._env.postgres_user, self._console.say) if self._embedded else None
        return prepare(self._env.home, self._owner, self._console.say)

    @property
    def _embedded(self) -> bool:
        return self._env.database is None

    def _take_lock(self) -> int:
        lock = state.take_lock(self._paths.lock)
        if lock is None:
            running = state.load(self._paths.state)
            where = f" (process {running.supervisor.pid}) at {running.url}" if running else ""
            raise CannotStart(
                f"Rota already runs in {self._env.home}{where}. "
                "`rota down` stops it; ROTA_HOME= and PORT= start another one."
            )
        return lock

    async def _start(self) -> None:
        state.end_orphans(self._paths, self._console.say)
        if self._embedded:
            await self._start_stores()
        told = await self._bootstrap()
        state.write_cli(self._paths, self._url, told.get("cli_token"))
        assert self._listener is not None
        for child in (*workers(self._env, self._environ, self._listener.fileno()), *self._extra):
            self._keep(child)
        await self._until(self._web_is_ready, self._keepers_named("web"), "the web server answers")
        self._greet(told)

    async def _start_stores(self) -> None:
        postgres.clear_leftovers(self._paths, self._console.say)
        server = postgres.server(
            self._paths, self._owner, self._env.postgres_bin, self._console.say, durable=self._durable
        )
        if not self._paths.postgres_data.exists():
            self._console.say("First start in this home: making the database.")
            await self._make_data(server)
        self._phase("the database's files are there")
        for child in stores(self._env, self._paths, server):
            self._keep(child)

        async def both_ready() -> bool:
            return server.is_ready() and valkey.is_ready(self._paths.valkey_socket)

        await self._until(both_ready, self._keepers, "PostgreSQL and Valkey are ready")

    async def _make_data(self, server: postgres.Server) -> None:
        for step in postgres.begin_data(server):
            name = Path(step.command[0]).name
            child = Child(name, step.command, server.environment, owner=server.owner, text=step.text)
            said: list[str] = []
            status = await run_to_end(child, self._reaper, said.append)
            wrong = [line for line in said if "ERROR:" in line or "FATAL:" in line]
            if status != 0 or wrong:
                raise CannotStart(f"{name} failed: {(wrong or said or [f'exit status {status}'])[-1]}")
        postgres.finish_data(server)

    async def _bootstrap(self) -> dict[str, str]:
        """Run `manage.py bootstrap` to its end; its last line is a JSON object, which holds secrets: never logged."""
        told: dict[str, str] = {}
        last = "it said nothing"
        log = LogFile(self._paths.logs / "bootstrap.log")

        def handle(raw: str) -> None:
            nonlocal last
            answer = _answer(raw)
            if answer is not None:
                told.update(answer)
            elif raw.strip():
                last = raw
                log.write(raw)
                self._console.child("bootstrap", understand(raw))

        command = (sys.executable, str(ROOT / "manage.py"), "bootstrap")
        environment = python_environment(self._env, self._environ) | {"ROTA_DB_POOL": "0"}
        status = await run_to_end(Child("bootstrap", command, environment), self._reaper, handle)
        log.close()
        if status != 0:
            raise CannotStart(f"The database could not be brought up to date: {last} (see {log.path})")
        self._phase("the tables are up to date")
        return told

    def _keep(self, child: Child) -> None:
        keeper = Keeper(child, self._paths, self._console, self._reaper, self._save_state)
        self._keepers.append(keeper)
        keeper.start()

    def _keepers_named(self, name: str) -> list[Keeper]:
        return [keeper for keeper in self._keepers if keeper.child.name == name]

    def _save_state(self) -> None:
        children = {keeper.child.name: keeper.identity for keeper in self._keepers if keeper.identity is not None}
        state.save(self._paths.state, state.State(identify(os.getpid()), self._url, children))

    async def _until(self, ready: Callable[[], Awaitable[bool]], keepers: list[Keeper], what: str) -> None:
        """Wait until `ready`; give up when a child keeps dying or the time is over."""
        until = time.monotonic() + READY_SECONDS
        while not await ready():
            for keeper in keepers:
                if keeper.failures >= LOUD_AFTER:
                    raise CannotStart(
                        f"{keeper.child.name} does not stay up: {keeper.last_line} "
                        f"(see {self._paths.logs / keeper.child.name}.log)"
                    )
            if time.monotonic() > until:
                names = " and ".join(keeper.child.name for keeper in keepers)
                raise CannotStart(f"{names} not ready after {READY_SECONDS:.0f} s (see {self._paths.logs})")
            await asyncio.sleep(0.05)
        self._phase(what)

    async def _web_is_ready(self) -> bool:
        parts = urlsplit(self._url)
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            status = await asyncio.wait_for(reader.readline(), 5)
            writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in status

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work, or break it off when a signal comes. Returns whether it was done."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return False
        task.result()
        return True

    def _phase(self, what: str) -> None:
        self._console.phase(f"{time.monotonic() - self._began:5.1f} s  {what}")

    def _greet(self, told: Mapping[str, str]) -> None:
        say = self._console.say
        say(f"Rota is up: {self._env.url or self._url}  (after {time.monotonic() - self._began:.1f} s)")
        if "admin_password" in told:
            say(f"Sign in as {told['admin_username']} with this one-time password, shown only now and changed at")
            say(f"the first sign-in:  {told['admin_password']}")
        say(f"Logs: {_short(self._paths.logs)}. Ctrl-C stops Rota; jobs go on (`rota down --jobs` ends them too).")

    # --- down ---

    async def _take_down(self, *, was_up: bool) -> None:
        store_names = ("postgres", "valkey")
        if was_up and self._keepers:
            self._console.say("Stopping. Running jobs go on; `rota down --jobs` ends them too.")
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers if keeper.child.name not in store_names))
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers if keeper.child.name in store_names))
        if self._listener is not None:
            self._listener.close()
        if was_up:
            self._paths.state.unlink(missing_ok=True)
            self._console.phase("all is stopped")


def _release(lock: int | None) -> None:
    """Give the home back, when nothing of it runs any more."""
    if lock is not None:
        os.close(lock)


def _answer(raw: str) -> dict[str, str] | None:
    """What bootstrap tells, if `raw` is that line and no log entry."""
    try:
        entry = json.loads(raw) if raw.startswith("{") else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" not in entry else None


def _short(path: Path) -> str:
    """A path below the current folder without that folder."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
