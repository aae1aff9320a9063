"""What a measurement is held to: gates, which can fail a build, and targets, which are shown beside it.

Machines differ. A gate is therefore a ratio to something measured in the same run, or a count; an absolute figure is a
target, met or not met on this machine.
"""

import math
from dataclasses import dataclass
from typing import Literal

SIGNS = {"at_least": "≥", "at_most": "≤"}


@dataclass(frozen=True, slots=True)
class Bar:
    """``value`` has to be at least, or at most, ``limit``; ``unit`` is for people. Not a number never passes."""

    what: str
    value: float
    sense: Literal["at_least", "at_most"]
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the value is on the right side; exactly on the limit is."""
        return self.value >= self.limit if self.sense == "at_least" else self.value <= self.limit

    @property
    def wish(self) -> str:
        """The limit as people read it."""
        return f"{SIGNS[self.sense]} {shown(self.limit)}{self.unit and ' ' + self.unit}"

    def __str__(self) -> str:
        return f"{self.what} is {shown(self.value)}{self.unit and ' ' + self.unit}, it has to be {self.wish}"


@dataclass(frozen=True, slots=True)
class Gate(Bar):
    """A bar that fails the build: a ratio measured in this run, or a count."""


@dataclass(frozen=True, slots=True)
class Target(Bar):
    """A bar for a machine like the one the budgets were written for: told, never a failure."""


def shown(value: float) -> str:
    """A number for people: as many digits as help."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
