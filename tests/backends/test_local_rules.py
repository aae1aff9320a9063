"""Local backend: the pure parts, as tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_client.shim import output, records
from scheduler.backends import registry
from scheduler.backends.base import Backend, Cause, PermanentError, Phase, ReplicaReport, refused_env
from scheduler.backends.local import LocalBackend, hunt, reports

S, P, R, X, L = "starting", "peer", "running", "exited", "lost"


def replica(rank: int, phase: str, code: int | None = None, cause: str = "") -> ReplicaReport:
    """A replica that entered its phase at 10 + rank."""
    return ReplicaReport(rank, "main", rank, "n", Phase(phase), 10.0 + rank, code, cause=Cause(cause))


@pytest.mark.parametrize(
    ("replicas", "decided", "phase", "code", "cause"),
    [
        # one replica
        ([(S,)], [0], S, None, ""),
        ([(R,)], [0], R, None, ""),
        ([(X, 0, "self")], [1], X, 0, "self"),
        ([(X, 3, "self")], [1], X, 3, "self"),
        ([(X, 0, "stopped")], [1], X, 0, "stopped"),
        ([(X, 143, "time_limit")], [1], X, 143, "time_limit"),
        ([(L, None, "lost")], [1], L, None, "lost"),
        # not all of it
        ([(R,), (S,)], [0, 0], S, None, ""),
        ([(X, 0, "self"), (R,)], [1, 0], R, None, ""),
        ([(X, 7, "self"), (R,)], [1, 0], R, None, ""),
        # the first that failed by itself speaks, whatever its rank
        ([(X, 7, "self"), (X, 8, "self")], [2, 1], X, 8, "self"),
        ([(X, 0, "self"), (X, 9, "self"), (X, 143, P)], [1, 2, 3], X, 9, "self"),
        ([(X, 143, P), (X, 5, "self")], [1, 1], X, 5, "self"),
        # a replica that ended well before the rest was stopped is no news
        ([(X, 0, "self"), (X, 143, "stopped")], [1, 2], X, 143, "stopped"),
        # of stopped ones the first that did not end with 0 speaks
        ([(X, 0, "stopped"), (X, 130, "stopped"), (X, 137, "stopped")], [1, 3, 2], X, 137, "stopped"),
        ([(X, 0, "stopped"), (X, 0, "stopped")], [1, 2], X, 0, "stopped"),
        # lost first, or failed first
        ([(L, None, "lost"), (X, 143, P)], [1, 2], L, None, "lost"),
        ([(X, 4, "self"), (L, None, "lost")], [1, 2], X, 4, "self"),
    ],
)
def test_what_an_attempt_is_by_its_replicas(
    replicas: list[tuple[str, int | None, str]], decided: list[float], phase: str, code: int | None, cause: str
) -> None:
    parts = tuple(replica(rank, *fields) for rank, fields in enumerate(replicas))
    started = None if all(fields[0] == S for fields in replicas) else 10.5
    seen = reports.assemble("a.1", 5.0, started, parts, tuple(decided))
    assert (seen.phase, seen.exit_code, seen.cause) == (phase, code, cause)
    assert seen.at == {S: 5.0, R: 10.5}.get(phase, 9.0 + len(parts))


keys = st.text(st.characters(codec="ascii", exclude_characters="=\n\\", exclude_categories=["Cc"]), min_size=1)
values = st.binary().map(os.fsdecode)


@given(st.lists(st.tuples(keys, values), min_size=1))
def test_records_come_back_as_they_were(pairs: list[tuple[str, str]]) -> None:
    expected: dict[str, list[str]] = {}
    for key, value in pairs:
        expected.setdefault(key, []).append(value)
    assert records.decode(records.encode(pairs)) == expected


def test_a_torn_record_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "exit"
    for data in (b"", b"code", b"\0\0\0\n"):
        path.write_bytes(data)
        assert records.read(str(path)) is None
    assert records.read(str(tmp_path / "none")) is None


def test_the_first_writer_wins_where_asked(tmp_path: Path) -> None:
    path = str(tmp_path / "stop")
    assert records.write(path, [("why", "first")], replace=False)
    assert not records.write(path, [("why", "second")], replace=False)
    assert records.read(path) == {"why": ["first"]}
    assert records.write(path, [("why", "third")])
    assert records.read(path) == {"why": ["third"]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["stop"]


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=30),
    size=st.integers(1, 50),
    keep=st.integers(1, 4),
)
def test_rotation_keeps_the_end_of_the_output(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], size: int, keep: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    writer = output.Writer(str(folder), size=size, keep=keep)
    for piece in pieces:
        writer.write(piece)
    writer.close()
    whole = b"".join(pieces)
    begins = output.segments(str(folder))
    kept = b"".join((folder / output.segment(begin)).read_bytes() for begin in begins)
    assert whole.endswith(kept)
    assert len(begins) <= keep
    assert not whole or begins[0] == len(whole) - len(kept)
    assert len(kept) >= min(len(whole), size * (keep - 1) + 1)


@pytest.mark.parametrize(
    ("environment", "token"),
    [
        (b"", None),
        (b"PATH=/bin\0ROTA_SHIM=x/a.1/0\0HOME=/\0", "x/a.1/0"),
        (b"MY_ROTA_SHIM=x/a.1/0\0", None),
        (b"ROTA_SHIM=\0", ""),
    ],
)
def test_the_mark_in_an_environment(environment: bytes, token: str | None) -> None:
    assert hunt.token_of(environment) == token


@pytest.mark.parametrize(
    ("env", "refused"),
    [
        ({}, None),
        ({"PATH": "x", "ROTATION": "1", "rota_x": "1"}, None),
        ({"A": "1", "ROTA_GPUS": "0"}, "ROTA_GPUS"),
        ({"LD_PRELOAD": "x"}, "LD_PRELOAD"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "NVIDIA_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_variables_that_a_job_may_not_set(env: dict[str, str], refused: str | None) -> None:
    assert refused_env(env) == refused


def test_the_registry_makes_backends_by_name(tmp_path: Path) -> None:
    backend = registry.create("local", root=tmp_path)
    assert isinstance(backend, LocalBackend)
    assert isinstance(backend, Backend)
    with pytest.raises(PermanentError, match="'slurmish' is unknown, there are local"):
        registry.create("slurmish")
