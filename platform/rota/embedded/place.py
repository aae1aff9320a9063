"""Makes the folders of a home, each with its owner and mode, and settles who runs PostgreSQL and where its data lies.

PostgreSQL refuses to run as root. Started by root, it runs as an unprivileged user, and its data lies where that user
can reach it: in the home if every folder above lets it pass, else below /var/lib/rota, with a note in the home.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rota.embedded.errors import CannotStart
from rota.embedded.layout import ELSEWHERE, Layout, digest, layout, recorded

SYSTEM_USER = "rota-postgres"
OUTSIDE = Path("/var/lib/rota")


@dataclass(frozen=True, slots=True)
class Owner:
    """An unprivileged user that runs PostgreSQL for root."""

    name: str
    uid: int
    gid: int


def database_owner(wanted: str | None, say: Callable[[str], None]) -> Owner | None:
    """Who runs PostgreSQL: None = we ourselves. As root: the wanted user, else `postgres`, else one made for it."""
    if os.geteuid() != 0:
        return None
    if wanted is not None:
        owner = _user(wanted)
        if owner is None or owner.uid == 0:
            raise CannotStart(f"ROTA_POSTGRES_USER: {wanted!r} is not an unprivileged user of this machine")
        return owner
    for name in ("postgres", SYSTEM_USER):
        if owner := _user(name):
            return owner
    if program := shutil.which("useradd"):
        command = [program, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "--user-group", SYSTEM_USER]
        made = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if owner := _user(SYSTEM_USER):
            say(f"PostgreSQL does not run as root: made the system user {SYSTEM_USER} for it.")
            return owner
        raise CannotStart(f"Cannot make the system user {SYSTEM_USER} for PostgreSQL: {made.stderr.strip()}")
    raise CannotStart("PostgreSQL does not run as root: name an unprivileged user for it in ROTA_POSTGRES_USER.")


def prepare(home: Path, owner: Owner | None, say: Callable[[str], None]) -> Layout:
    """Make the folders of `home` and return its layout. Raises CannotStart where that is impossible."""
    try:
        return _prepare(home, owner, say)
    except OSError as error:
        raise CannotStart(
            f"Cannot make or use the folder {error.filename or home}: {error.strerror}. "
            "Choose another home with ROTA_HOME=, or give this one to the user who runs Rota."
        ) from error


def _prepare(home: Path, owner: Owner | None, say: Callable[[str], None]) -> Layout:
    _private(home, owner)
    paths = _settle_data(home, owner, say)
    if paths.data != home:
        OUTSIDE.mkdir(mode=0o711, parents=True, exist_ok=True)
        _private(paths.data, owner)
    _private(paths.sockets, owner)
    for folder in (paths.logs, paths.valkey_data, paths.jobs):
        _private(folder, None)
    _given(paths.postgres_socket, owner)
    if not paths.secret_key.exists():
        write_private(paths.secret_key, secrets.token_urlsafe(48) + "\n")
    return paths


def _settle_data(home: Path, owner: Owner | None, say: Callable[[str], None]) -> Layout:
    paths = recorded(home, os.getuid())
    if paths.data != home or paths.postgres_data.exists() or owner is None:
        return paths
    shut = first_shut_folder(home.parent, owner)
    if shut is None:
        return paths
    data = OUTSIDE / digest(home)
    write_private(home / ELSEWHERE, f"{data}\n")
    say(f"PostgreSQL runs as {owner.name}, who cannot pass {shut}: its data lies in {data}.")
    return layout(home, os.getuid(), data)


def first_shut_folder(folder: Path, owner: Owner) -> Path | None:
    """The topmost folder on the way to `folder` that `owner` may not pass, None when the way is open."""
    for step in (*reversed(folder.resolve().parents), folder.resolve()):
        facts = step.stat()
        mine, group = facts.st_uid == owner.uid, facts.st_gid == owner.gid
        needed = stat.S_IXUSR if mine else stat.S_IXGRP if group else stat.S_IXOTH
        if not facts.st_mode & needed:
            return step
    return None


def _private(folder: Path, owner: Owner | None) -> None:
    """A folder that only we may use; `owner`'s group may pass through it, to what lies in it and belongs to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise CannotStart(f"{folder} belongs to somebody else or is no folder; move it away and start again.")
    if owner is not None:
        os.chown(folder, -1, owner.gid)
    folder.chmod(0o700 if owner is None else 0o710)


def _given(folder: Path, owner: Owner | None) -> None:
    """A folder that belongs to whoever runs PostgreSQL, and to nobody else."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if owner is not None:
        os.chown(folder, owner.uid, owner.gid)
    folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only we may read, all of it or nothing of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _user(name: str) -> Owner | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Owner(name, entry.pw_uid, entry.pw_gid)
