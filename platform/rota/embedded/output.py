"""What children write: split into lines, kept in rotated files, and the important part of it shown to the person."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

LONGEST_LINE = 64 * 1024
FILE_BYTES, FILES = 10 * 1024 * 1024, 5
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_COLOURS = {10: "2", 20: "", 30: "33", 40: "31", 50: "31;1"}
_POSTGRES = re.compile(r"^(DEBUG|LOG|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC|HINT|DETAIL|STATEMENT|CONTEXT):\s+(.*)")
_POSTGRES_LEVELS = {"WARNING": 30, "ERROR": 30, "FATAL": 40, "PANIC": 50}  # an ERROR fails one statement of a client
# Said at every ordinary stop, or while a server is still coming up.
_EXPECTED = ("terminating connection due to administrator command", "the database system is starting up")
_VALKEY = re.compile(r"^\d+:[A-Z] \d\d \w{3} \d{4} [\d:.]+ ([.\-*#]) (.*)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a child: how important it is (as in `logging`) and how it reads for a person."""

    level: int
    text: str


def understand(raw: str) -> Line:
    """Read one line in any of the shapes that our children write: JSON of ours, PostgreSQL's, Valkey's, or plain."""
    if raw.startswith("{"):
        try:
            entry = json.loads(raw)
        except ValueError:
            entry = None
        if isinstance(entry, dict) and "event" in entry:
            return _ours(entry)
    if found := _POSTGRES.match(raw):
        level = _POSTGRES_LEVELS.get(found.group(1), 20)
        return Line(20 if found.group(2).startswith(_EXPECTED) else level, found.group(2))
    if found := _VALKEY.match(raw):
        return Line(30 if found.group(1) == "#" and "WARNING" not in found.group(2) else 20, found.group(2))
    return Line(40 if raw.startswith(("Traceback", "Fatal Python error")) else 20, raw)


def _ours(entry: dict[str, object]) -> Line:
    level = LEVELS.get(str(entry.pop("level", "info")).lower(), 20)
    text = str(entry.pop("event"))
    trace = str(entry.pop("exception", "")).strip()
    for name in ("timestamp", "logger", "stack_info"):
        entry.pop(name, None)
    facts = " ".join(f"{name}={value}" for name, value in entry.items())
    last = f" | {trace.splitlines()[-1]}" if trace else ""
    return Line(level, f"{text}{' ' if facts else ''}{facts}{last}")


class Splitter:
    """Cuts a stream of bytes into lines; a line without end is cut at LONGEST_LINE, so memory stays bounded."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that `data` completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        while len(rest) > LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        self._rest = rest
        for line in lines:
            yield line.decode(errors="replace").rstrip("\r")

    def finish(self) -> Iterator[str]:
        """Yield what is left when the stream ends."""
        if self._rest:
            yield self._rest.decode(errors="replace")
        self._rest = b""


class LogFile:
    """One child's log below the home: rotated, each line with its time unless it brings its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handler = RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8")

    def write(self, raw: str) -> None:
        """Append a line."""
        stamp = "" if raw.startswith("{") else f"{datetime.now(UTC).isoformat(timespec='milliseconds')} "
        record = logging.LogRecord("rota", logging.INFO, "", 0, f"{stamp}{raw}", None, None)
        self._handler.handle(record)

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class Console:
    """The person's terminal: plain sentences of the supervisor, and lines of children behind their name."""

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False) -> None:
        self._stream = stream or sys.stdout
        self._threshold = logging.INFO if verbose else logging.WARNING
        self._coloured = self._stream.isatty()
        self.verbose = verbose

    def say(self, text: str) -> None:
        """Print a sentence of the supervisor."""
        self._print(text)

    def phase(self, text: str) -> None:
        """Print a sentence that only `--verbose` wants."""
        if self.verbose:
            self._print(f"- {text}")

    def child(self, name: str, line: Line) -> None:
        """Print a child's line if it is important enough."""
        if line.level >= self._threshold:
            colour = _COLOURS[max(level for level in _COLOURS if level <= max(line.level, 10))]
            text = f"{name:>9} | {line.text}"
            self._print(f"\x1b[{colour}m{text}\x1b[0m" if self._coloured and colour else text)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except (BrokenPipeError, ValueError):  # nobody reads any more; the files have it all
            self._coloured = False
