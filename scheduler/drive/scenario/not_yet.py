"""Keys of the format that are understood but change nothing yet, so that a file that relies on one hears about it."""

from collections.abc import Callable, Iterator, Mapping

Test = Callable[[object], bool]


def _given(value: object) -> bool:
    """Whether there is anything to give effect to."""
    return value not in (None, False, [], {})


def _timed(value: object) -> bool:
    """Whether the idle rule is turned on: by a time other than 0."""
    return isinstance(value, Mapping) and str(value.get("after", 0)).strip("smhd ") not in ("0", "0.0")


NOT_YET: Mapping[str, Test] = {
    "policy.hang": _given,
    "policy.idle": _timed,
    "policy.health": _given,
    "jobs.hang_at": lambda value: value is not None,
    "jobs.silent": _given,
    "jobs.idle_at": lambda value: value is not None,
    "faults": _given,
}
"""Path of a key, list positions left out, to the test of whether its value turns anything on.

Whoever gives a key its effect takes its row out.
"""


def not_yet(scenario: object, table: Mapping[str, Test] = NOT_YET) -> list[str]:
    """Name the keys of a file's plain values that would change something but do not yet, in the table's order."""
    return [path for path, turns_on in table.items() if any(map(turns_on, _everywhere(scenario, path.split("."))))]


def _everywhere(scenario: object, keys: list[str]) -> Iterator[object]:
    """All values at the end of a path, and those that an edit puts there later."""
    yield from _values(scenario, keys)
    if keys[0] == "policy":
        yield from _values(scenario, ["edits", *keys])
    elif keys[0] == "teams":
        yield from _values(scenario, ["edits", *keys[1:]])


def _values(value: object, keys: list[str]) -> Iterator[object]:
    """All values at the end of a path, through whatever lists lie on it."""
    if not keys:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, keys)
    elif isinstance(value, Mapping) and keys[0] in value:
        yield from _values(value[keys[0]], keys[1:])
