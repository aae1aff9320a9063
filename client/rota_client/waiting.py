"""Waiting for a job: shows where it stands and why it waits, then its output, until it has come to an end.

Job output goes to standard output, everything else to standard error, so that `rota submit --wait … > file` holds what
the job has written and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from rota_client import codes
from rota_client.client import Client
from rota_client.shown import duration, text, without_commands

ENDED = frozenset({"succeeded", "failed", "cancelled", "rejected"})
VERDICTS = {
    "succeeded": "has succeeded",
    "failed": "has failed",
    "cancelled": "was cancelled",
    "rejected": "was rejected",
    "held": "is held",
}
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
LOG_WAIT = 10


class Voice(Protocol):
    """Where progress is shown."""

    def stands(self, line: str) -> None:
        """Show where things stand now; the same line again says nothing new."""

    def note(self, line: str) -> None:
        """Say something once."""

    def quiet(self) -> None:
        """Make room for the job's own output."""


class Lines:
    """Plain lines, one whenever something changes: for logs of CI."""

    def __init__(self) -> None:
        self._last = ""

    def stands(self, line: str) -> None:
        """See Voice."""
        if line != self._last:
            self.note(line)
        self._last = line

    def note(self, line: str) -> None:
        """See Voice."""
        print(line, file=sys.stderr, flush=True)

    def quiet(self) -> None:
        """See Voice."""


class Terminal:
    """One line that moves, for a person who watches."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._line, self._since = "", time.monotonic()

    def stands(self, line: str) -> None:
        """See Voice."""
        if line != self._line:
            self._line, self._since = line, time.monotonic()
        said = escape(f"{line}  {duration(time.monotonic() - self._since)}")
        if self._status is None:
            self._status = self._console.status(said)
            self._status.start()
        else:
            self._status.update(said)

    def note(self, line: str) -> None:
        """See Voice."""
        self.quiet()
        self._console.print(escape(line), soft_wrap=True)

    def quiet(self) -> None:
        """See Voice."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def voice() -> Voice:
    """The one that suits standard error."""
    return Terminal() if sys.stderr.isatty() else Lines()


def wait_for(
    client: Client, key: str, *, timeout: float | None, replica: int, say: Voice,
    write: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic,
) -> int:  # fmt: skip
    """Wait until the job has ended and return the exit status that tells how. Ctrl-C leaves it running."""
    until = None if timeout is None else clock() + timeout
    try:
        return _wait(client, key, until, replica, say, write or _write, clock)
    except KeyboardInterrupt:
        say.note(
            f"The job {key} goes on. `rota job logs --follow {key}` shows it again, `rota job cancel {key}` ends it."
        )
        return codes.INTERRUPTED
    finally:
        say.quiet()


def _wait(
    client: Client, key: str, until: float | None, replica: int, say: Voice, write: Callable[[str], None],
    clock: Callable[[], float],
) -> int:  # fmt: skip
    shown, pause = 0, SHORTEST_PAUSE
    while True:
        job = client.job(key)
        if job["attempt_count"] > shown:
            shown, pause = job["attempt_count"], SHORTEST_PAUSE
            if not _stream(client, job, until, replica, say, write, clock):
                return _out_of_time(key, say)
            continue
        if job["state"] in ENDED or job["state"] == "held":
            return _verdict(job, say)
        say.stands(standing(job))
        if until is not None and clock() >= until:
            return _out_of_time(key, say)
        time.sleep(pause if until is None else max(0.0, min(pause, until - clock())))
        pause = min(LONGEST_PAUSE, pause * 1.3)


def _stream(
    client: Client, job: Mapping[str, Any], until: float | None, replica: int, say: Voice,
    write: Callable[[str], None], clock: Callable[[], float],
) -> bool:  # fmt: skip
    """Write out one attempt's output until it has ended; False when the time is over before."""
    key, attempt, offset, silent = job["key"], job["attempt_count"], 0, True
    say.stands(standing(job))
    while True:
        left = LOG_WAIT if until is None else min(LOG_WAIT, int(max(0.0, until - clock())))
        piece = client.log_piece(key, attempt=attempt, replica=replica, offset=offset, wait=left)
        if piece["offset"] > offset and offset + silent:
            say.note(f"({piece['offset'] - offset} bytes are not kept any more)")
        offset = piece["next_offset"]
        if piece["text"]:
            if silent:
                say.quiet()
            silent = False
            write(piece["text"])
        if piece["eof"]:
            return True
        if until is not None and clock() >= until:
            return False
        if not piece["text"]:
            if silent:
                say.stands(standing(client.job(key)))
            if not left:
                time.sleep(SHORTEST_PAUSE)


def standing(job: Mapping[str, Any]) -> str:
    """Where a job stands, in one line: its state and, while it waits, the reason."""
    line = f"{text(job['name'])} ({job['key']}) is {job['state']}"
    reason = job.get("reason")
    if reason:
        return f"{line}: {reason['code']}: {text(reason['message'])}"
    return line


def _verdict(job: Mapping[str, Any], say: Voice) -> int:
    line = f"{text(job['name'])} ({job['key']}) {VERDICTS[job['state']]}"
    if job["state"] == "failed" and job["exit_code"] is not None:
        line += f" with exit code {job['exit_code']}"
    why = job["state_why"].removeprefix("it was cancelled").removeprefix(": ")  # the verdict has said so already
    if job["state"] != "succeeded" and why:
        line += f": {text(why)}"
    begun = job["first_started_at"]
    if begun and job["finished_at"]:
        spent = datetime.fromisoformat(job["finished_at"]) - datetime.fromisoformat(begun)
        line += f" (after {duration(spent.total_seconds())})"
    say.note(line)
    return codes.OF_STATE[job["state"]]


def _out_of_time(key: str, say: Voice) -> int:
    say.note(f"The time to wait is over. The job {key} goes on; `rota job logs --follow {key}` shows it.")
    return codes.TIMEOUT


def _write(piece: str) -> None:
    sys.stdout.write(without_commands(piece) if sys.stdout.isatty() else piece)
    sys.stdout.flush()
