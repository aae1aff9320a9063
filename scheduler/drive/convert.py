"""Job traces (CSV) to scenarios: rows of what once ran become jobs for a cluster of one's choice."""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

import yaml

from jobs.reading import LONGEST, MOST, SpecError, name, shown

DEFAULT_TEAM = "default"
_MODEL_SEPARATOR = "|"
_MILLI = 1_000


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a trace holds what; None: it has none.

    ``submit`` is a date and time or a number of seconds. The run time is ``duration`` (seconds) or, without one, what
    lies between ``begin`` and ``end``. ``gpu_milli`` is the part of each card that a job takes, 1000 a whole one.
    """

    submit: str
    gpus: str
    duration: str | None = None
    begin: str | None = None
    end: str | None = None
    team: str | None = None
    user: str | None = None
    name: str | None = None
    model: str | None = None
    cpu_milli: str | None = None
    memory_mib: str | None = None
    gpu_milli: str | None = None


PRESETS: Mapping[str, Columns] = {
    "philly": Columns(submit="timestamp", duration="duration", gpus="num_gpus", team="cluster"),
    "elasticflow": Columns(submit="submit_time", duration="duration", gpus="num_gpu", name="job_id"),
    "openb": Columns(
        submit="creation_time",
        begin="scheduled_time",
        end="deletion_time",
        gpus="num_gpu",
        name="name",
        model="gpu_spec",
        cpu_milli="cpu_milli",
        memory_mib="memory_mib",
        gpu_milli="gpu_milli",
    ),
}
"""Columns of public traces by name."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster and the rules that a trace is to be played with.

    Rows submitted before ``since`` or not before ``until`` (dates and times, or seconds, as the column has them) are
    left out. ``limit_factor``: the declared time limit as a multiple of the true run time; None: none is declared.
    ``speed`` divides the times between submissions.
    """

    nodes: int
    gpus: int = 8
    model: str = "GPU"
    vram_gib: float = 80.0
    since: str | None = None
    until: str | None = None
    limit_factor: float | None = 1.0
    speed: float = 1.0
    policy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Converted:
    """A scenario as plain values, and how many rows of the time asked for it leaves out, by why."""

    scenario: dict[str, Any]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Row:
    submit: float
    job: dict[str, Any]


def convert_rows(rows: Iterable[Sequence[str]], columns: Columns, target: Target) -> Converted:
    """Make a scenario of the rows of a CSV file, the header first.

    A job of more cards than a node has takes whole nodes and one more for what remains, as one gang. Rows without
    cards, and those that never ran, are left out.

    Raises:
        SpecError: a column that is not there, or the first bad row, ``row 17, column duration: …`` (the header is 1).
    """
    reader = _RowReader(rows, columns, target)
    read = sorted(reader, key=lambda row: row.submit)
    if not read:
        raise SpecError("", "no job is left: check the columns and the time asked for")
    origin = read[0].submit
    jobs = []
    for row in read:
        row.job["at"] = _tidy((row.submit - origin) / target.speed)
        jobs.append(row.job)
    scenario: dict[str, Any] = {
        "nodes": [
            {
                "prefix": "n",
                "count": target.nodes,
                "gpus": target.gpus,
                "model": target.model,
                "vram_gib": _tidy(target.vram_gib),
            }
        ],
        "teams": [{"name": team} for team in sorted({job["team"] for job in jobs})],
        "policy": dict(target.policy),
        "jobs": jobs,
    }
    if reader.dated:
        start = datetime.fromtimestamp(math.floor(origin), UTC).replace(tzinfo=None)
        scenario = {"start": start.isoformat(), **scenario}
    return Converted(scenario, reader.left_out)


def rows_of(file: TextIO) -> Iterator[list[str]]:
    """The rows of an open CSV file. Raises SpecError where it is none."""
    rows = csv.reader(file)
    try:
        yield from rows
    except (csv.Error, UnicodeDecodeError) as error:
        raise SpecError(f"row {rows.line_num + 1}", f"is not CSV: {error}") from None


def write_scenario(scenario: Mapping[str, Any], file: TextIO, *, as_json: bool) -> None:
    """Write a scenario as JSON, or as YAML for people; either way with one job a line."""
    head = {key: value for key, value in scenario.items() if key != "jobs"}
    lines = (json.dumps(job, ensure_ascii=False) for job in scenario["jobs"])
    if as_json:
        file.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "jobs": [\n')
        file.writelines((",\n" if number else "") + line for number, line in enumerate(lines))
        file.write("\n]}\n")
        return
    file.write(yaml.safe_dump(head, sort_keys=False, allow_unicode=True, default_flow_style=None))
    file.write("jobs:\n")
    file.writelines(f"  - {line}\n" for line in lines)


class _RowReader:
    """Iterates over the jobs of a trace and counts what it leaves out."""

    def __init__(self, rows: Iterable[Sequence[str]], columns: Columns, target: Target) -> None:
        self.rows = iter(rows)
        self.target = target
        self.left_out: dict[str, int] = {}
        self.dated = False
        self.number = 1
        header = [title.strip().removeprefix("\ufeff") for title in next(self.rows, ())]
        self.titles = {key: title for key, title in asdict(columns).items() if title is not None}
        for title in self.titles.values():
            if title not in header:
                raise SpecError("row 1", f"there is no column {shown(title)}, there are {', '.join(header) or 'none'}")
        if "duration" not in self.titles and not {"begin", "end"} <= self.titles.keys():
            raise SpecError("", "say which column holds the duration, or which ones the begin and the end")
        self.places = {key: header.index(title) for key, title in self.titles.items()}
        self.width = max(self.places.values()) + 1
        self.since = None if target.since is None else _moment(target.since, "from")[0]
        self.until = None if target.until is None else _moment(target.until, "to")[0]
        self.names: set[str] = set()

    def __iter__(self) -> Iterator[_Row]:
        for row in self.rows:
            self.number += 1
            if not row:
                continue
            if len(row) < self.width:
                raise SpecError(f"row {self.number}", f"has {len(row)} columns, fewer than the header")
            submit, self.dated = self._when(row, "submit")
            if (self.since is not None and submit < self.since) or (self.until is not None and submit >= self.until):
                continue
            gpus = self._whole(row, "gpus", 0)
            if gpus == 0:
                self._leave_out("without GPUs")
            elif "duration" not in self.places and not row[self.places["begin"]].strip():
                self._leave_out("that never ran")
            else:
                yield _Row(submit, self._job(row, gpus))

    def _job(self, row: Sequence[str], gpus: int) -> dict[str, Any]:
        duration = self._duration(row)
        job: dict[str, Any] = {
            "name": self._name(row),
            "at": 0,
            "team": self._title(row, "team") or DEFAULT_TEAM,
            **self._cards(row, gpus),
            "duration": _tidy(duration),
        }
        if self.target.limit_factor is not None:
            job["time_limit"] = _tidy(max(1.0, duration * self.target.limit_factor))
        if user := self._title(row, "user"):
            job["user"] = user
        if "model" in self.places and (models := row[self.places["model"]].strip()):
            job["model"] = models.split(_MODEL_SEPARATOR)
        return job

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def _cards(self, row: Sequence[str], gpus: int) -> dict[str, Any]:
        """How a job's cards spread over nodes, with the CPUs and the memory that each replica gets of them."""
        per = self.target.gpus
        whole, rest = divmod(gpus, per)
        cards: dict[str, Any]
        if gpus <= per:
            cards = {"gpus": gpus} | self._host(row, 1.0)
        elif rest == 0:
            cards = {"replicas": whole, "gpus": per} | self._host(row, per / gpus)
        else:
            nodes = {"name": "nodes", "replicas": whole, "gpus": per} | self._host(row, per / gpus)
            cards = {"groups": [nodes, {"name": "rest", "gpus": rest} | self._host(row, rest / gpus)]}
        part = self._whole(row, "gpu_milli", 1) if "gpu_milli" in self.places else _MILLI
        if part < _MILLI:
            cards |= {"share": True, "vram_gib": _tidy((self.target.vram_gib - 1) * part / _MILLI)}
        return cards

    def _host(self, row: Sequence[str], part: float) -> dict[str, Any]:
        host: dict[str, Any] = {}
        if "cpu_milli" in self.places:
            host["cpus"] = _tidy(max(1, self._whole(row, "cpu_milli", 0)) * part / _MILLI)
        if "memory_mib" in self.places:
            host["memory_gib"] = _tidy(max(1, self._whole(row, "memory_mib", 0)) * part / 1_024)
        return host

    def _duration(self, row: Sequence[str]) -> float:
        if "duration" in self.places:
            seconds = self._seconds(row, "duration")
        else:
            seconds = self._when(row, "end")[0] - self._when(row, "begin")[0]
            if seconds < 0:
                raise self._fault("end", "must not lie before the begin")
        if seconds > LONGEST:
            raise self._fault("duration" if "duration" in self.places else "end", "is too long")
        return seconds

    def _seconds(self, row: Sequence[str], key: str) -> float:
        written = row[self.places[key]]
        seconds = _number(written)
        if seconds is None or seconds < 0:
            raise self._fault(key, f"must be a number of seconds, not {shown(written)}")
        return seconds

    def _whole(self, row: Sequence[str], key: str, least: int) -> int:
        written = row[self.places[key]]
        found = _number(written)
        most = MOST * _MILLI  # memory in MiB is the largest number in a trace
        if found is None or found != int(found) or not least <= found <= (MOST if key == "gpus" else most):
            raise self._fault(key, f"must be a whole number of at least {least}, not {shown(written)}")
        return int(found)

    def _when(self, row: Sequence[str], key: str) -> tuple[float, bool]:
        try:
            return _moment(row[self.places[key]], key)
        except SpecError as error:
            raise self._fault(key, error.problem) from None

    def _title(self, row: Sequence[str], key: str) -> str | None:
        written = row[self.places[key]].strip() if key in self.places else ""
        try:
            return name(written) if written else None
        except SpecError as error:
            raise self._fault(key, error.problem) from None

    def _name(self, row: Sequence[str]) -> str:
        written = self._title(row, "name")
        if written is None:
            return f"job-{self.number}"
        title = f"job-{written}" if written.isdigit() else written
        if title in self.names:
            raise self._fault("name", f"{shown(written)} is there twice")
        self.names.add(title)
        return title

    def _fault(self, key: str, problem: str) -> SpecError:
        return SpecError(f"row {self.number}, column {self.titles[key]}", problem)


def _moment(written: str, what: str) -> tuple[float, bool]:
    """Seconds of a date and time (then True) or a number. Wall clocks are taken as UTC: only differences matter."""
    seconds = _number(written)
    if seconds is not None:
        return seconds, False
    try:
        found = datetime.fromisoformat(written.strip())
    except ValueError:
        raise SpecError(what, f"must be a date and time or a number of seconds, not {shown(written)}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp(), True


def _number(written: str) -> float | None:
    try:
        found = float(written)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _tidy(amount: float) -> int | float:
    """Whole numbers as such, so that files stay short."""
    amount = round(amount, 6)
    return int(amount) if amount == int(amount) else amount
