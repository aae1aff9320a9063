"""What a workload found, how people and programs read it, and where it is kept."""

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.gates import Bar, Gate, Target, shown

RESULTS = Path(__file__).resolve().parent / "results"


class Unavailable(Exception):
    """What a workload needs is not on this machine; the message is one line that says how to get it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one workload, by the names that programs rely on, and the bars they were held to."""

    name: str
    figures: Mapping[str, Any]
    bars: tuple[Bar, ...] = ()

    @property
    def failed(self) -> list[Gate]:
        """The gates that were not met."""
        return [bar for bar in self.bars if isinstance(bar, Gate) and not bar.met]

    def as_json(self) -> dict[str, Any]:
        """The figures at the top, then the bars and the machine."""
        return {**self.figures, "bars": [_bar(bar) for bar in self.bars], "machine": machine()}


def machine() -> dict[str, Any]:
    """What one has to know of the machine to compare two results."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": round(os.getloadavg()[0], 2),
    }


def write(report: Report, folder: Path = RESULTS) -> Path:
    """Keep a report as ``NAME.json``; returns where. Another process never sees half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.name}.json"
    kept = {"name": report.name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **report.as_json()}
    half = path.with_suffix(".part")
    half.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def show(report: Report, console: Console) -> None:
    """Print the bars as a table, then the other figures."""
    console.print(summary([report]))
    for line in _lines(report.figures):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary(reports: Sequence[Report]) -> Table:
    """All bars of some reports as one table."""
    table = Table("rota bench", "what", "measured", "wanted", "")
    table.columns[2].justify = "right"
    for report in reports:
        table.add_section()
        for number, bar in enumerate(report.bars):
            measured = f"{shown(bar.value)}{bar.unit and ' ' + bar.unit}"
            table.add_row("" if number else report.name, bar.what, measured, bar.wish, verdict(bar))
    return table


def verdict(bar: Bar) -> str:
    """What a bar has come to, in a word or two."""
    if isinstance(bar, Target):
        return "target met" if bar.met else "target not met on this machine"
    return "ok" if bar.met else "FAILED"


def _bar(bar: Bar) -> dict[str, Any]:
    return {"kind": type(bar).__name__.lower(), **asdict(bar), "met": bar.met}


def _lines(figures: Mapping[str, Any], indent: str = "  ") -> list[str]:
    """The figures as indented lines."""
    lines = []
    for key, value in figures.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {_text(value)}")
    return lines


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(each) for each in value)
    return shown(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
