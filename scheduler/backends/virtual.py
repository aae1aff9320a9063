"""A virtual cluster as a function of what is written down and of the time: nothing of it lives in any process.

What a cluster of this kind consists of is its `World` (read from plain values), what an attempt was told is its
`Facts`, and `report` says what has become of it by now. So it survives every restart and is the same in every process.
Faults on demand are part of the world: a node that is `down` from one moment to another.

    world = read_world({"nodes": [{"prefix": "h", "count": 4, "gpus": 8, "model": "H100"}], "speed": 60})

Times are Unix seconds; durations in a world and in facts are virtual seconds, of which `speed` pass in a real one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from jobs.reading import SpecError, duration, integer, list_of, name, number, pairs_of, record, text
from scheduler.backends.base import (
    AttemptReport,
    CardReport,
    Cause,
    LogChunk,
    NodeReport,
    PermanentError,
    Phase,
    ReplicaReport,
)

K = TypeVar("K")
FENCE_S = 120.0
"""Seconds out of contact after which a node has surely ended its jobs."""
DURATION_LABEL, EXIT_LABEL = "simulate/duration", "simulate/exit"
"""Labels by which a job says what it plays: `20m`, and the exit code of every attempt."""
OTHER_KEYS = frozenset({"demo", "keep_hours", "keep_log_days"})
"""Keys of a cluster's `config` that are no part of the world."""
LINE = 64
"""Bytes of each line that a virtual job writes, its end included: so any part of a log is known without the rest."""
LINE_EVERY_S = 5.0
_SIGKILL, _SIGTERM = 9, 15
_MIB = 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """A node is out of contact from ``at`` until ``until`` (None: until somebody ends it)."""

    node: str
    at: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class World:
    """A virtual cluster. ``launch_delay`` and ``stop_delay`` in virtual seconds."""

    nodes: tuple[NodeReport, ...]
    speed: float = 1.0
    launch_delay: float = 2.0
    stop_delay: float = 1.0
    faults: tuple[Fault, ...] = ()

    def real(self, seconds: float) -> float:
        """The real seconds in which so many virtual ones pass."""
        return seconds / self.speed

    def nodes_at(self, now: float) -> tuple[NodeReport, ...]:
        """The nodes as the cluster reports them."""
        dark = {fault.node for fault in self.faults if _is_on(fault, now)}
        if not dark:
            return self.nodes
        return tuple(
            replace(node, ready=False, note="out of contact") if node.name in dark else node for node in self.nodes
        )

    def changed_between(self, before: float, now: float) -> tuple[NodeReport, ...]:
        """The nodes whose state has changed after ``before`` and until ``now``."""
        if not any(before < at <= now for fault in self.faults for at in (fault.at, fault.until) if at is not None):
            return ()
        old = {node.name: node for node in self.nodes_at(before)}
        return tuple(node for node in self.nodes_at(now) if node != old[node.name])


@dataclass(frozen=True, slots=True)
class Part:
    """One replica: where it lies and, where they are known, the UUIDs of its cards."""

    rank: int
    group: str
    index: int
    node: str
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is written down of an attempt.

    ``launched``: when the cluster took it in; ``stop``: when it was asked to end, None while it is not; ``duration``:
    what it does, None: it plays as long as its key says.
    """

    attempt: str
    launched: float
    parts: tuple[Part, ...]
    time_limit: float | None = None
    grace: float = 30.0
    stop: float | None = None
    stop_why: str = ""
    duration: float | None = None
    exit_code: int = 0


def report(facts: Facts, world: World, now: float) -> AttemptReport:
    """What has become of an attempt by ``now``."""
    begin = facts.launched + world.real(world.launch_delay)
    end = _end(facts, world, begin)
    started = begin if begin <= min(now, end.at) else None
    if now < end.at:
        phase, at = (Phase.STARTING, facts.launched) if started is None else (Phase.RUNNING, begin)
        return _report(facts, phase, at, started, _End(at))
    return _report(facts, Phase.LOST if end.cause is Cause.LOST else Phase.EXITED, end.at, started, end)


def profile(attempt: str, labels: Mapping[str, str], time_limit: float | None) -> tuple[float, int]:
    """How long (virtual seconds) an attempt works and how it exits, by its job's labels, else by its key alone."""
    lasts = chance(attempt, "lasts")
    most = 1_800.0 if time_limit is None else 0.95 * time_limit
    seconds = min(most, 30.0 * math.exp(4.0 * lasts))
    with suppress(KeyError, SpecError):
        seconds = duration()(labels[DURATION_LABEL])
    code = labels.get(EXIT_LABEL, "0")
    return seconds, int(code) if code.isascii() and code.isdigit() and len(code) <= 3 else 0


