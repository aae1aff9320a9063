"""What the body of a new job may say, as JSON Schema for the description of the API.

The reading itself is `jobs.spec.parse_job`, the one truth; a test compares the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.reading import MOST, NAME_LENGTH
from jobs.spec import CHECKPOINT_SIGNALS, PRIORITIES, PRIORITY_MOST
from scheduler.engine.demand import Kind, Level

Schema = Mapping[str, Any]


def _whole(said: str, least: int = 1, most: int = MOST) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "description": said}


def _text(said: str, **more: Any) -> Schema:
    return {"type": "string", "description": said, **more}


def _name(said: str) -> Schema:
    return _text(said, minLength=1, maxLength=NAME_LENGTH)


def _time(said: str) -> Schema:
    """Seconds, or text such as `90s`, `5m`, `2h`, `1d`."""
    either = [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*[smhd]?$"}]
    return {"oneOf": either, "description": f"{said} Seconds, or text such as 90s, 5m, 2h, 1d."}


def _gib(said: str) -> Schema:
    return {
        "type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": MOST, "description": f"{said} In GiB."
    }  # fmt: skip


def _map(said: str, values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values, "description": said}


def _record(said: str, properties: Mapping[str, Schema], needs: tuple[str, ...] = ()) -> Schema:
    found = {"type": "object", "properties": properties, "additionalProperties": False, "description": said}
    return found | ({"required": list(needs)} if needs else {})


def _list(said: str, items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, "description": said, **more}


_ANY_TEXT: Schema = {"type": "string"}
_ANY_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH}
_LEVEL: Schema = {"type": "string", "enum": [level.value for level in Level]}
_CLOCK: Schema = {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}
_SHARE: Schema = {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}

GROUP: Mapping[str, Schema] = {
    "kind": {"type": "string", "enum": [kind.value for kind in Kind], "default": Kind.TRAINING.value},
    "replicas": _whole("How many of it; all start together or none does. Default 1."),
    "gpus": _whole("Cards of each replica. Default 1."),
    "cpus": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "description": "Of each replica."},
    "memory_gib": _gib("Host memory of each replica."),
    "vram_gib": _gib("Memory of each card: at least that much, or with `share` that slice of it."),
    "share": {"type": "boolean", "description": "Take only a slice of each card."},
    "model": {"oneOf": [_ANY_NAME, _list("", _ANY_NAME, minItems=1)], "description": "GPU models that will do."},
    "node_selector": _map("Labels that the node must have.", _ANY_TEXT),
    "tolerations": _list("Taints that do not matter.", _ANY_NAME),
}
JOB: Mapping[str, Schema] = {
    "name": _name("What people call it; need not be unique."),
    "team": _name("Default: your team, if you are in one only."),
    "user": _name("Only your own name."),
    "cluster": _name("Default: the team's."),
    **GROUP,
    "groups": _list(
        "Several kinds of replica that start together; each may say what the job would.",
        _record("", {"name": _ANY_NAME, **GROUP}, ("name",)),
        minItems=1,
    ),
    "topology": _record(
        "How near to each other the replicas must be.",
        {"require": _LEVEL, "prefer": _LEVEL, "spread": _LEVEL, "max_per_domain": _SHARE},
    ),
    "priority": {
        "oneOf": [{"type": "string", "enum": list(PRIORITIES)}, _whole("", 0, PRIORITY_MOST)],
        "description": ", ".join(f"{name} {number}" for name, number in PRIORITIES.items()) + ". Default normal.",
    },
    "time_limit": _time("The job is ended after that; shorter ones start earlier."),
    "preemptible": {"type": "boolean", "default": True},
    "min_runtime": _time("Not preempted before that."),
    "min_replicas": _whole("Elastic: it starts with as few."),
    "max_replicas": _whole("Elastic: it grows to as many."),
    "scale": _list(
        "Other numbers at some times of day.",
        _record("", {"from": _CLOCK, "to": _CLOCK, "replicas": _whole(""), "vram_gib": _gib("")}, ("from", "to")),
    ),
    "not_before": _time("Not to start before that long after the submission."),
    "after": _list("Jobs (names or keys) of the team that must have succeeded.", _ANY_NAME),
    "max_wait": _time("People are told when it waits longer."),
    "retries": _whole("Of its own failures.", 0),
    "retry_window": _time("How long it may wait for cards when it runs again."),
    "budgets": _record(
        "How long it may be silent before it counts as hung.",
        {
            "heartbeat": _time(""),
            "progress": _time(""),
            "startup": _time(""),
            "phases": _map("Longer silences by name.", _time("")),
        },
    ),
    "checkpoint": _record(
        "How it is asked to save itself before it is stopped.",
        {
            "signal": _text("", enum=[*CHECKPOINT_SIGNALS, *(f"SIG{name}" for name in CHECKPOINT_SIGNALS)]),
            "grace": _time(""),
        },
    ),
    "command": _list("Program and arguments; no shell.", _ANY_TEXT, minItems=1),
    "env": _map("Variables of its environment.", _ANY_TEXT),
    "cwd": _text("Folder that it starts in."),
    "labels": _map("For people and for filters.", _ANY_TEXT),
}
SCHEMA: Schema = _record("A job to run.", JOB, ("name",))
EXAMPLE: Mapping[str, Any] = {
    "name": "hello",
    "team": "demo",
    "gpus": 1,
    "command": ["python3", "-c", 'print("hello")'],
}
