"""A whole file from text or plain values, with every name in it checked against what it stands for."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from jobs.reading import Reader, SpecError, duration, integer, record, shown, text
from quotas.limits import Team
from scheduler.drive.scenario.events import EditChecker, checked_faults, read_edits, read_faults
from scheduler.drive.scenario.jobs import entries_reader, expand
from scheduler.drive.scenario.nodes import read_nodes
from scheduler.drive.scenario.plain import load
from scheduler.drive.scenario.policy import changed, read_policy_change
from scheduler.drive.scenario.teams import DEFAULT_TEAM, read_teams, tree_of
from scheduler.drive.scenario.values import NodeSpec, Scenario
from scheduler.engine.policy import Policy

DEFAULT_START = datetime(2026, 1, 5)  # noqa: DTZ001  a wall clock, whatever the zone
SEED_MOST = 2**63 - 1
FILE_MOST = 512 * 2**20
YEARS = range(1970, 2201)


def load_scenario(path: Path, *, mode: Literal["simulate", "run"] = "simulate") -> Scenario:
    """Read a file; see :func:`parse_scenario`."""
    return parse_scenario(load_file(path), mode=mode)


def load_file(path: Path) -> object:
    """Read the plain values of a YAML or JSON file. Raises SpecError, also for a file that cannot be read."""
    try:
        if path.is_file() and path.stat().st_size > FILE_MOST:
            raise SpecError(str(path), f"must not be larger than {FILE_MOST // 2**20} MiB")
        return load(path.read_bytes())
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror or error}") from None


def parse_scenario(source: object, *, mode: Literal["simulate", "run"] = "simulate") -> Scenario:
    """Read a scenario from text (YAML or JSON) or from plain values.

    With ``mode`` "run" jobs are real commands on this machine's cards: each has ``command``, and no ``nodes`` or
    ``faults`` are taken.

    Raises:
        SpecError: the first thing that is wrong, on one line.
    """
    value = load(source) if isinstance(source, str | bytes) else source
    if value is None:
        raise SpecError("", "the file is empty")
    if not isinstance(value, dict):
        raise SpecError("", f"the file must hold a mapping, not {shown(value)}")
    if mode == "run":
        for key in ("nodes", "faults"):
            if key in value:
                raise SpecError(key, "must be left out: jobs run on this machine's own cards")
    try:
        return _build(_simulated(value) if mode == "simulate" else _real(value), real=mode == "run")
    except RecursionError:
        raise SpecError("teams", "is nested too deeply") from None


def _build(values: Mapping[str, Any], *, real: bool) -> Scenario:
    nodes = {node.name: node for node in values.get("nodes", ())}
    capacity = None if real else _cards(nodes)
    teams = values.get("teams") or (Team(DEFAULT_TEAM),)
    start, timezone = values.get("start", DEFAULT_START), values.get("timezone", "UTC")
    start_unix = start.replace(tzinfo=ZoneInfo(timezone)).timestamp()
    tree = tree_of(teams, timezone, capacity, start_unix)
    policy = _first_policy(values.get("policy", {}))
    try:
        entries = entries_reader(real=real, team=None if "teams" in values else DEFAULT_TEAM)(values["jobs"])
        jobs, names = expand(entries, tree.index)
    except SpecError as error:
        raise error.under("jobs") from None
    checker = EditChecker(
        nodes=None if real else nodes, names=names, tree=tree, policy=policy, capacity=capacity, start_unix=start_unix
    )
    return Scenario(
        nodes=tuple(nodes.values()),
        quotas=tree,
        policy=policy,
        jobs=jobs,
        faults=checked_faults(values.get("faults", ()), nodes),
        edits=checker.check(values.get("edits", ())),
        start=start,
        until=values.get("until"),
        seed=values.get("seed", 0),
    )


def _cards(nodes: Mapping[str, NodeSpec]) -> dict[str, int]:
    """How many cards of each model there are, those of nodes that join later too."""
    cards: Counter[str] = Counter()
    for node in nodes.values():
        cards[node.model] += node.gpus
    return dict(cards)


def _first_policy(change: Mapping[str, object]) -> Policy:
    try:
        return changed(Policy(), change)
    except SpecError as error:
        raise error.under("policy") from None


def _read_start(value: object) -> datetime:
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001  a wall clock, whatever the zone
    if not isinstance(value, datetime):
        raise SpecError("", f"must be a date and time such as 2026-03-02T08:00:00, not {shown(value)}")
    if value.tzinfo is not None:
        raise SpecError("", "must have no offset: it is the wall clock of timezone")
    if value.year not in YEARS:
        raise SpecError("", f"must lie between the years {YEARS[0]} and {YEARS[-1]}")
    return value


def _read_timezone(value: object) -> str:
    zone = text(value)
    try:
        return ZoneInfo(zone).key
    except (KeyError, ValueError, OSError):
        raise SpecError("", f"must be a time zone such as Europe/Berlin, not {shown(zone)}") from None


def _anything(value: object) -> object:
    return value


_COMMON: dict[str, Reader[Any]] = {
    "start": _read_start,
    "timezone": _read_timezone,
    "until": duration(zero=False),
    "seed": integer(0, SEED_MOST),
    "teams": read_teams,
    "policy": read_policy_change,
    "jobs": _anything,
    "edits": read_edits,
    "about": _anything,
    "expect": _anything,
    "invalid": _anything,
}
_simulated = record({**_COMMON, "nodes": read_nodes, "faults": read_faults}, needs=("nodes", "jobs"))
_real = record(_COMMON, needs=("jobs",))
