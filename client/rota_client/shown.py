"""How results are shown: a table for people, JSON or YAML for programs. Pure, but for printing."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import typer
import yaml

Cell = Callable[[Mapping[str, Any]], Any]
Columns = Mapping[str, Cell]
GAP = "  "
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Output(StrEnum):
    """In which form."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(output: Output, values: Any, columns: Columns) -> None:
    """Print one mapping or a list of them."""
    if output is Output.JSON:
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False))
    elif output is Output.YAML:
        typer.echo(as_yaml(values), nl=False)
    elif isinstance(values, Mapping):
        typer.echo(details(values, columns))
    else:
        typer.echo(table(values, columns))


def as_yaml(values: Any) -> str:
    """The values as YAML."""
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))


def table(rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    """Rows below a head, aligned, also where letters are two cells wide."""
    cells = [list(columns), *([text(cell(row)) for cell in columns.values()] for row in rows)]
    widths = [max(width(line[position]) for line in cells) for position in range(len(columns))]
    lines = []
    for line in cells:
        padded = (value + " " * (wide - width(value)) for value, wide in zip(line, widths, strict=True))
        lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)


def details(row: Mapping[str, Any], columns: Columns) -> str:
    """One thing, a line for each of its values that has any."""
    pairs = [(name, text(cell(row))) for name, cell in columns.items()]
    wide = max(width(name) for name, _ in pairs)
    return "\n".join(f"{name}{' ' * (wide - width(name))}{GAP}{value}" for name, value in pairs if value)


def text(value: Any) -> str:
    """A value as a cell: one line, nothing that a terminal would obey."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(text(each) for each in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={text(each)}" for key, each in value.items())
    return _CONTROL.sub("", str(value)).replace("\n", " ").replace("\t", " ")


def width(value: str) -> int:
    """How many cells of a terminal a text takes."""
    return sum(0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
               for each in value)  # fmt: skip


def without_commands(output: str) -> str:
    """A job's output for a terminal: colours and new lines stay, whatever else would command the terminal goes."""
    return _CONTROL.sub(lambda found: found[0] if found[0] == "\r" or _COLOUR.fullmatch(found[0]) else "", output)


def moment(value: str | None) -> str:
    """A time as this machine's clock shows it."""
    if not value:
        return ""
    return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """A time span in its two largest units: `2h03m`, `45s`."""
    whole = max(0, int(seconds))
    for unit, size, smaller, small in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // small:02d}{smaller}"
    return f"{whole}s"
