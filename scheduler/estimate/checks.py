"""Checks of numbers that people give; an error names the field in one line."""

from enum import StrEnum
from typing import TypeVar

from jobs.reading import SpecError

E = TypeVar("E", bound=StrEnum)


def whole(field: str, value: object, least: int = 1, most: int = 10**15) -> None:
    """Raise SpecError unless ``value`` is a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(field, f"must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise SpecError(field, f"must be from {least} to {most}, not {value}")


def one_of(field: str, value: str, kind: type[E]) -> E:
    """Return the member of ``kind`` with this value, or raise SpecError with all there are."""
    try:
        return kind(value)
    except ValueError:
        raise SpecError(field, f"must be one of {', '.join(kind)}, not {value!r}") from None
