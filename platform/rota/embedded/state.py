"""What the home remembers of the Rota that runs in it: who supervises, which children there are, where it answers."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rota.embedded.layout import Layout
from rota.embedded.place import write_private
from rota.embedded.processes import Identity, is_alive, kill_session


@dataclass(frozen=True, slots=True)
class State:
    """The contents of run.json."""

    supervisor: Identity
    url: str
    children: Mapping[str, Identity] = field(default_factory=dict)


def save(path: Path, state: State) -> None:
    """Write the state, atomically."""
    children = {name: [one.pid, one.started] for name, one in state.children.items()}
    supervisor = [state.supervisor.pid, state.supervisor.started]
    write_private(path, json.dumps({"supervisor": supervisor, "url": state.url, "children": children}) + "\n")


def load(path: Path) -> State | None:
    """The state on disk, None when there is none that can be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        children = {str(name): Identity(int(pid), str(started)) for name, (pid, started) in raw["children"].items()}
        pid, started = raw["supervisor"]
        return State(Identity(int(pid), str(started)), str(raw["url"]), children)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def take_lock(path: Path) -> int | None:
    """Take the home for this process until it ends; None when another one has it. Never inherited by children."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a supervisor has this home now."""
    if not path.exists():
        return False
    descriptor = take_lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def end_orphans(paths: Layout, say: Callable[[str], None], patience: float = 8) -> None:
    """Wait for children whose supervisor was killed, and kill those that do not end by themselves.

    PostgreSQL is left to rota.embedded.postgres, which stops it gently.
    """
    state = load(paths.state)
    if state is None:
        return
    rest = {name: one for name, one in state.children.items() if name != "postgres" and is_alive(one)}
    if rest:
        say(f"Waiting for processes of an earlier run to end: {', '.join(sorted(rest))}.")
    until = time.monotonic() + patience
    while rest and time.monotonic() < until:
        time.sleep(0.05)
        rest = {name: one for name, one in rest.items() if is_alive(one)}
    for one in rest.values():
        kill_session(one.pid)
        if is_alive(one):
            os.kill(one.pid, signal.SIGKILL)


def write_cli(paths: Layout, url: str, token: str | None) -> None:
    """Tell the command line on this machine where Rota is, and keep its token unless there is a new one."""
    known: object = None
    try:
        known = json.loads(paths.cli.read_text(encoding="utf-8")).get("token")
    except (OSError, ValueError, AttributeError):
        known = None
    write_private(paths.cli, json.dumps({"url": url, "token": token or known}) + "\n")
