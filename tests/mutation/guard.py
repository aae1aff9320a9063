"""A guard: a piece of source that the engine must not lose, and the test that misses it."""

from typing import NamedTuple


class Guard(NamedTuple):
    """``code`` stands exactly once in ``file``; with ``instead`` in its place, ``test`` must fail."""

    name: str
    file: str
    code: str
    instead: str
    test: str
