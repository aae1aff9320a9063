"""The submit form and the job it describes: from fields to what `jobs.spec` reads, and back. Pure.

Nothing is lost between form and YAML: what the form has no field for is carried along as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

NUMBERS: Final = ("gpus", "replicas", "vram_gib", "cpus", "memory_gib", "retries")
TEXTS: Final = ("name", "cwd", "time_limit", "min_runtime", "not_before", "kind")
LISTS: Final = ("model", "after", "tolerations")
PAIRS: Final = ("env", "labels", "node_selector")
FLAGS: Final = ("share",)
OWN: Final = ("team", "cluster", "extra")
FIELDS: Final = (*OWN, "command", "priority", "preemptible", *NUMBERS, *TEXTS, *LISTS, *PAIRS, *FLAGS)
YAML_MOST: Final = 200_000


class FormError(ValueError):
    """What stands in a field cannot be read; ``field`` names it, the text says why."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.field = name
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asks for: the job's body for `jobs.submission`, its team and its cluster (None: the default)."""

    body: dict[str, Any] = field(default_factory=dict)
    team: str | None = None
    cluster: str | None = None

    def as_yaml(self) -> str:
        """The file that says the same."""
        head = {"team": self.team, "cluster": self.cluster}
        plain = {**{name: value for name, value in head.items() if value}, **self.body}
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100) if plain else ""


def from_fields(data: Mapping[str, str]) -> Asked:
    """Read the form. Raises FormError for the first field that cannot be read."""
    body: dict[str, Any] = dict(_extra(data.get("extra", "")))
    given = {name: text for name in FIELDS if (text := data.get(name, "").strip())}
    for name, text in given.items():
        if name in READERS:
            body[name] = READERS[name](name, text)
    if data.get("has_preemptible") and "preemptible" not in given:
        body["preemptible"] = False
    ordered: dict[str, Any] = {name: body[name] for name in ("name", "command", *FIELDS) if name in body}
    return Asked({**ordered, **body}, given.get("team"), given.get("cluster"))


def from_yaml(text: str) -> Asked:
    """Read a file. Raises FormError."""
    if len(text) > YAML_MOST:
        raise FormError("yaml", f"must be at most {YAML_MOST} characters long")
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        raise FormError("yaml", f"{place}{getattr(error, 'problem', None) or 'this is no YAML'}") from None
    except RecursionError:
        raise FormError("yaml", "is nested too deep") from None
    if not isinstance(plain, dict):
        raise FormError("yaml", "must be a mapping of names to values")
    body = {str(name): value for name, value in plain.items()}
    heads = [body.pop(name, None) for name in ("team", "cluster")]
    for name, head in zip(("team", "cluster"), heads, strict=True):
        if head is not None and not isinstance(head, str):
            raise FormError("yaml", f"{name}: must be text")
    return Asked(body, *heads)


def to_fields(asked: Asked) -> dict[str, str]:
    """The fields that say the same; what has none is in ``extra``, as YAML."""
    left = dict(asked.body)
    fields = {"team": asked.team or "", "cluster": asked.cluster or "", "preemptible": "on"}
    for name in (*TEXTS, *NUMBERS, "priority"):
        if isinstance(left.get(name), str | int | float) and not isinstance(left.get(name), bool):
            fields[name] = f"{left.pop(name)}"
    for name in LISTS:
        value = left.get(name)
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list) and all(isinstance(each, str) and "," not in each for each in values):
            fields[name] = ", ".join(values)
            del left[name]
    for name in PAIRS:
        pairs = left.get(name)
        if isinstance(pairs, dict) and not any("\n" in f"{key}{value}" for key, value in pairs.items()):
            fields[name] = "\n".join(f"{key}={value}" for key, value in pairs.items())
            del left[name]
    if isinstance(left.get("share"), bool):
        fields["share"] = "on" if left.pop("share") else ""
    if isinstance(left.get("preemptible"), bool):
        fields["preemptible"] = "on" if left.pop("preemptible") else ""
    command = left.get("command")
    if isinstance(command, list) and all(isinstance(part, str) for part in command):
        fields["command"] = shlex.join(command)
        del left["command"]
    fields["extra"] = yaml.safe_dump(left, sort_keys=False, allow_unicode=True) if left else ""
    return fields


def field_of(path: str) -> str:
    """The form's field that shows the error of a path such as ``env.X`` or ``after[0]``; empty: none does."""
    head = path.replace("[", ".").split(".", 1)[0]
    return head if head in FIELDS else ""


def _extra(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    return from_yaml(text).body


def _number(_: str, text: str) -> int | float | str:
    """A number where it is one; anything else goes on as it is, and the reader of jobs says what is wrong with it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(_: str, text: str) -> str:
    return text


def _flag(_: str, text: str) -> bool:
    return bool(text)


def _names(_: str, text: str) -> list[str]:
    return text.replace(",", " ").split()


def _models(_: str, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        problem = "a quotation mark is not closed" if "quotation" in str(error) else str(error)
        raise FormError(name, problem) from None


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise FormError(name, f"line {number}: must be NAME=VALUE")
        pairs[key.strip()] = value.strip() if name != "env" else value
    return pairs


READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys((*NUMBERS, "priority"), _number),
    **dict.fromkeys(LISTS, _names),
    **dict.fromkeys(PAIRS, _pairs),
    **dict.fromkeys(FLAGS, _flag),
    "model": _models,
    "command": _words,
}
