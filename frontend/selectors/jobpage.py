"""All that the page of one job shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from frontend import words
from frontend.selectors.waits import Wait, waits_of
from jobs.models import Attempt, Job, JobEvent
from jobs.states import JobState
from scheduler.inventory.models import Allocation

EVENTS_SHOWN = 60
ATTEMPTS_SHOWN = 25


@dataclass(frozen=True, slots=True)
class Place:
    """Where one replica of an attempt is: its node, and its cards by index where they are known."""

    rank: int
    group: str
    replica: int
    node: str
    cards: tuple[int, ...]
    count: int
    mib: int


@dataclass(frozen=True, slots=True)
class Story:
    """A job with its attempts (newest first), where the newest one is, its events (newest first) and its wait."""

    job: Job
    wait: Wait | None
    sentence: str
    attempts: list[Attempt]
    places: list[Place]
    events: list[JobEvent]
    before: list[Job]

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt."""
        return self.attempts[0] if self.attempts else None


def story_of(job: Job, now: datetime) -> Story:
    """Read everything about a job; seven queries."""
    wait = waits_of([job], now).get(job.pk)
    attempts = list(job.attempts.order_by("-number")[:ATTEMPTS_SHOWN])
    places = places_of(attempts[0]) if attempts else []
    events = list(job.events.select_related("user").order_by("-id")[:EVENTS_SHOWN])
    before = list(Job.objects.filter(dependents__job=job).order_by("id"))
    sentence = sentence_of(job, wait, attempts[0] if attempts else None, places)
    return Story(job, wait, sentence, attempts, places, events, before)


def places_of(attempt: Attempt) -> list[Place]:
    """Where each replica of an attempt is or was, by rank; one query."""
    rows = (
        Allocation.objects.filter(attempt=attempt)
        .order_by("id")
        .values_list("group", "replica", "node__name", "gpu__index", "slot", "mib")
    )
    found: dict[tuple[str, int], list[Any]] = {}
    for group, replica, node, index, slot, mib in rows:
        place = found.setdefault((group, replica), [node, [], 0, mib])
        place[2] += slot is not None
        if index is not None:
            place[1].append(index)
    return [
        Place(rank, group, replica, node, tuple(sorted(cards)), count, mib)
        for rank, ((group, replica), (node, cards, count, mib)) in enumerate(found.items())
    ]


def sentence_of(job: Job, wait: Wait | None, attempt: Attempt | None, places: list[Place]) -> str:
    """The state of a job in one sentence."""
    if wait is not None:
        return _held(job) if wait.code == "held" else _("Waiting: %(why)s") % {"why": wait.sentence}
    where, why = _where(places), words.said(job.state_why)
    title = capfirst(str(words.look(words.JOB_STATES, job.state).title))
    match JobState(job.state):
        case JobState.STARTING if where:
            return _("Starting %(where)s") % {"where": where}
        case JobState.RUNNING if where:
            return _("Running %(where)s") % {"where": where}
        case JobState.FAILED:
            return _failed(attempt, why)
        case JobState.SUCCEEDED:
            return title
        case _:
            return _("%(state)s: %(why)s") % {"state": title, "why": why} if why else title


def _held(job: Job) -> str:
    return _("Held: %(why)s") % {"why": words.said(job.held_why)}


def _failed(attempt: Attempt | None, why: str) -> str:
    if attempt is not None and attempt.exit_code:
        return _("Failed with exit code %(code)d: %(why)s") % {"code": attempt.exit_code, "why": why}
    return _("Failed: %(why)s") % {"why": why} if why else _("Failed")


def _where(places: list[Place]) -> str:
    nodes = list(dict.fromkeys(place.node for place in places))
    if not nodes:
        return ""
    if len(nodes) > 2:
        return _("on %(count)d nodes") % {"count": len(nodes)}
    return _("on %(nodes)s") % {"nodes": ", ".join(nodes)}


def as_yaml(job: Job) -> str:
    """What was asked for, as a file that `rota submit -f` would take."""
    plain = {"team": job.team.slug, "cluster": job.cluster.slug, **job.spec}
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
