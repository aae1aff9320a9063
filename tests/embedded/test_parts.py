"""The supervisor's pure parts: paths, lines, back-off, versions, folders' modes, what a home remembers."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rota.embedded import layout as layouts
from rota.embedded import state
from rota.embedded.binaries import Postgres, choose_postgres
from rota.embedded.children import backoff, python_environment, workers
from rota.embedded.errors import CannotStart
from rota.embedded.listener import listen, local_url
from rota.embedded.output import LONGEST_LINE, Console, Line, LogFile, Splitter, understand
from rota.embedded.place import Owner, first_shut_folder, prepare
from rota.embedded.postgres import clear_leftovers, data_major
from rota.embedded.processes import Identity, identify, is_alive, members
from rota.env import read

NOBODY = Owner("nobody", 65534, 65534)


def silent(_: str) -> None:
    """Say nothing."""


# --- paths ---


@pytest.mark.parametrize("length", [10, 60, 80, 84, 90, 200])
def test_sockets_always_fit_into_the_kernels_limit(length: int) -> None:
    home = Path("/" + "h" * (length - 1))
    paths = layouts.layout(home, 1000)
    longest = len(str(paths.postgres_socket / ".s.PGSQL.5432.lock"))
    assert longest <= 103
    in_home = paths.sockets == home / "run"
    assert in_home == (length < 78)
    assert in_home or str(paths.sockets) == f"/tmp/rota-1000-{layouts.digest(home)}"


def test_a_home_remembers_that_its_data_lies_elsewhere(tmp_path: Path) -> None:
    assert layouts.recorded(tmp_path, 0).data == tmp_path
    (tmp_path / layouts.ELSEWHERE).write_text("/var/lib/rota/abc\n")
    paths = layouts.recorded(tmp_path, 0)
    assert paths.postgres_data == Path("/var/lib/rota/abc/postgres")
    assert paths.valkey_data == tmp_path / "valkey"


def test_the_first_folder_that_is_shut_is_named(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder in (inner, *inner.parents):
        if folder.is_relative_to(tmp_path):
            folder.chmod(0o755)
    (tmp_path / "a").chmod(0o700)
    shut = first_shut_folder(inner, NOBODY)
    assert shut is not None
    assert (tmp_path / "a").is_relative_to(shut)  # pytest's own folders above it may be shut too
    assert first_shut_folder(Path("/usr/lib"), NOBODY) is None


def test_a_prepared_home_is_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    paths = prepare(home, None, silent)
    for folder in (home, paths.logs, paths.jobs, paths.sockets, paths.postgres_socket):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert paths.secret_key.stat().st_mode & 0o777 == 0o600
    key = paths.secret_key.read_text()
    assert len(key) > 40
    prepare(home, None, silent)
    assert paths.secret_key.read_text() == key


def test_a_home_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CannotStart, match=r"Cannot make or use the folder .*file.*: .* Choose another home with ROTA_HOME="
    ):
        prepare(tmp_path / "file" / "home", None, silent)


def test_a_socket_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "theirs").mkdir()
    (home / "run").symlink_to(tmp_path / "theirs")
    with pytest.raises(CannotStart, match="belongs to somebody else or is no folder"):
        prepare(home, None, silent)


# --- PostgreSQL's versions and leftovers ---


def test_old_data_wants_its_own_version(tmp_path: Path) -> None:
    have = [Postgres(Path("/p18"), 18), Postgres(Path("/p16"), 16)]
    assert choose_postgres(have, None, tmp_path).major == 18
    assert choose_postgres(have, 16, tmp_path).major == 16
    with pytest.raises(
        CannotStart, match=r"was written by PostgreSQL 15, and here is only 18, 16\. .*ROTA_POSTGRES_BIN"
    ):
        choose_postgres(have, 15, tmp_path)
    with pytest.raises(CannotStart, match="There is no PostgreSQL 14 or newer on this machine"):
        choose_postgres([], None, tmp_path)


def test_a_folder_that_is_no_database_is_never_touched(tmp_path: Path) -> None:
    assert data_major(tmp_path / "none") is None
    with pytest.raises(CannotStart, match="is there but is no PostgreSQL data folder"):
        data_major(tmp_path)


def test_a_stale_pid_file_whose_number_is_somebody_elses_is_removed(tmp_path: Path) -> None:
    paths = layouts.layout(tmp_path, os.getuid())
    paths.postgres_data.mkdir()
    paths.postgres_socket.mkdir(parents=True)
    stale = [paths.postgres_data / "postmaster.pid", paths.postgres_socket / ".s.PGSQL.5432.lock"]
    for path in stale:
        path.write_text(f"{os.getpid()}\n{paths.postgres_data}\n")
    clear_leftovers(paths, silent)
    assert not any(path.exists() for path in stale)


def test_a_pid_file_of_a_process_that_is_gone_is_left_to_postgresql(tmp_path: Path) -> None:
    paths = layouts.layout(tmp_path, os.getuid())
    paths.postgres_data.mkdir()
    with subprocess.Popen(["true"]) as gone:
        pass
    (paths.postgres_data / "postmaster.pid").write_text(f"{gone.pid}\n")
    clear_leftovers(paths, silent)
    assert (paths.postgres_data / "postmaster.pid").exists()


def test_whatever_still_works_in_the_data_is_ended_before_a_new_start(tmp_path: Path) -> None:
    paths = layouts.layout(tmp_path, os.getuid())
    paths.postgres_data.mkdir()
    with subprocess.Popen(["sleep", "30"], cwd=paths.postgres_data) as old:
        (paths.postgres_data / "postmaster.pid").write_text(f"{old.pid}\n")
        lines: list[str] = []
        threading.Thread(target=old.wait).start()  # as init would
        clear_leftovers(paths, lines.append)
    assert old.returncode == -signal.SIGINT
    assert lines == ["PostgreSQL of an earlier run is still there: stopping it."]


# --- lines ---


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ('{"event": "placed", "level": "info", "timestamp": "t", "job": 7}', Line(20, "placed job=7")),
        ('{"event": "no", "level": "error", "exception": "Traceback\\nValueError: x"}', Line(40, "no | ValueError: x")),
        ('{"other": 1}', Line(20, '{"other": 1}')),
        ("{broken", Line(20, "{broken")),
        ("LOG:  database system is ready", Line(20, "database system is ready")),
        ("FATAL:  terminating connection due to administrator command",
         Line(20, "terminating connection due to administrator command")),
        ("FATAL:  password authentication failed", Line(40, "password authentication failed")),
        ("PANIC:  could not write", Line(50, "could not write")),
        ("9:M 29 Nov 2026 16:42:46.123 * Ready to accept connections", Line(20, "Ready to accept connections")),
        ("9:M 29 Nov 2026 16:42:46.123 # Out of memory", Line(30, "Out of memory")),
        ("9:M 29 Nov 2026 16:42:46.123 # WARNING Memory overcommit", Line(20, "WARNING Memory overcommit")),
        ("Traceback (most recent call last):", Line(40, "Traceback (most recent call last):")),
        ("anything", Line(20, "anything")),
    ],
)  # fmt: skip
def test_lines_of_all_children_are_understood(raw: str, line: Line) -> None:
    assert understand(raw) == line


def test_lines_are_cut_from_any_pieces_and_never_grow_without_end() -> None:
    splitter = Splitter()
    assert list(splitter.feed("ä\r\nb".encode()[:1])) == []
    assert list(splitter.feed("ä\r\nb".encode()[1:])) == ["ä"]
    assert list(splitter.feed(b"c\n\n")) == ["bc", ""]
    endless = list(splitter.feed(b"x" * (2 * LONGEST_LINE + 5)))
    assert [len(line) for line in endless] == [LONGEST_LINE, LONGEST_LINE]
    assert list(splitter.finish()) == ["xxxxx"]
    assert list(splitter.finish()) == []


def test_the_terminal_shows_what_is_important() -> None:
    quiet, chatty = io.StringIO(), io.StringIO()
    for stream, verbose in ((quiet, False), (chatty, True)):
        console = Console(stream, verbose=verbose)
        console.say("up")
        console.phase("a phase")
        console.child("web", Line(20, "fine"))
        console.child("web", Line(30, "odd"))
    assert quiet.getvalue().splitlines() == ["up", "      web | odd"]
    assert chatty.getvalue().splitlines() == ["up", "- a phase", "      web | fine", "      web | odd"]


def test_logs_are_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.embedded.output.FILE_BYTES", 1000)
    log = LogFile(tmp_path / "web.log")
    for number in range(200):
        log.write(f"line {number}")
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["web.log", "web.log.1", "web.log.2", "web.log.3", "web.log.4"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert (tmp_path / "web.log").read_text().endswith("line 199\n")


# --- children ---


def test_the_wait_before_a_restart_doubles_up_to_half_a_minute() -> None:
    assert [backoff(failures) for failures in range(5)] == [0.2, 0.4, 0.8, 1.6, 3.2]
    assert backoff(8) == backoff(10_000) == 30.0


def test_each_tick_group_has_a_solo_process_and_nothing_else_reads_its_queue() -> None:
    env = read({"ROTA_TICK_GROUPS": "east,west"})
    children = {child.name: child for child in workers(env, {}, 7)}
    assert list(children) == ["web", "tick-east", "tick-west", "work", "beat"]
    for name, child in children.items():
        queues = child.command[child.command.index("-Q") + 1].split(",") if "-Q" in child.command else []
        if name.startswith("tick-"):
            assert queues == [name]
            assert child.command[child.command.index("-P") + 1] == "solo"
        else:
            assert not any(queue.startswith("tick") for queue in queues)


def test_children_get_one_spelling_of_the_configuration(tmp_path: Path) -> None:
    env = read({"ROTA_HOME": str(tmp_path), "PORT": "9000"})
    made = python_environment(env, {"PYTHONPATH": "/x", "PYTHONDONTWRITEBYTECODE": "1", "A": "b"})
    assert (made["PORT"], made["ROTA_HOME"], made["A"]) == ("9000", str(tmp_path), "b")
    assert made["PYTHONPATH"].endswith(":/x")
    assert "PYTHONDONTWRITEBYTECODE" not in made
    assert made["PYTHONPYCACHEPREFIX"].endswith("/bytecode")


# --- processes and state ---


def test_a_number_that_was_given_again_is_another_process() -> None:
    me = identify(os.getpid())
    assert is_alive(me)
    assert not is_alive(Identity(me.pid, str(int(me.started) - 1)))


def test_members_of_a_session_leave_out_who_has_a_session_of_his_own() -> None:
    code = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '30']);"
        "subprocess.Popen(['sleep', '30'], start_new_session=True); print('.', flush=True); time.sleep(30)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        leader.stdout.read(1)
        children = Path(f"/proc/{leader.pid}/task/{leader.pid}/children").read_text().split()
        mine = members(leader.pid)
        for pid in (*map(int, children), leader.pid):
            os.kill(pid, signal.SIGKILL)
    assert leader.pid in mine
    assert len(mine) == 2
    assert len(children) == 2


def test_state_survives_a_round_trip_and_garbage_is_no_state(tmp_path: Path) -> None:
    one = state.State(Identity(1, "5"), "http://x", {"web": Identity(2, "6")})
    state.save(tmp_path / "run.json", one)
    assert state.load(tmp_path / "run.json") == one
    for garbage in ("", "[]", "{}", '{"supervisor": 1}', '{"supervisor": [1, 2], "url": "", "children": []}'):
        (tmp_path / "run.json").write_text(garbage)
        assert state.load(tmp_path / "run.json") is None


def test_a_home_has_one_supervisor(tmp_path: Path) -> None:
    assert not state.is_locked(tmp_path / "up.lock")
    held = state.take_lock(tmp_path / "up.lock")
    assert held is not None
    assert state.is_locked(tmp_path / "up.lock")
    assert state.take_lock(tmp_path / "up.lock") is None
    os.close(held)
    assert not state.is_locked(tmp_path / "up.lock")


def test_the_command_lines_token_is_kept_until_there_is_a_new_one(tmp_path: Path) -> None:
    paths = layouts.layout(tmp_path, 0)
    state.write_cli(paths, "http://a", "secret")
    state.write_cli(paths, "http://b", None)
    assert paths.cli.read_text() == '{"url": "http://b", "token": "secret"}\n'
    assert paths.cli.stat().st_mode & 0o777 == 0o600


# --- the port ---


def test_a_taken_port_is_said_with_a_free_one() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotStart, match=rf"^Port {port} is taken by another program\. .*PORT=\d+ make run$"):
            listen("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_said() -> None:
    with pytest.raises(CannotStart, match=r"^ROTA_BIND: cannot listen on 192\.0\.2\.1, port 8000: "):
        listen("192.0.2.1", 8000)


@pytest.mark.parametrize(
    ("bind", "url"),
    [("0.0.0.0", "http://127.0.0.1:80"), ("::", "http://[::1]:80"), ("10.0.0.1", "http://10.0.0.1:80")],
)
def test_the_address_for_this_machine(bind: str, url: str) -> None:
    assert local_url(bind, 80) == url
