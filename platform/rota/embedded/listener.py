"""The listening socket. The supervisor holds it: while the web server restarts, callers wait instead of failing."""

from __future__ import annotations

import errno
import socket
from contextlib import closing

from rota.embedded.errors import CannotStart


def listen(bind: str, port: int) -> socket.socket:
    """Listen on `bind`:`port`; raises CannotStart with one line that says what to do."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((bind, port))
        one.listen(1024)
    except OSError as error:
        one.close()
        raise CannotStart(_explain(bind, port, error)) from error
    one.set_inheritable(False)  # only the web server gets it, by name
    return one


def _explain(bind: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        other = _free_port(bind, port)
        return f"Port {port} is taken by another program. Choose another one, for example: PORT={other} make run"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} is not open to this user (below 1024 only root may listen). Choose another one with PORT="
    return f"ROTA_BIND: cannot listen on {bind}, port {port}: {error.strerror}"


def _free_port(bind: str, taken: int) -> int:
    """A port near the taken one that is free at the moment, else any."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for candidate in (*range(taken + 1, min(taken + 50, 65536)), 0):
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            try:
                probe.bind((bind, candidate))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return 0


def local_url(bind: str, port: int) -> str:
    """The address for a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(bind, f"[{bind}]" if ":" in bind else bind)  # noqa: S104
    return f"http://{host}:{port}"
