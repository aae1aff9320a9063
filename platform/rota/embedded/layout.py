"""Where everything of one Rota home lies. Pure: computes paths, touches nothing.

The paths depend on the home, the user and one recorded fact (where the data had to go when root started it), and not
on session variables: a command run from cron finds the same sockets as one run from a desktop.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

SOCKET_LIMIT = 107
"""Longest path of a unix socket in bytes on Linux (sockaddr_un.sun_path less its final zero); macOS allows 103."""
LONGEST_SOCKET = len("/pg/.s.PGSQL.5432.lock")
DATABASE = "rota"
ELSEWHERE = "data-is-at"
"""Name of the file in the home that records where the data lies when it could not lie in the home itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one home. `data` holds PostgreSQL's files, `sockets` the unix sockets of both servers."""

    home: Path
    data: Path
    sockets: Path

    @property
    def postgres_data(self) -> Path:
        return self.data / "postgres"

    @property
    def postgres_socket(self) -> Path:
        """The folder with PostgreSQL's socket, which is what its clients call `host`."""
        return self.sockets / "pg"

    @property
    def valkey_data(self) -> Path:
        return self.home / "valkey"

    @property
    def valkey_socket(self) -> Path:
        return self.sockets / "valkey.sock"

    @property
    def logs(self) -> Path:
        return self.home / "log"

    @property
    def lock(self) -> Path:
        return self.home / "up.lock"

    @property
    def state(self) -> Path:
        """What runs now: pid of the supervisor and of each child, with start times, and the address."""
        return self.home / "run.json"

    @property
    def cli(self) -> Path:
        """Address and token for the command line on this machine (0600)."""
        return self.home / "cli.json"

    @property
    def secret_key(self) -> Path:
        return self.home / "secret-key"

    @property
    def jobs(self) -> Path:
        """Files of local jobs: their shims, exit statuses and logs."""
        return self.home / "jobs"


def digest(home: Path) -> str:
    """Eight letters that stand for this home."""
    return sha256(str(home).encode()).hexdigest()[:8]


def layout(home: Path, uid: int, data: Path | None = None) -> Layout:
    """The layout of `home` for the user `uid`; `data` says where the data is when not in the home."""
    base = data or home
    sockets = base / "run"
    if len(str(sockets).encode()) + LONGEST_SOCKET > SOCKET_LIMIT - 4:
        sockets = Path(f"/tmp/rota-{uid}-{digest(home)}")  # noqa: S108 - its owner and mode are checked before use
    return Layout(home=home, data=base, sockets=sockets)


def recorded(home: Path, uid: int) -> Layout:
    """The layout of an existing home, following the record of a data folder elsewhere if there is one."""
    try:
        data = Path((home / ELSEWHERE).read_text(encoding="utf-8").strip())
    except OSError:
        return layout(home, uid)
    return layout(home, uid, data)
