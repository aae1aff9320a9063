"""Finding and ending what a killed shim left behind.

While a shim lives it is the sub-reaper of all that its job starts, so nothing can hide. Once it was killed, three
traces remain: the kernel ends the command itself with it (PR_SET_PDEATHSIG); processes carry the replica's token in
their environment; and they may be in the session that the command led.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from rota_client.shim import processes
from scheduler.backends.local.orders import MARK

_VARIABLE = MARK.encode() + b"="


def token_of(environment: bytes) -> str | None:
    """The token in an environment as /proc shows it, NUL between variables."""
    for variable in environment.split(b"\0"):
        if variable.startswith(_VARIABLE):
            return variable[len(_VARIABLE) :].decode("utf-8", "replace")
    return None


def leftovers(wanted: Mapping[str, processes.Identity | None]) -> dict[str, list[processes.Stat]]:
    """What still lives of each token, whose value is the replica's command where that is known.

    One look at all processes serves all tokens. A session counts only if it is still the command's: a leader with
    another start time, or a member older than the command, belongs to somebody who got the same number later.
    """
    everyone = [seen for seen in processes.everyone() if not seen.dead]
    starts = {seen.pid: seen.start for seen in everyone}
    sessions = {command.pid: (token, command) for token, command in wanted.items() if command is not None}
    found: dict[str, list[processes.Stat]] = {token: [] for token in wanted}
    for seen in everyone:
        token = token_of(processes.environment(seen.pid))
        if token is None and seen.session in sessions:
            candidate, command = sessions[seen.session]
            same_leader = starts.get(command.pid, command.start) == command.start
            token = candidate if same_leader and seen.start >= command.start else None
        if token in found:
            found[token].append(seen)
    return found


def kill(found: list[processes.Stat], boot: str) -> None:
    """SIGKILL at once: nobody is left to wait for a grace, and the cards are wanted back."""
    for seen in found:
        processes.send(processes.Identity(seen.pid, seen.start, boot), signal.SIGKILL, boot)
