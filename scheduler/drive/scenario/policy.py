"""The ``policy`` of a file, and the changes of it that its edits make."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from jobs.reading import Reader, SpecError, duration, flag, integer, number, one_of, record
from scheduler.drive.scenario.values import PolicyChange
from scheduler.engine.policy import IdleAction, Placement, Policy, Queueing

_TIME = duration()
_SOME_TIME = duration(zero=False)
_COUNT = integer(0)
_SHARE = number(0, 1)
_CELSIUS = number(0, 200)

_SECTIONS: Mapping[str, Mapping[str, Reader[Any]]] = {
    "fair": {"half_life": _SOME_TIME},
    "preemption": {
        "enabled": flag,
        "min_runtime": _TIME,
        "protect_after": _TIME,
        "max_per_job": _COUNT,
        "cooldown": _TIME,
    },
    "reclaim": {"enabled": flag, "min_runtime": _TIME},
    "elastic": {"enabled": flag},
    "watermark": {
        "enabled": flag,
        "low": _SHARE,
        "high": number(0, 1, above=True),
        "over": _TIME,
        "floor": _SHARE,
    },
    "backpressure": {
        "max_starting": _COUNT,
        "starts_per_minute": _COUNT,
        "team_starts_per_minute": _COUNT,
        "max_pending_per_team": _COUNT,
    },
    "hang": {"every": _SOME_TIME, "timeout": _SOME_TIME, "startup_grace": _TIME},
    "idle": {"after": _TIME, "below": _SHARE, "action": one_of(IdleAction)},
    "retry": {"max": _COUNT, "backoff": _TIME, "max_backoff": _TIME},
    "health": {"breaker_ratio": _SHARE, "breaker_nodes": _COUNT, "temp_c": _CELSIUS, "clear_c": _CELSIUS},
}
_PLAIN: Mapping[str, Reader[Any]] = {
    "queueing": one_of(Queueing),
    "backfill": flag,
    "reserve_for": _COUNT,
    "placement": one_of(Placement),
    "inference_headroom": number(0, 100),
    "cycle": _SOME_TIME,
    "launch_delay": _TIME,
    "stop_delay": _TIME,
}

read_policy_change: Reader[PolicyChange] = record(
    {**_PLAIN, **{section: record(readers) for section, readers in _SECTIONS.items()}}
)
"""Reads any part of a policy."""


def changed(policy: Policy, change: PolicyChange) -> Policy:
    """Return ``policy`` with ``change`` made; within a section only the keys that it names change.

    Raises:
        SpecError: the numbers now contradict one another.
    """
    new = replace(policy, **{key: _part(getattr(policy, key), value) for key, value in change.items()})
    for problem, path in (
        ("must be below high", "watermark.low" if new.watermark.low >= new.watermark.high else ""),
        ("must be below temp_c", "health.clear_c" if new.health.clear_c >= new.health.temp_c else ""),
        ("must be at least backoff", "retry.max_backoff" if new.retry.max_backoff < new.retry.backoff else ""),
    ):
        if path:
            raise SpecError(path, problem)
    return new


def keys() -> list[str]:
    """Every key of a policy by its path, such as ``retry.max``."""
    found: list[str] = []
    for part in fields(Policy):
        value = getattr(Policy(), part.name)
        inner = [f"{part.name}.{one.name}" for one in fields(value)] if is_dataclass(value) else [part.name]
        found += inner
    return found


def _part(old: Any, value: Any) -> Any:
    return replace(old, **value) if isinstance(value, Mapping) else value