def chance(*words: object) -> float:
    """A number from 0 to below 1 that is the same for the same words, everywhere and for ever."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / float(1 << 48)


def log(facts: Facts, world: World, now: float, *, offset: int, limit: int) -> LogChunk:
    """The output of a replica up to ``now``: a line every few seconds, of equal length."""
    seen = report(facts, world, now)
    if seen.started is None:
        return LogChunk(b"", offset, offset, seen.phase.ended)
    until = seen.at if seen.phase.ended else now
    lines = 1 + int((until - seen.started) * world.speed / LINE_EVERY_S)
    first, stop = offset // LINE, min(lines * LINE, offset + limit)
    written = b"".join(_line(facts.attempt, number) for number in range(first, -(-stop // LINE)))
    data = written[offset - first * LINE : stop - first * LINE] if stop > offset else b""
    return LogChunk(data, offset, offset + len(data), seen.phase.ended and offset + len(data) >= lines * LINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """Synthetic telemetry of one card: shares of 1, degrees Celsius, watts."""

    utilization: float
    memory: float
    temperature_c: float
    power_w: float


def reading(uuid: str, now: float, attempt: str | None = None) -> Reading:
    """What a virtual card shows at ``now``: idle without an ``attempt``, else about as busy as that one makes it."""
    if attempt is None:
        return Reading(0.0, 0.01, 31.0 + 4.0 * chance(uuid, "idle"), 60.0 + 15.0 * chance(uuid, "draw"))
    level = 0.55 + 0.42 * chance(attempt, "busy")
    wave = 0.05 * math.sin(now / 37.0 + 6.3 * chance(attempt, uuid))
    busy = min(1.0, max(0.0, level + wave))
    return Reading(busy, 0.2 + 0.75 * chance(attempt, "memory"), 38.0 + 34.0 * busy, 90.0 + 560.0 * busy)


def choose_cards(world: World, wanted: Sequence[tuple[K, str, int]], taken: Iterable[str]) -> dict[K, tuple[str, ...]]:
    """What nodes pick by themselves where they choose: so many of their free cards, from the highest index down.

    ``wanted`` has who, on which node and how many, in the order in which they came; ``taken`` are cards that others
    hold.
    """
    held = set(taken)
    free = {node.name: [card.uuid for card in node.gpus if card.uuid not in held] for node in world.nodes}
    picked: dict[K, tuple[str, ...]] = {}
    for who, node, count in wanted:
        cards = free.get(node, [])
        if len(cards) >= count:
            picked[who] = tuple(cards.pop() for _ in range(count))
    return picked


def read_world(plain: Mapping[str, Any]) -> World:
    """A world from plain values, with its nodes laid out. Raises PermanentError that names the field."""
    known = {key: value for key, value in plain.items() if key not in OTHER_KEYS}
    try:
        values = _WORLD(known)
    except SpecError as error:
        raise PermanentError(f"config.{error}") from None
    nodes = [node for pool in values.pop("nodes", ()) for node in _lay_out(pool)]
    if len({node.name for node in nodes}) != len(nodes):
        raise PermanentError("config.nodes: two nodes have the same name")
    return World(nodes=tuple(sorted(nodes, key=lambda node: node.name)), **values)


@dataclass(frozen=True, slots=True)
class _End:
    """How and when something ends."""

    at: float
    cause: Cause = Cause.NONE
    code: int | None = None
    signal: int | None = None
    note: str = ""


def _end(facts: Facts, world: World, begin: float) -> _End:
    """How the attempt ends as far as it is known now; never is ``inf``."""
    ends = []
    if facts.duration is not None:
        ends.append(_End(begin + world.real(facts.duration), Cause.SELF, facts.exit_code))
    delay = world.real(world.stop_delay)
    if facts.time_limit is not None:
        at = begin + world.real(facts.time_limit) + min(delay, facts.grace)
        ends.append(_End(at, Cause.TIME_LIMIT, 128 + _SIGTERM, _SIGTERM, "time limit"))
    if facts.stop is not None:
        number = _SIGKILL if facts.grace < delay else _SIGTERM
        at = max(facts.launched, facts.stop) + min(delay, facts.grace)
        ends.append(_End(at, Cause.STOPPED, 128 + number, number, facts.stop_why))
    first = min(ends, key=lambda end: end.at, default=_End(math.inf))
    return _seen(first, facts, world)


def _seen(end: _End, facts: Facts, world: World) -> _End:
    """What is heard of an end while nodes go dark: later, or that it was lost with its node."""
    nodes = {part.node for part in facts.parts}
    for fault in sorted(world.faults, key=lambda fault: fault.at):
        until = math.inf if fault.until is None else fault.until
        if fault.node not in nodes or until <= facts.launched or end.at < fault.at:
            continue
        fenced = max(fault.at, facts.launched) + world.real(FENCE_S)
        if until >= fenced and end.at > fault.at:
            return _End(fenced, Cause.LOST, note=f"its node {fault.node} was out of contact")
        if end.at < until:
            end = replace(end, at=until)
    return end


def _report(facts: Facts, phase: Phase, at: float, started: float | None, end: _End) -> AttemptReport:
    replicas = tuple(
        ReplicaReport(
            part.rank, part.group, part.index, part.node, phase, at, end.code, end.signal, end.cause,
            part.gpus if started is not None else (), end.note,
        )
        for part in facts.parts
    )  # fmt: skip
    return AttemptReport(facts.attempt, phase, at, started, end.code, end.signal, end.cause, end.note, replicas)


def _is_on(fault: Fault, now: float) -> bool:
    return fault.at <= now and (fault.until is None or now < fault.until)


def _line(attempt: str, number: int) -> bytes:
    loss = 1.2 + 6.0 * math.exp(-number / 60.0) + 0.2 * chance(attempt, number)
    rate = 900 + int(300 * chance(attempt, number, "rate"))
    return f"step {number * 10:>8}  loss {loss:7.4f}  {rate:>5} samples/s".ljust(LINE - 1).encode() + b"\n"


def _lay_out(pool: Mapping[str, Any]) -> Iterable[NodeReport]:
    """The nodes of one row of `nodes`."""
    memory = math.ceil(pool.get("gpu_gib", 80) * _MIB)
    per_rack, per_switch = pool.get("per_rack", 8), pool.get("per_switch", 32)
    for position in range(pool["count"]):
        title = f"{pool['prefix']}{position + 1:0{len(str(pool['count']))}d}"
        cards = tuple(
            CardReport(f"GPU-sim-{title}-{index}", index, memory, virtual=True, model=pool["model"])
            for index in range(pool.get("gpus", 8))
        )
        yield NodeReport(
            name=title,
            model=pool["model"] if cards else "",
            gpus=cards,
            cpus=pool.get("cpus", 128),
            memory_mib=pool.get("memory_gib", 1024) * _MIB,
            labels=dict(pool.get("labels", ())),
            taints=tuple(pool.get("taints", ())),
            rack=f"{pool['prefix']}rack{position // per_rack + 1}",
            switch=f"{pool['prefix']}switch{position // per_switch + 1}",
        )


def _read_fault(value: object) -> Fault:
    return Fault(**_FAULT(value))


_MOMENT = number(0, 1e11)
_FAULT = record({"node": name, "at": _MOMENT, "until": _MOMENT}, needs=("node", "at"))
_POOL = record(
    {
        "prefix": name,
        "count": integer(1, 100_000),
        "gpus": integer(0, 64),
        "model": name,
        "gpu_gib": number(0, 10_000, above=True),
        "cpus": integer(1, 4096),
        "memory_gib": integer(1, 1_000_000),
        "labels": pairs_of(text),
        "taints": list_of(name),
        "per_rack": integer(),
        "per_switch": integer(),
    },
    needs=("prefix", "count", "model"),
)
_FIELDS = {
    "nodes": list_of(_POOL),
    "speed": number(0, 1e6, above=True),
    "launch_delay": duration(),
    "stop_delay": duration(),
    "faults": list_of(_read_fault),
}
_WORLD = record(_FIELDS)
