"""What a person may ask for in one job, as a frozen value, and its parsing from plain YAML or JSON values. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time
from signal import Signals
from typing import Any

from jobs.reading import (
    MOST,
    Reader,
    SpecError,
    clock,
    duration,
    flag,
    integer,
    list_of,
    name,
    number,
    one_of,
    one_or_more,
    pairs_of,
    record,
    repeated,
    shown,
    text,
)
from scheduler.engine.demand import MIB_PER_GIB, Group, Kind, Level, ScaleWindow, Shape, Topology

PRIORITIES = {"low": 100, "normal": 500, "high": 900}
PRIORITY_MOST = 1_000
CHECKPOINT_SIGNALS = ("USR1", "USR2", "HUP", "INT")
MEMORY_GIB_PER_GPU = 4
ANYWHERE = Topology()


@dataclass(frozen=True, slots=True)
class Budgets:
    """How long the job may be silent before it counts as hung, in seconds; None: the policy's numbers.

    ``heartbeat`` bounds the time without any sign of life, ``progress`` that without a new step, ``startup`` both
    before the first sign. ``phases`` are longer silences that the script may declare by name, such as a checkpoint.
    """

    heartbeat: float | None = None
    progress: float | None = None
    startup: float | None = None
    phases: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that a job's owner can say about it. Durations in seconds.

    ``not_before`` is on the clock of whoever parsed the job: seconds since the start in a scenario. ``retries`` None
    means the policy's. ``max_wait`` is the wait after which people are told. ``retry_window`` bounds the time without
    capacity after it first could have started. Before a stop ``checkpoint_signal`` (a number) is sent first, None:
    only SIGTERM; ``grace`` is the time from the request to end until SIGKILL.
    """

    name: str
    team: str
    user: str
    kind: Kind = Kind.TRAINING
    groups: tuple[Group, ...] = (Group(),)
    topology: Topology = ANYWHERE
    priority: int = PRIORITIES["normal"]
    time_limit: float | None = None
    preemptible: bool = True
    min_runtime: float | None = None
    scale: tuple[ScaleWindow, ...] = ()
    not_before: float | None = None
    after: tuple[str, ...] = ()
    max_wait: float | None = None
    retries: int | None = None
    retry_window: float | None = None
    budgets: Budgets = Budgets()
    checkpoint_signal: int | None = None
    grace: float = 30.0
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def elastic(self) -> bool:
        """Whether the number of replicas may change while it runs."""
        return any(
            bound is not None and bound != group.replicas
            for group in self.groups
            for bound in (group.min_replicas, group.max_replicas)
        )

    def shape(self, *, excluded: frozenset[str] = frozenset(), avoided: frozenset[str] = frozenset()) -> Shape:
        """Where this job fits, with the nodes that its history rules out or makes unwelcome."""
        return Shape(self.groups, self.topology, excluded, avoided)


def parse_job(value: object, path: str = "", *, team: str | None = None, user: str | None = None) -> JobSpec:
    """Read one job from plain YAML or JSON values; ``team`` and ``user`` stand in where the job names none.

    Raises:
        SpecError: the first thing that is wrong, with its place below ``path``.
    """
    try:
        return build_job(_JOB(value), team=team, user=user)
    except SpecError as error:
        raise error.within(path) from None


def build_job(values: Mapping[str, Any], *, team: str | None = None, user: str | None = None) -> JobSpec:
    """Make a job of what the readers of :data:`JOB_FIELDS` have read."""
    team = values.get("team", team)
    if team is None:
        raise SpecError("team", "is missing")
    groups = _groups(values)
    checkpoint = values.get("checkpoint", {})
    return JobSpec(
        name=values["name"],
        team=team,
        user=values.get("user") or user or team,
        groups=groups,
        scale=_scale(values, groups),
        checkpoint_signal=checkpoint.get("signal"),
        **{field: values[field] for field in _AS_THEY_ARE if field in values},
        **({"grace": checkpoint["grace"]} if "grace" in checkpoint else {}),
    )


def vram_mib(gib: float) -> int:
    """Memory in MiB, rounded up, so that nobody is promised less than was asked for."""
    return math.ceil(gib * MIB_PER_GIB)


