"""The shims that this process is starting.

Until a shim has its lock and its record, what was started here waits beside it, as a child of this process, which alone
can collect it. Children belong to the process, not to the backend object that started them, and so does this list:
whichever backend looks next collects for all. The shim itself is nobody's child, so it outlives whoever kills us with
all that is below us.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from rota_client.shim import start
from scheduler.backends.local.orders import MARK

_lock = threading.Lock()
_tokens: dict[int, str] = {}  # by pid
_living: set[str] = set()


def spawn(folder: Path, token: str) -> None:
    """Start the shim of the replica that lies in `folder`. OSError where no process can be had."""
    arguments = start.command_line(str(folder))
    # Nothing of the server's environment but what this interpreter may need to start, and the mark of a job around
    # us: Rota inside a job of Rota is found and ended with it.
    env = {key: os.environ[key] for key in ("LD_LIBRARY_PATH", MARK) if key in os.environ}
    with _lock:
        pid = os.posix_spawn(
            arguments[0],
            arguments,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, f"{folder}/shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            # A SIGTERM that comes before its handler must wait for it.
            setsigmask=[signal.SIGTERM],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP],
        )
        _tokens[pid] = token
        _living.add(token)


def collect() -> None:
    """Collect those that have ended; another library may have been faster, or they are our parent's since a fork."""
    with _lock:
        for pid in list(_tokens):
            try:
                done, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                done = pid
            if done:
                _living.discard(_tokens.pop(pid))


def lives(token: str) -> bool:
    """Whether the shim that was started for this token was not yet in place, nor had ended, when we last collected."""
    return token in _living
