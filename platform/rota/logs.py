"""How log lines look: one JSON object a line, or coloured text for a person."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import structlog


def _without_colours(_logger: Any, _name: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop uvicorn's second copy of its message, made for terminals."""
    entry.pop("color_message", None)
    return entry


def _for_people() -> structlog.dev.ConsoleRenderer:
    """Plain tracebacks: the richer ones print local variables, and with them passwords and tokens."""
    return structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)


def log_config(level: str, style: str) -> dict[str, Any]:
    """A `logging.config.dictConfig` for one process: everything to standard output at `level` and above.

    `style` is `json` or `console`. Lines of libraries get the same shape as ours.
    """
    renderer = structlog.processors.JSONRenderer() if style == "json" else _for_people()
    before = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        _without_colours,
    ]
    after: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if style == "json":
        after.append(structlog.processors.format_exc_info)
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "processors": [*after, renderer],
        "foreign_pre_chain": before,
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"rota": formatter},
        "handlers": {"stdout": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "formatter": "rota"}},
        "root": {"handlers": ["stdout"], "level": level.upper()},
        "loggers": {
            # These speak at INFO about each request, task or connection; ours says the same once, in its own words.
            "uvicorn.access": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.beat": {"level": "WARNING"},
            "django.server": {"handlers": [], "level": "WARNING", "propagate": True},
            "httpx": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
        },
    }
