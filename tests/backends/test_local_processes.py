"""Local backend: whatever happens to shims, commands and servers, nothing is left behind and the truth is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rota_client.shim import processes, records
from scheduler.backends.base import Cause, PermanentError, Phase
from scheduler.backends.local import LocalBackend, RunAs, folders
from tests.backends.conftest import processes_of
from tests.backends.harness import LocalHarness, ended, report, running

pytestmark = pytest.mark.timeout(30)

# Forks twice with a session of its own in between, closes everything, ignores SIGTERM, and says where it lives.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.closerange(0, 100)
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(300)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


def launch_daemon(local: LocalHarness, seconds: float, **options: float) -> int:
    """Launch job.1, whose command leaves a daemon and then goes on for some seconds; answers the daemon's pid."""
    pid_file = local.root / "daemon.pid"
    limit = options.get("time_limit_s")
    command = (sys.executable, "-c", DAEMON, str(pid_file), str(seconds))
    local.backend.launch(local.command("job.1", *command, grace_s=0.5, time_limit_s=limit))
    local.wait_until(pid_file.exists)
    return int(pid_file.read_text())


def gone(pid: int) -> bool:
    """No such process, or only its zombie in somebody else's care."""
    seen = processes.stat(pid)
    return seen is None or seen.dead


def pids(local: LocalHarness, name: str, attempt: str = "job.1", rank: int = 0) -> int:
    """The pid in a record of the first attempt's replica."""
    record = records.read(f"{local.root}/attempts/{attempt}/{rank}/{name}")
    assert record is not None
    return int(records.first(record, "pid"))


def test_a_daemon_is_ended_with_its_command(local: LocalHarness) -> None:
    daemon = launch_daemon(local, 0)
    seen = ended(local, "job.1")
    assert (seen.exit_code, seen.cause) == (0, Cause.SELF)
    assert gone(daemon)


def test_a_daemon_is_ended_by_stop(local: LocalHarness) -> None:
    daemon = launch_daemon(local, 60)
    local.backend.stop("job.1")
    assert ended(local, "job.1").cause is Cause.STOPPED
    assert gone(daemon)


def test_a_daemon_is_ended_at_the_time_limit(local: LocalHarness) -> None:
    daemon = launch_daemon(local, 60, time_limit_s=1.0)
    seen = ended(local, "job.1")
    assert (seen.cause, seen.note) == (Cause.TIME_LIMIT, "time limit of 1 s")
    assert gone(daemon)


def test_a_whole_crowd_of_stubborn_processes_is_ended(local: LocalHarness) -> None:
    crowd = "trap '' TERM; for i in 1 2 3 4 5 6 7 8; do (while :; do sleep 1; done) & done; echo up; wait"
    local.backend.launch(local.command("job.1", "sh", "-c", crowd))
    local.wait_until(lambda: "up" in local.text("job.1"))
    local.backend.stop("job.1", grace_s=0.1)
    assert ended(local, "job.1").signal == signal.SIGKILL
    assert not [line for line in processes_of(local.root) if "sleep" in line or "trap" in line]


def test_a_killed_command_is_seen(local: LocalHarness) -> None:
    local.backend.launch(local.command("job.1", "sleep", "60"))
    running(local, "job.1")
    os.kill(pids(local, records.STARTED), signal.SIGKILL)
    seen = ended(local, "job.1")
    assert (seen.phase, seen.exit_code, seen.signal, seen.cause) == (Phase.EXITED, 137, 9, Cause.SELF)


def test_a_killed_shim_is_lost_and_its_daemon_ended(local: LocalHarness) -> None:
    daemon = launch_daemon(local, 60)
    running(local, "job.1")
    command = pids(local, records.STARTED)
    os.kill(pids(local, records.SHIM), signal.SIGKILL)
    seen = ended(local, "job.1")
    assert (seen.phase, seen.exit_code, seen.cause, seen.note) == (Phase.LOST, None, Cause.LOST, "its shim was killed")
    assert gone(daemon)
    assert gone(command)
    local.backend.launch(local.command("job.1", "true"))  # ended is ended
    assert report(local.backend, "job.1") == seen


def test_after_a_killed_shim_its_session_is_ended_too(local: LocalHarness) -> None:
    """A process that has dropped the mark from its environment is still in the command's session."""
    local.backend.launch(local.command("job.1", "sh", "-c", "env -i sleep 61 & echo $! up; wait"))
    running(local, "job.1")
    local.wait_until(lambda: "up" in local.text("job.1"))
    child = int(local.text("job.1").split()[0])
    local.wait_until(lambda: processes.environment(child) == b"")
    os.kill(pids(local, records.SHIM), signal.SIGKILL)
    assert ended(local, "job.1").phase is Phase.LOST
    assert gone(child)


