"""`rota simulate`: plays a scenario file on a virtual clock and says how it went."""

from __future__ import annotations

import gc
import json
import sys
import time
from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

from scheduler.drive.command_input import read_input, refuse
from scheduler.drive.scenario import SpecError, not_yet, parse_scenario
from scheduler.drive.simulate import simulate as play


class Format(StrEnum):
    """How to print the answer."""

    TABLE = "table"
    JSON = "json"


def simulate(
    file: Annotated[str, typer.Argument(help="Scenario file in YAML or JSON; - reads standard input.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer as one JSON object.")] = False,
    form: Annotated[Format, typer.Option("--format", help="A chart and tables, or JSON.")] = Format.TABLE,
) -> None:
    """Play a scenario file on a virtual clock and say how it went."""
    try:
        plain = read_input(file)
        scenario = parse_scenario(plain, mode="simulate")
    except SpecError as error:
        refuse(error)
    if ignored := not_yet(plain):
        print(f"rota simulate: not in effect yet: {', '.join(ignored)}", file=sys.stderr)
    # Values by the ten thousand that all live to the end: the collector would only look at them again and again.
    gc.disable()
    bar = Progress() if sys.stderr.isatty() else None
    result = play(scenario, progress=bar)
    if bar is not None:
        bar.clear()
    if as_json or form is Format.JSON:
        json.dump(result.answer(), sys.stdout, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.write("\n")
    else:
        # Drawing needs a library that takes longer to import than most files take to play.
        import_module("scheduler.drive.chart").show(result)


class Progress:
    """A bar on standard error, from the second second on."""

    def __init__(self, width: int = 30) -> None:
        self._begun = self._drawn = time.monotonic()
        self._width = width

    def __call__(self, done: int, total: int) -> None:
        """Draw it anew, a few times a second; take it away when all is done."""
        now = time.monotonic()
        if now - self._begun < 1.0 or now - self._drawn < 0.1:
            return
        self._drawn = now
        filled = self._width * done // max(total, 1)
        bar = "█" * filled + "░" * (self._width - filled)
        sys.stderr.write(f"\r{bar} {done} of {total} jobs ")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the bar away."""
        if self._drawn > self._begun:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
