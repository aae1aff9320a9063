"""Readers of plain YAML or JSON values: each turns a value into ours or says in one line where and what is wrong. Pure.

A *reader* is a function of one value. It raises :class:`SpecError` with the path below that value; whoever reads a
mapping or a list puts its own key in front (:meth:`SpecError.under`), so a path costs nothing while all is well.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from datetime import time
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Reader: TypeAlias = Callable[[object], T]

MOST = 1_000_000
"""The greatest number of anything that is counted."""
LONGEST = 36_500 * 86_400.0
"""The longest duration in seconds: a hundred years, which keeps every calendar date in range."""
NAME_LENGTH = 200
TEXT_LENGTH = 100_000
GUESSES_MOST = 2_000  # comparing with more names than that would keep people waiting for their error
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([smhd]?)")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%")
_PLAIN_KEY = re.compile(r"[\w*-][\w.*-]*")


class SpecError(ValueError):
    """A value is not what it should be; the text is one line, ``jobs[3].gpus: must be at least 1``."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def under(self, key: str | int) -> "SpecError":
        """Return the same error, seen from the mapping or the list that holds the value as ``key``."""
        head = f"[{key}]" if isinstance(key, int) else key_name(key)
        link = "." if self.path and not self.path.startswith("[") else ""
        return SpecError(f"{head}{link}{self.path}", self.problem)

    def within(self, path: str) -> "SpecError":
        """Return the same error, seen from the value that lies at ``path``; an empty path changes nothing."""
        link = "." if path and self.path and not self.path.startswith("[") else ""
        return SpecError(f"{path}{link}{self.path}", self.problem)


def key_name(key: str) -> str:
    """How a key reads in a path: as it is, or quoted and cut where it holds anything odd."""
    return key if len(key) <= NAME_LENGTH and _PLAIN_KEY.fullmatch(key) else shown(key)


def shown(value: object) -> str:
    """How a value reads in a message: short, on one line, as JSON writes it."""
    if isinstance(value, str):
        return json.dumps(
            value if len(value) <= NAME_LENGTH else value[:60] + "…", ensure_ascii=not value.isprintable()
        )
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value) if not isinstance(value, int) or abs(value) < 10**18 else "a number that large"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def integer(least: int = 1, most: int = MOST, what: str = "a whole number") -> Reader[int]:
    """Whole numbers from ``least`` to ``most``; 1.0 and true are none."""

    def read(value: object) -> int:
        if type(value) is not int:
            raise SpecError("", f"must be {what}, not {shown(value)}")
        if value < least:
            raise SpecError("", f"must be at least {least}")
        if value > most:
            raise SpecError("", f"must be at most {most}")
        return value

    return read


def number(
    least: float = 0.0, most: float = float(MOST), *, above: bool = False, what: str = "a number"
) -> Reader[float]:
    """Finite numbers from ``least`` (with ``above``: more than that) to ``most``."""

    def read(value: object) -> float:
        if type(value) is not int and type(value) is not float:
            raise SpecError("", f"must be {what}, not {shown(value)}")
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > 10**18:
            raise SpecError("", f"must be {what}, not {shown(value)}")
        if above and value <= least:
            raise SpecError("", f"must be more than {least:g}")
        if value < least:
            raise SpecError("", f"must be at least {least:g}")
        if value > most:
            raise SpecError("", f"must be at most {most:.12g}")
        return float(value)

    return read


def duration(*, zero: bool = True) -> Reader[float]:
    """Seconds, from a number of them or text such as ``90s 5m 2h 1d``; none at all only with ``zero``."""
    seconds = number(-math.inf, LONGEST, what="a duration such as 90, 90s, 5m, 2h or 1d")

    def read(value: object) -> float:
        if isinstance(value, str):
            match = _DURATION.fullmatch(value.strip())
            negative = value.strip().startswith("-") and _DURATION.fullmatch(value.strip()[1:])
            value = float(match[1]) * UNITS[match[2]] if match else -1 if negative else value
        amount = seconds(value)
        if amount < 0:
            raise SpecError("", "must not be negative")
        if amount == 0 and not zero:
            raise SpecError("", "must be more than 0")
        return amount

    return read


def flag(value: object) -> bool:
    """True or false, and nothing that only looks like it."""
    if not isinstance(value, bool):
        raise SpecError("", f"must be true or false, not {shown(value)}")
    return value