def test_a_killed_shim_ends_its_gang(local: LocalHarness) -> None:
    local.backend.launch(local.command("gang.1", "sleep", "60", replicas=2))
    running(local, "gang.1")
    os.kill(pids(local, records.SHIM, "gang.1", 1), signal.SIGKILL)
    seen = ended(local, "gang.1")
    assert (seen.phase, seen.cause) == (Phase.LOST, Cause.LOST)
    assert [one.cause for one in seen.replicas] == [Cause.PEER, Cause.LOST]


def test_a_terminated_shim_ends_its_command_in_order(local: LocalHarness) -> None:
    local.backend.launch(local.command("gang.1", "sleep", "60", replicas=2))
    running(local, "gang.1")
    os.kill(pids(local, records.SHIM, "gang.1", 0), signal.SIGTERM)
    seen = ended(local, "gang.1")
    assert (seen.phase, seen.cause, seen.signal) == (Phase.EXITED, Cause.STOPPED, 15)
    assert "SIGTERM" in seen.note


def test_it_is_adopted_after_the_server_has_gone(local: LocalHarness) -> None:
    """The launching process ends before its job does: another one learns the true exit code."""
    program = f"""
from scheduler.backends.base import Launch, ReplicaLaunch
from scheduler.backends.local import LocalBackend
backend = LocalBackend({str(local.root)!r})
order = ReplicaLaunch("main", 0, 0, backend.node.name, (0,), 1)
backend.launch(Launch("job.1", "job", (order,), ("sh", "-c", "sleep 0.8; exit 41")))
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=20)
    seen = report(local.backend, "job.1")
    assert seen is not None
    assert not seen.phase.ended
    last = ended(local, "job.1")
    assert (last.phase, last.exit_code) == (Phase.EXITED, 41)


@pytest.mark.parametrize("field", ["start", "boot"])
def test_a_reused_pid_is_not_taken_for_the_shim(local: LocalHarness, field: str) -> None:
    """An innocent process that got the shim's pid later is neither seen as the shim nor signalled."""
    local.backend.launch(local.command("job.1", "true"))
    ended(local, "job.1")
    folder = local.root / "attempts" / "job.1"
    with subprocess.Popen(["sleep", "60"]) as innocent:
        who = processes.identify(innocent.pid, processes.boot_id())
        assert who is not None
        pairs = dict(who.pairs()) | {field: "1"}
        records.write(f"{folder}/0/{records.SHIM}", list(pairs.items()))
        records.write(f"{folder}/0/{records.STARTED}", [*pairs.items(), ("at", repr(time.time()))])
        (folder / "0" / records.EXIT).unlink()
        second = local.restarted()
        second.stop("job.1", grace_s=0)
        seen = ended(local, "job.1", backend=second)
        assert seen.phase is Phase.LOST
        assert innocent.poll() is None
        innocent.kill()


def test_two_roots_with_the_same_keys_leave_each_other_alone(local: LocalHarness, tmp_path: Path) -> None:
    other = LocalHarness(tmp_path / "other")
    for one in (local, other):
        one.backend.launch(one.command("job.1", "sleep", "60"))
        running(one, "job.1")
    os.kill(pids(local, records.SHIM), signal.SIGKILL)
    assert ended(local, "job.1").phase is Phase.LOST
    assert running(other, "job.1").phase is Phase.RUNNING
    other.backend.stop("job.1", grace_s=0)
    assert ended(other, "job.1").cause is Cause.STOPPED


def _interrupted(local: LocalHarness) -> None:
    """A launch of job.1 by a server that died between placing the folder and starting the shim."""
    first = local.restarted()
    first._spawn = lambda *_: None  # type: ignore[method-assign]
    first.launch(local.command("job.1", "sh", "-c", "echo once"))


def test_an_interrupted_launch_is_completed_by_the_next(local: LocalHarness) -> None:
    _interrupted(local)
    seen = report(local.backend, "job.1")
    assert seen is not None
    assert seen.phase is Phase.STARTING
    local.backend.launch(local.command("job.1", "sh", "-c", "echo once"))
    assert ended(local, "job.1").exit_code == 0
    assert local.text("job.1") == "once\n"


def test_an_interrupted_launch_can_be_stopped(local: LocalHarness) -> None:
    _interrupted(local)
    local.backend.stop("job.1")
    assert ended(local, "job.1").phase is Phase.LOST
    local.backend.launch(local.command("job.1", "sh", "-c", "echo once"))
    assert local.text("job.1") == ""


def test_a_shim_that_comes_after_the_stop_starts_nothing(local: LocalHarness) -> None:
    _interrupted(local)
    folder = local.root / "attempts" / "job.1"
    records.write(f"{folder}/{records.STOP}", [("cause", "stopped"), ("why", "changed my mind"), ("grace_s", "1")])
    local.backend._spawn("job.1", 0, folder / "0")
    seen = ended(local, "job.1")
    assert (seen.phase, seen.cause, seen.note, seen.started) == (
        Phase.EXITED,
        Cause.STOPPED,
        "changed my mind",
        None,
    )
    assert local.text("job.1") == ""


