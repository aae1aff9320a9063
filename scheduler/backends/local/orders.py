"""What a launch means on this machine: its checks, each replica's environment, and what is kept of it on disk."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from scheduler.backends.base import (
    RESERVED_ENV,
    RESERVED_ENV_PREFIX,
    Launch,
    NodeReport,
    PermanentError,
    ReplicaLaunch,
    TransientError,
    refused_env,
)

MARK = "ROTA_SHIM"  # the variable by which everything a replica ever started is found again
_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
# Below the range from which the kernel picks ports for outgoing connections (32768 and up on Linux).
_FIRST_PORT, _PORTS = 20000, 10000
# Only these pass from the server's own environment to jobs: it may hold secrets.
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class RunAs:
    """Whose rights commands get; only root can give others than its own."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()  # supplementary

    @classmethod
    def of(cls, user: str) -> RunAs:
        """A user of this machine by name, with all groups. PermanentError when there is none."""
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise PermanentError(f"run as: no user {user!r} on this machine") from None
        return cls(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(user, entry.pw_gid)))


@dataclass(frozen=True, slots=True)
class KeptReplica:
    """What is kept of one replica for reports."""

    rank: int
    group: str
    index: int
    gpus: tuple[str, ...]  # UUIDs


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of an order for reports, written once before its first process starts."""

    attempt: str
    job: str
    node: str
    at: float  # Unix time of the launch
    grace_s: float
    port: int  # MASTER_PORT
    replicas: tuple[KeptReplica, ...]

    def dump(self) -> bytes:
        """As JSON, for `load` and for people."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def load(cls, data: bytes) -> Kept:
        """The inverse of `dump`; ValueError, KeyError or TypeError where the file is damaged."""
        raw = json.loads(data)
        replicas = tuple(KeptReplica(**{**item, "gpus": tuple(item["gpus"])}) for item in raw.pop("replicas"))
        return cls(**raw, replicas=replicas)


def valid_key(attempt: str) -> bool:
    """Whether it is an AttemptKey (see base): safe as the name of a folder."""
    return _KEY.fullmatch(attempt) is not None


def check(order: Launch, node: NodeReport) -> None:
    """Refuse what can never run here: PermanentError that names the field."""
    if not valid_key(order.attempt):
        raise PermanentError(f"attempt: {order.attempt!r} is not a valid key")
    if (key := refused_env(order.env)) is not None:
        raise PermanentError(f"env.{key}: set by Rota, a job may not set it")
    _check_command(order)
    if [replica.rank for replica in order.replicas] != list(range(len(order.replicas))) or not order.replicas:
        raise PermanentError("replicas: must be at least one, in order of rank from 0")
    for replica in order.replicas:
        _check_replica(replica, node)
    for name, seconds in (("grace_s", order.grace_s), ("time_limit_s", order.time_limit_s)):
        if seconds is not None and not 0 <= seconds < 1e9:
            raise PermanentError(f"{name}: must be seconds from 0 to 1e9, not {seconds!r}")
    if order.checkpoint_signal is not None and not 1 <= order.checkpoint_signal <= 64:
        raise PermanentError(f"checkpoint_signal: {order.checkpoint_signal} is not a signal")


def _check_command(order: Launch) -> None:
    for key, value in order.env.items():
        if not key or "=" in key or "\0" in key + value:
            raise PermanentError(f"env.{key}: must be a name without '=' and a value without NUL")
    if not order.command or not order.command[0] or any("\0" in word for word in order.command):
        raise PermanentError("command: must be a list of words without NUL, the first not empty")
    if order.cwd is not None and (not order.cwd.startswith("/") or "\0" in order.cwd):
        raise PermanentError(f"cwd: {order.cwd!r} is not an absolute path")


def _check_replica(replica: ReplicaLaunch, node: NodeReport) -> None:
    path = f"replicas[{replica.rank}]"
    if replica.node != node.name:
        raise PermanentError(f"{path}.node: {replica.node!r} is not this machine ({node.name!r})")
    if len(set(replica.gpus)) != len(replica.gpus):
        raise PermanentError(f"{path}.gpus: a card is named twice")
    if any(not 0 <= index < len(node.gpus) for index in replica.gpus):
        raise PermanentError(f"{path}.gpus: this machine has {len(node.gpus)} cards, not {list(replica.gpus)}")
    if replica.gpu_count not in (0, len(replica.gpus)):
        raise PermanentError(f"{path}.gpus: {replica.gpu_count} cards asked, {len(replica.gpus)} named")


def keep(order: Launch, node: NodeReport, *, at: float, port: int) -> Kept:
    """What to keep of a checked order."""
    replicas = tuple(
        KeptReplica(replica.rank, replica.group, replica.index, tuple(node.gpus[index].uuid for index in replica.gpus))
        for replica in order.replicas
    )
    return Kept(order.attempt, order.job, node.name, at, order.grace_s, port, replicas)


def passed_env(environ: Mapping[str, str], run_as: RunAs | None) -> dict[str, str]:
    """What jobs inherit from the environment of whoever started Rota: no secrets, and the right person's home."""
    env = {key: value for key, value in environ.items() if key in _PASSED or key.startswith("LC_")}
    if run_as is not None:
        try:
            entry = pwd.getpwuid(run_as.uid)
            person = (entry.pw_name, entry.pw_dir, entry.pw_shell)
        except KeyError:  # a bare uid, as in containers
            person = (str(run_as.uid), "/", "/bin/sh")
        env |= dict(zip(("USER", "HOME", "SHELL"), person, strict=True)) | {"LOGNAME": person[0]}
    return env


def replica_env(
    order: Launch, replica: ReplicaLaunch, node: NodeReport, *, base: Mapping[str, str], port: int, token: str
) -> dict[str, str]:
    """The whole environment of one replica.

    Weakest first: `base`, the rendezvous variables (a job may bring its own), the user's, and what only Rota may set.
    A replica sees nothing but its own cards, so for what it starts LOCAL_RANK is 0 of 1.
    """
    cards = [node.gpus[index] for index in replica.gpus]
    uuids = ",".join(card.uuid for card in cards)
    mib = replica.mib or min((card.memory_mib for card in cards), default=0)
    rendezvous = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(replica.rank),
        "WORLD_SIZE": str(len(order.replicas)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    own = {
        "CUDA_VISIBLE_DEVICES": uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
        "ROTA_JOB": order.job,
        "ROTA_ATTEMPT": order.attempt,
        "ROTA_GROUP": replica.group,
        "ROTA_REPLICA": str(replica.index),
        "ROTA_RANK": str(replica.rank),
        "ROTA_NODE": replica.node,
        "ROTA_GPUS": ",".join(str(index) for index in replica.gpus),
        "ROTA_VRAM_MIB": str(mib),
        MARK: token,
    }
    inherited = {k: v for k, v in base.items() if k not in RESERVED_ENV and not k.startswith(RESERVED_ENV_PREFIX)}
    return inherited | rendezvous | dict(order.env) | own


def free_port(attempt: str, taken: Collection[int]) -> int:
    """A port on the loopback that nobody listens on and no live attempt was given; the search begins at the key's own.

    Raises:
        TransientError: there is none.
    """
    begin = zlib.crc32(attempt.encode())
    for step in range(_PORTS):
        port = _FIRST_PORT + (begin + step) % _PORTS
        if port in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise TransientError(f"no free port from {_FIRST_PORT} to {_FIRST_PORT + _PORTS - 1} on 127.0.0.1")
