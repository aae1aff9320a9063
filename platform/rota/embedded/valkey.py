"""The embedded Valkey: only its command line, for it keeps nothing.

It carries wake-ups, live updates and counters of rate limits. All of it is made anew from rows, so nothing is written
to disk: there is no file that could be torn, too new, or slow to load.
"""

from __future__ import annotations

import socket
from pathlib import Path

from rota.embedded.layout import Layout


def command(program: Path, paths: Layout) -> tuple[str, ...]:
    """What the supervisor runs: on a unix socket alone, in the foreground, logging to standard output."""
    return (
        *(str(program), "--port", "0", "--unixsocket", str(paths.valkey_socket), "--unixsocketperm", "700"),
        *("--dir", str(paths.valkey_data), "--save", "", "--appendonly", "no"),
        *("--daemonize", "no", "--logfile", "", "--loglevel", "notice", "--maxmemory-policy", "noeviction"),
        *("--databases", "16"),
    )


def is_ready(path: Path) -> bool:
    """Whether a server answers a ping on the socket at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False