def test_two_shims_of_one_replica_start_it_once(local: LocalHarness) -> None:
    _interrupted(local)
    for _ in range(3):
        local.backend._spawn("job.1", 0, local.root / "attempts" / "job.1" / "0")
    assert ended(local, "job.1").exit_code == 0
    assert local.text("job.1") == "once\n"


def test_a_damaged_order_is_lost_and_can_be_forgotten(local: LocalHarness) -> None:
    local.backend.launch(local.command("job.1", "true"))
    ended(local, "job.1")
    (local.root / "attempts" / "job.1" / folders.ORDER).write_bytes(b"")
    second = local.restarted()
    seen = report(second, "job.1")
    assert seen is not None
    assert (seen.phase, seen.note) == (Phase.LOST, "its record on disk is damaged")
    second.stop("job.1")
    second.forget("job.1")
    assert second.observe().attempts == ()


def test_a_damaged_exit_record_is_lost_and_hinders_nobody(local: LocalHarness) -> None:
    for name in ("job.1", "job.2"):
        local.backend.launch(local.command(name, "true"))
        ended(local, name)
    (local.root / "attempts" / "job.1" / "0" / records.EXIT).write_bytes(b"cause=self\ncode=\nat=1.0\n")
    second = local.restarted()
    assert [one.phase for one in second.observe().attempts] == [Phase.LOST, Phase.EXITED]


def test_what_a_dying_server_left_half_made_is_removed_later(local: LocalHarness) -> None:
    draft = local.root / "attempts" / ".new-job.1-cafe"
    draft.mkdir()
    local.restarted()
    assert draft.exists()
    os.utime(draft, (1, 1))
    assert local.restarted().observe().attempts == ()
    assert not draft.exists()


def test_the_checkpoint_signal_comes_first(local: LocalHarness) -> None:
    command = "trap 'echo saving; exit 0' USR1; trap 'echo term' TERM; echo up; while :; do sleep 0.05; done"
    local.backend.launch(local.command("job.1", "sh", "-c", command, checkpoint_signal=signal.SIGUSR1))
    local.wait_until(lambda: "up" in local.text("job.1"))
    local.backend.stop("job.1")
    seen = ended(local, "job.1")
    assert (seen.exit_code, seen.cause) == (0, Cause.STOPPED)
    assert local.text("job.1") == "up\nsaving\n"


def test_who_does_not_heed_the_checkpoint_signal_gets_sigterm(local: LocalHarness) -> None:
    command = "trap 'echo saving' USR1; trap 'echo term; exit 4' TERM; echo up; while :; do sleep 0.05; done"
    local.backend.launch(local.command("job.1", "sh", "-c", command, grace_s=1, checkpoint_signal=signal.SIGUSR1))
    local.wait_until(lambda: "up" in local.text("job.1"))
    local.backend.stop("job.1")
    assert ended(local, "job.1").exit_code == 4
    # The shell may remark on its own child that SIGTERM ended, too.
    assert [line for line in local.text("job.1").split() if line != "Terminated"] == ["up", "saving", "term"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give others' rights")
def test_commands_run_with_the_rights_they_were_given(local: LocalHarness) -> None:
    local.root.parent.chmod(0o755)
    backend = LocalBackend(local.root, run_as=RunAs(65534, 65534, (65534,)))
    command = "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; cat /etc/shadow; sleep 300 & exec sleep 300"
    order = local.command("job.1", "sh", "-c", command, cwd="/")
    backend.launch(order)
    local.wait_until(lambda: "denied" in local.text("job.1"))
    assert local.text("job.1").split()[:5] == ["65534", "65534", "65534", "NoNewPrivs:", "1"]
    backend.stop("job.1", grace_s=1)
    assert ended(local, "job.1").cause is Cause.STOPPED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give others' rights")
def test_a_folder_of_the_path_that_is_closed_to_it_has_no_program_for_a_job(local: LocalHarness) -> None:
    local.root.parent.chmod(0o755)
    closed = local.root.parent / "closed"
    closed.mkdir(mode=0o700)
    backend = LocalBackend(local.root, run_as=RunAs(65534, 65534, (65534,)))
    backend.launch(local.command("job.1", "no-such-program", env={"PATH": f"{closed}:/usr/bin"}, cwd="/"))
    seen = ended(local, "job.1")
    assert (seen.exit_code, seen.note) == (127, "command no-such-program: not found")


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(PermanentError, match="nobody-of-that-name"):
        RunAs.of("nobody-of-that-name")
    assert RunAs.of("root").uid == 0
