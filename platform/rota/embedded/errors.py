"""The one error of this package: a sentence for the person at the terminal."""

from __future__ import annotations


class CannotStart(Exception):
    """Rota cannot start (or stop) as asked. The message is complete and says what to do; no traceback is shown."""