def milli(amount: float) -> int:
    """Thousandths, rounded up."""
    return math.ceil(round(amount * 1_000, 6))


def _groups(values: Mapping[str, Any]) -> tuple[Group, ...]:
    listed = values.get("groups")
    if listed is None:
        groups: tuple[Group, ...] = (_group(values, "main"),)
    else:
        groups = tuple(_listed_group(values, own, position) for position, own in enumerate(listed))
        again = repeated(group.name for group in groups)
        if again is not None:
            raise SpecError(f"groups[{again}].name", f"{shown(groups[again].name)} is there twice")
    if sum(group.total_gpus for group in groups) > MOST:
        raise SpecError("replicas" if listed is None else "groups", f"must not come to more than {MOST} GPUs")
    return groups


def _listed_group(values: Mapping[str, Any], own: Mapping[str, Any], position: int) -> Group:
    """Make a group of its own values and, where it has none, the job's."""
    try:
        return _group({**values, **own}, own["name"])
    except SpecError as error:
        raise error.within(f"groups[{position}]") from None


def _group(values: Mapping[str, Any], title: str) -> Group:
    gpus = values.get("gpus", 1)
    share = values.get("share", False)
    if share and not values.get("vram_gib"):
        raise SpecError("vram_gib", "is missing: a job that shares its cards says how much memory it takes")
    low, high = _elastic(values)
    return Group(
        name=title,
        replicas=values.get("replicas", 1),
        gpus=gpus,
        cpus_milli=milli(values.get("cpus", gpus)),
        memory_mib=vram_mib(values.get("memory_gib", MEMORY_GIB_PER_GPU * gpus)),
        vram_mib=vram_mib(values.get("vram_gib", 0)),
        share=share,
        models=values.get("model", ()),
        selector=values.get("node_selector", ()),
        tolerations=values.get("tolerations", ()),
        kind=values.get("kind", Kind.TRAINING),
        min_replicas=low,
        max_replicas=high,
    )


def _elastic(values: Mapping[str, Any]) -> tuple[int | None, int | None]:
    low, high, replicas = values.get("min_replicas"), values.get("max_replicas"), values.get("replicas", 1)
    if low is not None and high is not None and low > high:
        raise SpecError("min_replicas", f"{low} is more than max_replicas, which is {high}")
    if low is not None and low > replicas:
        raise SpecError("min_replicas", f"{low} is more than replicas, which is {replicas}")
    if high is not None and high < replicas:
        raise SpecError("max_replicas", f"{high} is less than replicas, which is {replicas}")
    return low, high


def _scale(values: Mapping[str, Any], groups: tuple[Group, ...]) -> tuple[ScaleWindow, ...]:
    """Check what only jobs of one group can do, and that no scale time leaves the bounds that the job sets itself."""
    if len(groups) > 1:
        for key in ("min_replicas", "max_replicas", "scale"):
            if key in values:
                raise SpecError(key, "is only for jobs with one group")
    windows: tuple[ScaleWindow, ...] = values.get("scale", ())
    low, high = groups[0].min_replicas, groups[0].max_replicas
    for position, window in enumerate(windows):
        place = f"scale[{position}]"
        if window.vram_mib is not None and not groups[0].share:
            raise SpecError(f"{place}.vram_gib", "is only for jobs with share: true")
        if window.replicas is not None and low is not None and window.replicas < low:
            raise SpecError(f"{place}.replicas", f"{window.replicas} is less than min_replicas, which is {low}")
        if window.replicas is not None and high is not None and window.replicas > high:
            raise SpecError(f"{place}.replicas", f"{window.replicas} is more than max_replicas, which is {high}")
    return windows


def read_hours(values: Mapping[str, Any]) -> tuple[time, time]:
    """Return the times of day ``from`` and ``to`` of a window, which must differ."""
    if values["from"] == values["to"]:
        raise SpecError("to", "must differ from from")
    return values["from"], values["to"]


