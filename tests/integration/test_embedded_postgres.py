"""Making a database with the wheel's programs where PostgreSQL's user can reach neither them nor the home."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from rota.embedded.binaries import postgres_installations
from rota.embedded.layout import recorded
from rota.embedded.output import Console
from rota.embedded.postgres import data_major
from rota.embedded.supervisor import Supervisor
from rota.env import read
from tests.integration.running import a_home
from tests.services import clean_environ


@pytest.fixture
def hidden_programs() -> Iterator[Path]:
    """The best installation's programs, copied below a folder that only we may enter."""
    best = postgres_installations(None)[0].folder.parent
    if "site-packages" not in best.parts:
        pytest.skip("the system's programs can be reached by everybody")
    hidden = Path(tempfile.mkdtemp(prefix="rota-hidden-", dir="/tmp"))
    package = hidden / "site-packages" / best.parent.name
    shutil.copytree(best, package / best.name, symlinks=True)
    libraries = best.parent.with_name(f"{best.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, package.with_name(libraries.name))
    yield package / best.name / "bin"
    shutil.rmtree(hidden)


def start_and_stop(home: Path, **variables: str) -> str:
    """Make a home's stores, start them and stop them again; return what the person is told."""
    said = StringIO()
    environ = clean_environ(ROTA_HOME=str(home), **variables)
    supervisor = Supervisor(read(environ), environ, Console(said), durable=False)
    assert asyncio.run(supervisor.run_stores(lambda: False)) == 0
    return said.getvalue()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand PostgreSQL to another user")
def test_programs_out_of_reach_are_copied_beside_the_data(hidden_programs: Path) -> None:
    with a_home(reachable=False) as home:
        said = start_and_stop(home, ROTA_POSTGRES_BIN=str(hidden_programs))
        assert "cannot reach PostgreSQL's programs in" in said
        data = recorded(home, os.getuid()).data
        assert not data.is_relative_to(home)
        assert list(data.glob("programs/*/*/bin/postgres"))
        assert "cannot reach" not in start_and_stop(home, ROTA_POSTGRES_BIN=str(hidden_programs))


def test_a_broken_off_first_start_is_begun_anew() -> None:
    with a_home() as home:
        half = home / "postgres.new"
        half.mkdir(parents=True)
        (half / "PG_VERSION").write_text("18\n")
        assert start_and_stop(home) == "First start in this home: making the database.\n"
        assert not half.exists()
        assert data_major(home / "postgres")
        assert start_and_stop(home) == ""
