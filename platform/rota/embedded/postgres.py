"""The embedded PostgreSQL: a new data folder, the server's command line, and what may be left of an earlier run."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rota.embedded.binaries import Postgres, choose_postgres, library_path, postgres_installations
from rota.embedded.errors import CannotStart
from rota.embedded.layout import DATABASE, Layout
from rota.embedded.place import Owner, first_shut_folder
from rota.embedded.processes import command_line, read_stat, send, working_in

USER = "rota"
STATUS_LINE = 7
"""Index of the line of postmaster.pid that says `starting`, `ready` or `stopping`."""
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "jit": "off",  # our queries are short; compiling them would take longer than running them
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "",  # the supervisor puts the time in front
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class Server:
    """One embedded PostgreSQL. `durable=False` is for tests: it trades the safety of the data for speed."""

    paths: Layout
    owner: Owner | None
    program: Postgres
    durable: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its programs: nothing of ours but the way to their libraries."""
        kept = {name: os.environ[name] for name in ("PATH", "TZ", "TZDIR") if name in os.environ}
        library = library_path(self.program.folder)
        return kept | {"LC_ALL": "C"} | ({"LD_LIBRARY_PATH": library} if library else {})

    @property
    def command(self) -> tuple[str, ...]:
        """What the supervisor runs."""
        settings = SETTINGS | {"unix_socket_directories": str(self.paths.postgres_socket)}
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return (str(self.program.folder / "postgres"), "-D", str(self.paths.postgres_data), *options)

    def is_ready(self) -> bool:
        """Whether the server takes connections, as it writes itself into its pid file.

        One that was killed still says so in the file that it left behind, until the next one has replaced that.
        """
        lines = pid_file(self.paths.postgres_data)
        if len(lines) <= STATUS_LINE or lines[STATUS_LINE].strip() != "ready":
            return False
        return lines[0].strip().isdigit() and bool(command_line(int(lines[0])))


def server(
    paths: Layout, owner: Owner | None, named: Path | None, say: Callable[[str], None], *, durable: bool = True
) -> Server:
    """Choose the programs for this home's data, which may not be there yet. Raises CannotStart."""
    program = choose_postgres(postgres_installations(named), data_major(paths.postgres_data), paths.postgres_data)
    return Server(paths, owner, reachable(program, paths, owner, say), durable)


def data_major(data: Path) -> int | None:
    """The major version that wrote a data folder, None when there is none yet."""
    try:
        text = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        if data.exists():
            raise CannotStart(
                f"{data} is there but is no PostgreSQL data folder; move it away and start again"
            ) from None
        return None
    if not text.isdigit():
        raise CannotStart(f"{data / 'PG_VERSION'} says {text!r}, which is no version of PostgreSQL")
    return int(text)


def reachable(program: Postgres, paths: Layout, owner: Owner | None, say: Callable[[str], None]) -> Postgres:
    """The same programs where `owner` can run them: copied beside the data if the way to them is shut."""
    if owner is None or first_shut_folder(program.folder, owner) is None:
        return program
    install = program.folder.parent
    libraries = install.parent.with_name(f"{install.parent.name}.libs")  # where the wheel keeps shared ones
    programs = paths.data / "programs"
    target = programs / install.parent.name / install.name
    if not target.exists():
        say(f"{owner.name} cannot reach PostgreSQL's programs in {install}: copying them to {target}.")
        target.parent.mkdir(parents=True, exist_ok=True)
        if libraries.is_dir():
            shutil.copytree(libraries, programs / libraries.name, dirs_exist_ok=True)
        draft = target.with_name(f"{target.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(install, draft, symlinks=True)
        _open_to_all(programs)
        draft.rename(target)
    return Postgres(target / "bin", program.major)


def _open_to_all(folder: Path) -> None:
    """Let everybody read below `folder`: programs are no secret, and a strict umask may have made them one."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))


def pid_file(data: Path) -> list[str]:
    """The lines of postmaster.pid; empty when there is none."""
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def clear_leftovers(paths: Layout, say: Callable[[str], None], patience: float = 20) -> None:
    """End a server that outlived its supervisor, gently, and wait for whatever still works in its data folder.

    Until the last of them is gone a second server must not start, or both would write the same files.
    """
    forget_stranger(paths)
    data = paths.postgres_data
    lines = pid_file(data)
    until = time.monotonic() + patience
    left = working_in(data)
    if left:
        say("PostgreSQL of an earlier run is still there: stopping it.")
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if lines and lines[0].strip().isdigit() and int(lines[0]) in left:
            send(int(lines[0]), number)
        while left and time.monotonic() < until:
            time.sleep(0.05)
            left = working_in(data)
        if not left:
            return
        until = time.monotonic() + patience / 4
    raise CannotStart(f"PostgreSQL of an earlier run does not stop (process {left[0]}); end it and start again.")


def forget_stranger(paths: Layout) -> None:
    """Remove pid files whose number now belongs to somebody else, or to a zombie: PostgreSQL would not start with them.

    Files of a process that is simply gone stay: PostgreSQL handles those itself, and more carefully.
    """
    for path in (paths.postgres_data / "postmaster.pid", *paths.postgres_socket.glob(".s.PGSQL.*.lock")):
        try:
            first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
        except OSError:
            continue
        there = first.isdigit() and read_stat(int(first)) is not None
        if there and int(first) not in working_in(paths.postgres_data):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One program of making a data folder, with what it reads from standard input."""

    command: tuple[str, ...]
    text: bytes = b""


def begin_data(one: Server) -> list[Step]:
    """Make an empty folder beside the place of the data, and return what fills it; `finish_data` then moves it there.

    So a start that is broken off leaves no half a database.
    """
    draft = _draft(one)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if one.owner is not None:
        os.chown(draft, one.owner.uid, one.owner.gid)
    programs = one.program.folder
    initdb = (
        *(str(programs / "initdb"), "-D", str(draft), "-U", USER, "--auth=trust", "--no-instructions"),
        *("--encoding=UTF8", "--locale=C", "--data-checksums", *(() if one.durable else ("--no-sync",))),
    )
    # Single-user mode needs no client program, which not every installation of the server brings.
    single = (str(programs / "postgres"), "--single", "-D", str(draft), *(() if one.durable else ("-F",)), "postgres")
    return [Step(initdb), Step(single, f"CREATE DATABASE {DATABASE};\n".encode())]


def finish_data(one: Server) -> None:
    """Put the filled folder into its place."""
    _draft(one).rename(one.paths.postgres_data)


def _draft(one: Server) -> Path:
    return one.paths.postgres_data.with_name("postgres.new")