def _read_window(value: object) -> ScaleWindow:
    values = _WINDOW(value)
    start, end = read_hours(values)
    if "replicas" not in values and "vram_gib" not in values:
        raise SpecError("", "must have replicas or vram_gib")
    memory = values.get("vram_gib")
    return ScaleWindow(start, end, values.get("replicas"), None if memory is None else vram_mib(memory))


def _read_topology(value: object) -> Topology:
    topology = Topology(**_TOPOLOGY(value))
    if topology.max_per_domain is not None and topology.spread is None:
        raise SpecError("max_per_domain", "needs spread, which names the level it is about")
    return topology


def _read_priority(value: object) -> int:
    if isinstance(value, str):
        if value not in PRIORITIES:
            raise SpecError("", f"must be one of {', '.join(PRIORITIES)} or a number, not {shown(value)}")
        return PRIORITIES[value]
    return _PRIORITY(value)


def _read_signal(value: object) -> int:
    plain = value.removeprefix("SIG") if isinstance(value, str) else None
    if plain not in CHECKPOINT_SIGNALS:
        raise SpecError("", f"must be one of {', '.join(CHECKPOINT_SIGNALS)}, not {shown(value)}")
    return int(Signals[f"SIG{plain}"])


def _read_env(value: object) -> tuple[tuple[str, str], ...]:
    pairs = pairs_of(text)(value)
    for key, _ in pairs:
        if not key or "=" in key or "\0" in key:
            raise SpecError("", f"{shown(key)} cannot name a variable")
    return pairs


def _read_budgets(value: object) -> Budgets:
    return Budgets(**_BUDGETS(value))


_PRIORITY = integer(0, PRIORITY_MOST, what=f"{', '.join(PRIORITIES)} or a whole number from 0 to {PRIORITY_MOST}")
_GIB = number(0, above=True)
_SOME_TIME = duration(zero=False)
_WINDOW = record(
    {"from": clock, "to": clock, "replicas": integer(), "vram_gib": _GIB},
    needs=("from", "to"),
)
_TOPOLOGY = record(
    {
        "require": one_of(Level),
        "prefer": one_of(Level),
        "spread": one_of(Level),
        "max_per_domain": number(0, 1, above=True),
    }
)
_BUDGETS = record(
    {
        "heartbeat": _SOME_TIME,
        "progress": _SOME_TIME,
        "startup": duration(),
        "phases": pairs_of(_SOME_TIME),
    }
)
GROUP_FIELDS: Mapping[str, Reader[Any]] = {
    "kind": one_of(Kind),
    "replicas": integer(),
    "gpus": integer(),
    "cpus": number(0, above=True),
    "memory_gib": _GIB,
    "vram_gib": _GIB,
    "share": flag,
    "model": one_or_more(name),
    "node_selector": pairs_of(text),
    "tolerations": list_of(name, unique=True),
}
"""What each group may say for itself; said by the job it holds for all groups that do not."""
JOB_FIELDS: Mapping[str, Reader[Any]] = {
    "name": name,
    "team": name,
    "user": name,
    **GROUP_FIELDS,
    "groups": list_of(record({"name": name, **GROUP_FIELDS}, needs=("name",)), empty=False),
    "topology": _read_topology,
    "priority": _read_priority,
    "time_limit": _SOME_TIME,
    "preemptible": flag,
    "min_runtime": duration(),
    "min_replicas": integer(),
    "max_replicas": integer(),
    "scale": list_of(_read_window),
    "not_before": duration(),
    "after": list_of(name, unique=True),
    "max_wait": duration(),
    "retries": integer(0),
    "retry_window": _SOME_TIME,
    "budgets": _read_budgets,
    "checkpoint": record({"signal": _read_signal, "grace": duration()}),
    "command": list_of(text, empty=False),
    "env": _read_env,
    "cwd": text,
    "labels": pairs_of(text),
}
"""What a job may say, wherever it is submitted."""
_JOB = record(JOB_FIELDS, needs=("name",))
_AS_THEY_ARE = (
    "kind",
    "topology",
    "priority",
    "time_limit",
    "preemptible",
    "min_runtime",
    "not_before",
    "after",
    "max_wait",
    "retries",
    "retry_window",
    "budgets",
    "command",
    "env",
    "cwd",
    "labels",
)
