"""What the commands have in common: where a file comes from, and how bad input ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import typer

from scheduler.drive.scenario import SpecError, load_file
from scheduler.drive.scenario.plain import load

BAD_INPUT = 2
STANDARD_INPUT = "-"


def read_input(file: str) -> object:
    """The plain values of a file, or of standard input for `-`. Raises SpecError."""
    if file == STANDARD_INPUT:
        return load(sys.stdin.buffer.read())
    return load_file(Path(file))


def refuse(error: SpecError) -> NoReturn:
    """Say in one line what is wrong, and end with the status for bad input."""
    print(" ".join(str(error).split()), file=sys.stderr)
    raise typer.Exit(BAD_INPUT)
