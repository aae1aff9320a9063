"""One page of jobs, in a constant number of queries however long the history is, and how many there are of each state.

Pages are found by their place in the order (a cursor), never by counting what lies before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Max, Q, QuerySet

from jobs.models import KEY_LENGTH, LIVE_STATES, TERMINAL_STATES, WAITING_STATES, Job
from jobs.states import JobState

PAGE = 50
COUNTED_MOST = 1_000
SEARCHED_MOST = 100_000
"""A text is looked for among that many of the newest jobs: without an index the whole history would take seconds."""
STATES = frozenset(state.value for state in JobState)
FOLDERS: Mapping[str, tuple[str, ...]] = {"waiting": WAITING_STATES, "active": LIVE_STATES, "ended": TERMINAL_STATES}


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list is narrowed down to; empty: not at all."""

    state: str = ""
    team: str = ""
    user: str = ""
    cluster: str = ""
    text: str = ""

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Filter:
        """Read from an address; what makes no sense is left out."""
        values = {name: str(query.get(name, "")).strip()[:200] for name in ("team", "user", "cluster", "text")}
        state = str(query.get("state", ""))
        return cls(state=state if state in STATES or state in FOLDERS else "", **values)

    def narrow(self, jobs: QuerySet[Job], *, but_state: bool = False) -> QuerySet[Job]:
        """The jobs that it lets through."""
        if self.state and not but_state:
            jobs = jobs.filter(state__in=FOLDERS.get(self.state, (self.state,)))
        for name, field in (("team", "team__slug"), ("user", "user__username"), ("cluster", "cluster__slug")):
            if value := getattr(self, name):
                jobs = jobs.filter(**{field: value})
        return self._search(jobs) if self.text else jobs

    def _search(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        newest = Job.objects.aggregate(newest=Max("id"))["newest"] or 0
        named = Q(name__icontains=self.text, id__gt=newest - SEARCHED_MOST)
        return jobs.filter(named | Q(key=self.text.lower())) if len(self.text) == KEY_LENGTH else jobs.filter(named)

    @property
    def narrowed(self) -> bool:
        """Whether anything but the state is filtered."""
        return any((self.team, self.user, self.cluster, self.text))


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, with the cursors of the pages before and after; None where there is none."""

    jobs: list[Job]
    newer: str | None
    older: str | None


def page_of(jobs: QuerySet[Job], *, before: str = "", after: str = "", size: int = PAGE) -> Page:
    """The page that lies ``before`` (older than) or ``after`` (newer than) a cursor; the newest without one."""
    if after and (place := _read(after)) is not None:
        newer = Q(submitted_at__gt=place[0]) | Q(submitted_at=place[0], id__gt=place[1])
        rows = list(jobs.filter(newer).order_by("submitted_at", "id")[: size + 1])
        if len(rows) > size:
            rows = rows[:size][::-1]
            return Page(rows, _cursor(rows[0]), _cursor(rows[-1]))
    place = _read(before) if before else None
    older = jobs
    if place is not None:
        older = jobs.filter(Q(submitted_at__lt=place[0]) | Q(submitted_at=place[0], id__lt=place[1]))
    rows = list(older.order_by("-submitted_at", "-id")[: size + 1])
    more, rows = len(rows) > size, rows[:size]
    return Page(rows, _cursor(rows[0]) if rows and place else None, _cursor(rows[-1]) if more else None)


def counts(jobs: QuerySet[Job]) -> dict[str, int]:
    """How many jobs there are of each state, each counted up to COUNTED_MOST; one query."""
    parts: list[str] = []
    arguments: list[Any] = []
    for state in JobState:
        some = jobs.filter(state=state.value).order_by().values("id")[:COUNTED_MOST]
        try:
            sql, values = some.query.sql_with_params()
        except EmptyResultSet:  # Django sees by itself that there can be none
            return {}
        parts.append(f"SELECT %s, count(*) FROM ({sql}) counted")  # noqa: S608  the SQL is Django's own
        arguments += [state.value, *values]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), arguments)
        return dict(cursor.fetchall())


def queue(jobs: QuerySet[Job], *, offset: int = 0, size: int = PAGE) -> tuple[list[Job], bool]:
    """Waiting jobs by priority and age, and whether there are more; what the engine begins with too."""
    rows = list(
        jobs.filter(state__in=WAITING_STATES).order_by("-priority", "submitted_at", "id")[offset : offset + size + 1]
    )
    return rows[:size], len(rows) > size


def _cursor(job: Job) -> str:
    return f"{round(job.submitted_at.timestamp() * 1_000_000)}-{job.pk}"


def _read(cursor: str) -> tuple[datetime, int] | None:
    micros, _, number = cursor.partition("-")
    try:
        seconds, rest = divmod(int(micros), 1_000_000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest), int(number)
    except (ValueError, OverflowError, OSError):
        return None