def text(value: object) -> str:
    """Any text, also an empty one."""
    if not isinstance(value, str):
        hint = ": put it in quotes" if isinstance(value, bool | int | float) else ""
        raise SpecError("", f"must be text, not {shown(value)}{hint}")
    if len(value) > TEXT_LENGTH:
        raise SpecError("", f"must not be longer than {TEXT_LENGTH} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)):
        raise SpecError("", "must not hold characters that are none")
    return value


def name(value: object) -> str:
    """Names of people's things: 1 to 200 printable characters, no space at either end."""
    read = text(value)
    if not read:
        raise SpecError("", "must not be empty")
    if len(read) > NAME_LENGTH:
        raise SpecError("", f"must not be longer than {NAME_LENGTH} characters")
    if not read.isprintable() or read != read.strip():
        raise SpecError("", "must be printable characters without a space at either end")
    return read


def clock(value: object) -> time:
    """Times of day as ``HH:MM``.

    A number is refused: 20:00 without quotes is the number 1200 to YAML 1.1 (our own loader reads it as text).
    """
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = " in quotes" if isinstance(value, int) else ""
        raise SpecError("", f'must be a time of day from "00:00" to "23:59"{hint}, not {shown(value)}')
    return time(int(match[1]), int(match[2]))


def percent(value: object) -> float | None:
    """Percentages such as ``"50%"`` as a number from 0 to 100; None for what is not written as one."""
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    if float(match[1]) > 100:
        raise SpecError("", "must be at most 100%")
    return float(match[1])


def one_of(choices: type[E]) -> Reader[E]:
    """One of the values of an enumeration."""
    known = {choice.value: choice for choice in choices}

    def read(value: object) -> E:
        found = known.get(value) if isinstance(value, str) else None
        if found is None:
            raise SpecError("", f"must be one of {', '.join(known)}, not {shown(value)}")
        return found

    return read


def list_of(item: Reader[T], *, empty: bool = True, unique: bool = False) -> Reader[tuple[T, ...]]:
    """Lists whose items all read by ``item``."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise SpecError("", f"must be a list, not {shown(value)}")
        if not value and not empty:
            raise SpecError("", "must not be empty")
        if len(value) > MOST:
            raise SpecError("", f"must not have more than {MOST} items")
        items: list[T] = []
        try:
            for one in value:
                items.append(item(one))  # noqa: PERF401  the position of the one that fails is needed
        except SpecError as error:
            raise error.under(len(items)) from None
        if unique and (again := repeated(items)) is not None:
            raise SpecError(f"[{again}]", f"{shown(value[again])} is there twice")
        return tuple(items)

    return read


def repeated(items: Iterable[Hashable]) -> int | None:
    """The position of the first item that was there before; None when all differ."""
    seen: set[Hashable] = set()
    for position, item in enumerate(items):
        if item in seen:
            return position
        seen.add(item)
    return None


def nobody(what: str, called: str, known: Collection[str]) -> str:
    """Say that there is no ``what`` of that name, and which one may have been meant."""
    close = get_close_matches(called[:NAME_LENGTH], known, n=1) if len(known) <= GUESSES_MOST else []
    return f"there is no {what} {shown(called)}" + (f", did you mean {shown(close[0])}?" if close else "")


def one_or_more(item: Reader[T]) -> Reader[tuple[T, ...]]:
    """A list of values or, the same as a list of one, a single value."""
    several = list_of(item, empty=False, unique=True)

    def read(value: object) -> tuple[T, ...]:
        return (item(value),) if isinstance(value, str) else several(value)

    return read


def pairs_of(item: Reader[T]) -> Reader[tuple[tuple[str, T], ...]]:
    """Mappings from names to what ``item`` reads, as pairs in the order of the names."""

    def read(value: object) -> tuple[tuple[str, T], ...]:
        mapping = _mapping(value)
        return tuple(sorted((key, _read(item, mapping, key)) for key in mapping))

    return read


def record(fields: Mapping[str, Reader[Any]], needs: Collection[str] = ()) -> Reader[dict[str, Any]]:
    """Mappings with keys of ``fields`` only and at least those of ``needs``, as the values that are there."""

    def read(value: object) -> dict[str, Any]:
        mapping = _mapping(value)
        values: dict[str, Any] = {}
        for key in mapping:
            reader = fields.get(key)
            if reader is None:
                raise SpecError("", _unknown(key, fields)).under(key)
            values[key] = _read(reader, mapping, key)
        for key in needs:
            if key not in values:
                raise SpecError(key, "is missing")
        return values

    return read


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SpecError("", f"must be a mapping, not {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise SpecError("", f"has the key {shown(key)}, which is not text")
    return value


def _read(reader: Reader[T], mapping: Mapping[str, object], key: str) -> T:
    try:
        return reader(mapping[key])
    except SpecError as error:
        raise error.under(key) from None


def _unknown(key: str, known: Collection[str]) -> str:
    close = get_close_matches(key[:NAME_LENGTH], known, n=1)
    return f"is not a known key, did you mean {close[0]}?" if close else "is not a known key"
