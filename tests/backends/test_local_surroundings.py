"""Local backend: what a command finds around it, its output, and this machine's cards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rota_client import nvml
from rota_client.shim import output, records
from scheduler.backends.base import Launch, PermanentError, Phase, ReplicaLaunch, TransientError
from scheduler.backends.local import LocalBackend, hardware, orders
from tests.backends.harness import LocalHarness, ended

pytestmark = pytest.mark.timeout(30)

TALK = """
import os, socket, time
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.create_server(where)
    peer, _ = server.accept()
    print("rank 0 got", peer.recv(100).decode())
    peer.sendall(b"hello from rank 0")
else:
    while True:
        try:
            peer = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    peer.sendall(b"hello from rank 1")
    print("rank 1 got", peer.recv(100).decode())
"""


def environment(local: LocalHarness, attempt: str, rank: int = 0) -> dict[str, str]:
    """What `env -0` has printed."""
    return dict(pair.split("=", 1) for pair in local.text(attempt, rank).split("\0") if pair)


def test_the_whole_environment(local: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"SECRET_KEY": "s", "DATABASE_URL": "d", "LANG": "C.UTF-8", "LC_TIME": "C"}.items():
        monkeypatch.setenv(key, value)
    backend = local.restarted()
    replicas = (
        ReplicaLaunch("actor", 0, 0, local.node, gpus=(2, 0), gpu_count=2),
        ReplicaLaunch("learner", 0, 1, local.node, gpus=(1,), gpu_count=1, mib=5000),
        ReplicaLaunch("learner", 1, 2, local.node),
    )
    user = {"MINE": "a=b\nc\\n", "MASTER_PORT": "4711", "UMLAUT": "ü"}
    backend.launch(Launch("job.7", "job", replicas, ("env", "-0"), env=user, cwd="/"))
    assert ended(local, "job.7").exit_code == 0
    uuid = [card.uuid for card in backend.node.gpus]
    common = user | {
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "ROTA_JOB": "job",
        "ROTA_ATTEMPT": "job.7",
        "ROTA_NODE": local.node,
        "LC_TIME": "C",
    }
    own: tuple[dict[str, str], ...] = (
        {"RANK": "0", "ROTA_GROUP": "actor", "ROTA_REPLICA": "0", "ROTA_GPUS": "2,0", "ROTA_VRAM_MIB": "24576"},
        {"RANK": "1", "ROTA_GROUP": "learner", "ROTA_REPLICA": "0", "ROTA_GPUS": "1", "ROTA_VRAM_MIB": "5000"},
        {"RANK": "2", "ROTA_GROUP": "learner", "ROTA_REPLICA": "1", "ROTA_GPUS": "", "ROTA_VRAM_MIB": "0"},
    )
    visible = (f"{uuid[2]},{uuid[0]}", uuid[1], "")
    for rank, cards in enumerate(visible):
        found = environment(local, "job.7", rank)
        expected = common | own[rank] | {"ROTA_RANK": str(rank), "CUDA_VISIBLE_DEVICES": cards}
        expected["NVIDIA_VISIBLE_DEVICES"] = cards or "void"
        assert expected.items() <= found.items()
        inherited = found.keys() - expected.keys() - {"ROTA_SHIM"}
        assert inherited <= {key for key in os.environ if key in orders._PASSED or key.startswith("LC_")}
        assert {"PATH", "HOME"} <= inherited | {"HOME"}


def test_a_gang_of_two_exchanges_messages(local: LocalHarness) -> None:
    local.backend.launch(local.command("gang.1", sys.executable, "-c", TALK, replicas=2))
    assert ended(local, "gang.1").exit_code == 0
    assert local.text("gang.1", 0) == "rank 0 got hello from rank 1\n"
    assert local.text("gang.1", 1) == "rank 1 got hello from rank 0\n"


def test_live_attempts_have_ports_of_their_own(local: LocalHarness) -> None:
    for number in range(3):
        local.backend.launch(local.command(f"job.{number}", "sh", "-c", "echo $MASTER_PORT; sleep 60"))
    local.wait_until(lambda: all(local.text(f"job.{number}") for number in range(3)))
    ports = [int(local.text(f"job.{number}")) for number in range(3)]
    assert len(set(ports)) == 3
    assert all(20000 <= port < 30000 for port in ports)
    assert orders.free_port("job.0", taken=ports) not in ports
    with pytest.raises(TransientError, match="no free port"):
        orders.free_port("job.0", taken=range(20000, 30000))


def test_no_input_and_no_files_of_the_server(local: LocalHarness) -> None:
    leaked = os.open(local.root, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        # `ls` itself opens the folder that it lists, as 3.
        local.backend.launch(local.command("job.1", "sh", "-c", "readlink /proc/self/fd/0; ls /proc/self/fd; cat"))
        assert ended(local, "job.1").exit_code == 0
    finally:
        os.close(leaked)
    assert local.text("job.1").split() == ["/dev/null", "0", "1", "2", "3"]


def test_signals_and_session_are_a_commands_own(local: LocalHarness) -> None:
    program = (
        "import os; s = dict(line.split(':', 1) for line in open('/proc/self/status')); "
        "print(s['SigBlk'].strip(), s['SigIgn'].strip(), os.getsid(0) == os.getpgid(0) == os.getpid())"
    )
    local.backend.launch(local.command("job.1", "sh", "-c", f'exec {sys.executable} -c "{program}"'))
    assert ended(local, "job.1").exit_code == 0
    blocked, ignored, leader = local.text("job.1").split()
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25); 32 and 33 are the C library's own.
    assert (int(blocked, 16), int(ignored, 16) & 0x7FFF_FFFF, leader) == (0, 1 << 12 | 1 << 24, "True")


@pytest.mark.parametrize(
    ("command", "cwd", "code", "line"),
    [
        (("no-such-command-here",), None, 127, "command no-such-command-here: not found"),
        (("/etc/passwd",), None, 126, "command /etc/passwd: Permission denied"),
        (("true",), "/no/such/folder", 127, "working directory /no/such/folder: not found"),
        (("true",), "/etc/passwd", 126, "working directory /etc/passwd: Not a directory"),
    ],
)
def test_what_cannot_be_started_ends_with_a_word(
    local: LocalHarness, command: tuple[str, ...], cwd: str | None, code: int, line: str
) -> None:
    local.backend.launch(local.command("job.1", *command, cwd=cwd))
    seen = ended(local, "job.1")
    assert (seen.phase, seen.exit_code, seen.note, seen.started) == (Phase.EXITED, code, line, None)
    assert local.text("job.1") == f"[rota: {line}]\n"


def test_the_output_rotates_and_offsets_go_on(local: LocalHarness) -> None:
    """C73. Segments of 64 KiB, three of them: of 40,000 lines of 10 bytes only the last stay, with their offsets."""
    program = "print('\\n'.join(f'{n:09d}' for n in range(40000)))"
    local.backend.launch(local.command("job.1", sys.executable, "-c", program))
    assert ended(local, "job.1").exit_code == 0
    offset, text = 0, b""
    first = local.backend.logs("job.1", limit=1000)
    assert first.offset > 0
    while True:
        chunk = local.backend.logs("job.1", offset=offset, limit=7000)
        assert chunk.offset == (first.offset if offset == 0 else offset)
        text += chunk.data
        offset = chunk.next_offset
        if chunk.eof:
            break
    assert offset == 400_000
    assert len(text) == 400_000 - first.offset
    assert 2 * 65536 < len(text) <= 3 * 65536
    lines = text[-first.offset % 10 :].split()
    assert [int(line) for line in lines] == list(range(40_000 - len(lines), 40_000))
    sizes = [file.stat().st_size for file in (local.root / "attempts" / "job.1" / "0").glob("output.*.log")]
    assert max(sizes) <= 65536


def test_a_job_goes_on_when_its_log_cannot_be_written(local: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = LocalBackend._spawn

    def obstructed(self: LocalBackend, attempt: str, rank: int, folder: Path) -> None:
        (folder / output.segment(0)).symlink_to("/dev/full")
        spawn(self, attempt, rank, folder)

    monkeypatch.setattr(LocalBackend, "_spawn", obstructed)
    local.backend.launch(local.command("job.1", "sh", "-c", "echo hello; sleep 0.2; echo again; exit 6"))
    assert ended(local, "job.1").exit_code == 6
    record = records.read(f"{local.root}/attempts/job.1/0/{records.EXIT}")
    assert record is not None
    assert records.first(record, "output_lost") == "12"


def test_lost_output_is_told_once_there_is_room_again(tmp_path: Path) -> None:
    writer = output.Writer(str(tmp_path), size=1000, keep=2)
    full = tmp_path / output.segment(0)
    full.symlink_to("/dev/full")
    writer.write(b"x" * 70)
    writer.write(b"y" * 7)
    full.unlink()
    writer.write(b"z")
    writer.close()
    assert full.read_bytes() == b"\n[rota: 77 bytes of output lost: No space left on device]\nz"
    assert writer.lost == 77


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"attempt": "../x"}, "attempt"),
        ({"attempt": ".x"}, "attempt"),
        ({"command": ()}, "command"),
        ({"command": ("a\0b",)}, "command"),
        ({"cwd": "relative"}, "cwd"),
        ({"grace_s": -1.0}, "grace_s"),
        ({"time_limit_s": float("nan")}, "time_limit_s"),
        ({"checkpoint_signal": 0}, "checkpoint_signal"),
        ({"env": {"A=B": "1"}}, "env.A=B"),
        ({"replicas": ()}, "replicas"),
        ({"replicas": (ReplicaLaunch("main", 0, 1, "N"),)}, "replicas"),
        ({"replicas": (ReplicaLaunch("main", 0, 0, "elsewhere"),)}, r"replicas\[0\].node"),
        ({"replicas": (ReplicaLaunch("main", 0, 0, "N", (9,), 1),)}, r"replicas\[0\].gpus"),
        ({"replicas": (ReplicaLaunch("main", 0, 0, "N", (1, 1), 2),)}, r"replicas\[0\].gpus"),
        ({"replicas": (ReplicaLaunch("main", 0, 0, "N", (), 2),)}, r"replicas\[0\].gpus"),
    ],
)
def test_a_wrong_order_is_refused_by_field(local: LocalHarness, change: dict[str, object], word: str) -> None:
    good = {"attempt": "job.1", "job": "job", "command": ("true",)}
    replicas = (ReplicaLaunch("main", 0, 0, local.node),)
    fields = {"replicas": replicas} | good | change
    if "replicas" in change and isinstance(fields["replicas"], tuple):
        fields["replicas"] = tuple(
            ReplicaLaunch(one.group, one.index, one.rank, local.node, one.gpus, one.gpu_count)
            if one.node == "N"
            else one
            for one in fields["replicas"]
        )
    with pytest.raises(PermanentError, match=word):
        local.backend.launch(Launch(**fields))  # type: ignore[arg-type]
    assert local.backend.observe().attempts == ()


@pytest.mark.parametrize("name", [hardware.VIRTUAL_GPUS, hardware.VIRTUAL_VRAM_GIB])
@pytest.mark.parametrize("value", ["-1", "four", "1.5", "1000000", "٤", "9" * 5000])
def test_a_bad_number_of_virtual_cards_names_its_variable(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(PermanentError, match=f"^{name}: must be a whole number"):
        LocalBackend(tmp_path, environ={name: value})


def test_virtual_cards_are_stable_and_shown_as_such() -> None:
    four = hardware.virtual_cards({}, host="cafe")
    assert [card.uuid for card in four] == [f"GPU-virtual-cafe-{n}" for n in range(4)]
    assert all(card.virtual and card.memory_mib == 24 * 1024 for card in four)
    asked = {hardware.VIRTUAL_GPUS: " 2 ", hardware.VIRTUAL_VRAM_GIB: "80"}
    assert [card.memory_mib for card in hardware.virtual_cards(asked, host="x")] == [81920, 81920]
    assert hardware.virtual_cards({hardware.VIRTUAL_GPUS: "0"}, host="x") == ()


def test_real_cards_go_before_virtual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    real = (nvml.Gpu("GPU-1", 0, "NVIDIA H200", 143_771),)
    monkeypatch.setattr(nvml, "discover", lambda: real)
    node = hardware.this_node({hardware.VIRTUAL_GPUS: "8"})
    assert node.model == "NVIDIA H200"
    assert [(card.uuid, card.virtual, card.memory_mib) for card in node.gpus] == [("GPU-1", False, 143_771)]


def test_without_a_driver_or_library_there_are_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(nvml.discover(), tuple)
    monkeypatch.setattr(nvml, "pynvml", None)
    assert nvml.discover() == ()


@pytest.mark.parametrize(
    ("hostname", "label"),
    [
        ("gpu-01.lab.example.org", "gpu-01"),
        ("My_Box", "my-box"),
        ("--", "local"),
        ("", "local"),
        ("a" * 80, "a" * 63),
        ("box-" + "é", "box"),
    ],
)
def test_the_hosts_name_as_a_label(hostname: str, label: str) -> None:
    assert hardware.dns_label(hostname) == label
