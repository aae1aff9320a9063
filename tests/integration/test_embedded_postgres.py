"""Making a database with the wheel's programs where PostgreSQL's user can reach neither them nor the home."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.embedded.binaries import postgres_installations
from rota.embedded.place import database_owner, prepare
from rota.embedded.postgres import data_major, server
from tests.integration.running import a_home


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand PostgreSQL to another user")
def test_programs_out_of_reach_are_copied_beside_the_data(hidden_programs: Path) -> None:
    said: list[str] = []
    with a_home(reachable=False) as home:
        owner = database_owner(None, said.append)
        assert owner is not None
        paths = prepare(home, owner, said.append)
        one = server(paths, owner, hidden_programs, said.append, durable=False)
        assert one.program.folder.is_relative_to(paths.data / "programs")
        assert data_major(paths.postgres_data) == one.program.major
        assert any("cannot reach PostgreSQL's programs in" in line for line in said)
        again = server(paths, owner, hidden_programs, said.append, durable=False)
        assert again == one


def test_a_broken_off_first_start_is_begun_anew() -> None:
    with a_home() as home:
        owner = database_owner(None, lambda _: None)
        paths = prepare(home, owner, lambda _: None)
        half = paths.data / "postgres.new"
        half.mkdir()
        (half / "PG_VERSION").write_text("18\n")
        one = server(paths, owner, None, lambda _: None, durable=False)
        assert not half.exists()
        assert data_major(paths.postgres_data) == one.program.major
