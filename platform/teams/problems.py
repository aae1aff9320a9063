"""What a service says when it does not do what it was asked to: one family, told apart by kind and code."""

from __future__ import annotations

from typing import Any


class Problem(Exception):
    """A refusal. The text is one line for people, ``code`` one word for programs, ``facts`` the numbers behind it."""

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts


class Invalid(Problem):
    """What was asked for makes no sense; ``field`` in the facts is the path of the culprit."""


class Forbidden(Problem):
    """Whoever asked may not do that."""


class NotFound(Problem):
    """There is no such thing, or not for whoever asked."""


class Conflict(Problem):
    """It makes sense, but not in the present state."""
