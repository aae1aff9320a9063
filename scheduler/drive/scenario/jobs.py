"""The ``jobs`` of a file: what each asks for, when, and what it really does; copies written out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from jobs.reading import (
    MOST,
    NAME_LENGTH,
    Reader,
    SpecError,
    duration,
    integer,
    list_of,
    name,
    nobody,
    record,
    shown,
)
from jobs.spec import JOB_FIELDS, JobSpec, build_job
from scheduler.backends.base import refused_env
from scheduler.drive.scenario.values import JobProfile, ScenarioJob, Silence

EXIT_CODE_MOST = 255
_TIME = duration()
_SOME_TIME = duration(zero=False)
_SILENCE = record({"at": _TIME, "for": _SOME_TIME, "phase": name, "budget": _SOME_TIME}, needs=("at", "for"))
# A workstation's processors and memory are shared by time: what its jobs do not ask for is not set aside for them.
_UNCOUNTED: dict[str, Any] = {"cpus": 0, "memory_gib": 0}
_PROFILE_KEYS = tuple(field.name for field in fields(JobProfile))


def _read_silence(value: object) -> Silence:
    values = _SILENCE(value)
    return Silence(values["at"], values["for"], values.get("phase"), values.get("budget"))


_FIELDS: Mapping[str, Reader[Any]] = {
    **JOB_FIELDS,
    "at": _TIME,
    "count": integer(),
    "every": _TIME,
    "duration": _TIME,
    "exit_codes": list_of(integer(0, EXIT_CODE_MOST), empty=False),
    "run_for": list_of(_TIME, empty=False),
    "hang_at": _TIME,
    "hang_attempts": integer(),
    "silent": list_of(_read_silence),
    "idle_at": _TIME,
    "checkpoint_every": _SOME_TIME,
}
_SIMULATED = record(_FIELDS, needs=("name", "duration"))
_REAL = record(_FIELDS, needs=("name", "command"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the list: a job, or ``count`` copies of it, one ``every`` so many seconds."""

    job: ScenarioJob
    count: int | None
    every: float

    def names(self) -> Iterator[str]:
        """The names of its jobs."""
        title = self.job.spec.name
        return iter((title,)) if self.count is None else (f"{title}-{number}" for number in range(self.count))


class JobNames:
    """The names of all jobs of a file, each with the row it comes from; a row's own name stands for all its copies."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.rows: dict[str, int] = {}
        self.copies: dict[str, int] = {}
        for row, entry in enumerate(entries):
            for title in entry.names():
                if self.rows.setdefault(title, row) != row:
                    raise SpecError(f"[{row}].name", f"{shown(title)} is there twice")
            if entry.count is not None:
                self.copies[entry.job.spec.name] = row

    def row_of(self, called: str) -> int | None:
        """The row that a name belongs to; None when no job has it."""
        return self.rows.get(called, self.copies.get(called))

    def meant_by(self, called: str) -> tuple[str, ...]:
        """The jobs that a name stands for."""
        if called in self.rows:
            return (called,)
        if called in self.copies:
            return tuple(self.entries[self.copies[called]].names())
        raise SpecError("", nobody("job", called, [*self.rows, *self.copies]))


def entries_reader(*, real: bool, team: str | None) -> Reader[tuple[Entry, ...]]:
    """Return the reader of the list; ``real``: of jobs with commands; ``team``: that of jobs that name none."""
    read_values = _REAL if real else _SIMULATED

    def read(value: object) -> Entry:
        values = read_values(value)
        spec = build_job(_UNCOUNTED | values if real else values, team=team)
        if real and (refused := refused_env(dict(spec.env))) is not None:
            raise SpecError(f"env.{refused}", "is set by Rota and cannot be chosen")
        count = values.get("count")
        if count is not None and len(f"{spec.name}-{count - 1}") > NAME_LENGTH:
            raise SpecError("name", f"makes names longer than {NAME_LENGTH} characters")
        profile = JobProfile(**{key: values[key] for key in _PROFILE_KEYS if key in values})
        return Entry(ScenarioJob(spec, values.get("at", 0.0), profile), count, values.get("every", 0.0))

    return list_of(read)


def expand(entries: Sequence[Entry], teams: Mapping[str, object]) -> tuple[tuple[ScenarioJob, ...], JobNames]:
    """Write the copies out and check the names of teams and of other jobs.

    Raises:
        SpecError: with a path that begins at an entry's position.
    """
    if sum(entry.count or 1 for entry in entries) > MOST:
        raise SpecError("", f"must not come to more than {MOST} jobs")
    for row, entry in enumerate(entries):
        if entry.job.spec.team not in teams:
            raise SpecError(f"[{row}].team", nobody("team", entry.job.spec.team, teams))
    names = JobNames(entries)
    waits = _waits(entries, names)
    jobs: list[ScenarioJob] = []
    for entry, after in zip(entries, waits, strict=True):
        jobs += _copies(entry, after)
    return tuple(jobs), names


def _copies(entry: Entry, after: tuple[str, ...]) -> Iterator[ScenarioJob]:
    job = entry.job
    spec: JobSpec = job.spec if after == job.spec.after else replace(job.spec, after=after)
    if entry.count is None:
        yield job if spec is job.spec else replace(job, spec=spec)
        return
    for number, title in enumerate(entry.names()):
        yield ScenarioJob(replace(spec, name=title), job.at + number * entry.every, job.profile)


def _waits(entries: Sequence[Entry], names: JobNames) -> list[tuple[str, ...]]:
    """For each row the jobs that it waits for; refuses unknown ones and circles."""
    written: list[tuple[str, ...]] = []
    total = 0
    for row, entry in enumerate(entries):
        found: dict[str, None] = {}
        for position, called in enumerate(entry.job.spec.after):
            try:
                meant = names.meant_by(called)
            except SpecError as error:
                raise error.within(f"[{row}].after[{position}]") from None
            total += len(meant)
            if total > MOST:
                raise SpecError(f"[{row}].after", f"must not name more than {MOST} jobs in all")
            found |= dict.fromkeys(meant)
        written.append(tuple(found))
    _refuse_circles(entries, names)
    return written


def _refuse_circles(entries: Sequence[Entry], names: JobNames) -> None:
    """Refuse rows that wait for themselves in the end.

    Copies of a row wait for the same jobs, so the jobs have a circle exactly when their rows have one.
    """
    links = [[row for called in entry.job.spec.after if (row := names.row_of(called)) is not None] for entry in entries]
    done: set[int] = set()
    for first in range(len(entries)):
        path = [first]
        left = [iter(links[first])]
        on_path = {first}
        while path and path[-1] not in done:
            row = next(left[-1], None)
            if row is None:
                on_path.discard(path[-1])
                done.add(path.pop())
                left.pop()
            elif row in on_path:
                circle = [entries[one].job.spec.name for one in path[path.index(row) :]]
                raise SpecError(f"[{row}].after", f"waits for itself: {_chain(circle)}")
            elif row not in done:
                path.append(row)
                left.append(iter(links[row]))
                on_path.add(row)


def _chain(circle: list[str]) -> str:
    """The names of a circle in the order of waiting, long ones cut in the middle."""
    ends = [*circle, circle[0]]
    if len(ends) > 8:
        ends = [*ends[:4], "…", *ends[-3:]]
    return " → ".join(title if title == "…" else shown(title) for title in ends)
