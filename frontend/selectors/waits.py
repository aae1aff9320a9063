"""Why jobs wait, in the reader's words; the reasons themselves are `scheduler.selectors`'s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from frontend import words
from jobs.models import Job
from scheduler.selectors import why_waiting


class Wait(NamedTuple):
    """A reason: its code, the sentence, since when (None: not known), and the facts behind it."""

    code: str
    sentence: str
    since: datetime | None
    facts: Mapping[str, object]

    @property
    def look(self) -> words.Look:
        """How the reason is called and looks, and what it means."""
        return words.look(words.REASONS, self.code)


def waits_of(jobs: Iterable[Job], now: datetime) -> dict[int, Wait]:
    """The wait of each job that waits, by its id; three queries at most, whatever the number of jobs."""
    found = {}
    for job, why in why_waiting(jobs, now).items():
        facts = dict(why.hold.facts)
        found[job] = Wait(why.hold.reason.value, words.sentence(why.hold.template, facts), why.since, facts)
    return found
