"""Which backends there are, by name. A new one is one line here; its module is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from scheduler.backends.base import Backend, PermanentError

BACKENDS = {
    "local": "scheduler.backends.local:LocalBackend",
    "simulated": "scheduler.backends.simulated:SimulatedBackend",
}


def create(name: str, **options: Any) -> Backend:
    """Make the backend called `name` with its own options (see its class).

    Raises:
        PermanentError: there is none of that name; TypeError where an option is unknown.
    """
    if name not in BACKENDS:
        raise PermanentError(f"backend: {name!r} is unknown, there are {', '.join(sorted(BACKENDS))}")
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(module), attribute)(**options)
    return backend
