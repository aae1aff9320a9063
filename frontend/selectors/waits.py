"""Why jobs wait, in the reader's words; the reasons themselves are `scheduler.selectors`'s."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from frontend import words
from jobs.models import Job
from scheduler.selectors import why_waiting

_JOB_IS = re.compile(r"(?P<job>[^,]+?) is (?P<state>[a-z]+)(?=, |$)")


def _job_is(found: re.Match[str]) -> str:
    state = words.look(words.JOB_STATES, found["state"]).title
    return _("%(job)s is %(state)s") % {"job": found["job"], "state": state}


class Wait(NamedTuple):
    """A reason: its code, the sentence, since when (None: not known), and the facts behind it."""

    code: str
    sentence: str
    since: datetime | None
    facts: Mapping[str, object]

    @property
    def figures(self) -> list[tuple[str, float]]:
        """The numbers among the facts that tell most: what is asked for, what there is, what bounds it."""
        titles = {
            "need": _("asked for"),
            "free": _("free"),
            "used": _("held"),
            "limit": _("limit"),
            "total": _("in all"),
        }
        facts = ((titles[name], value) for name, value in self.facts.items() if name in titles)
        return [(title, float(value)) for title, value in facts if isinstance(value, int | float)]

    @property
    def look(self) -> words.Look:
        """How the reason is called and looks, and what it means."""
        return words.look(words.REASONS, self.code)


def waits_of(jobs: Iterable[Job], now: datetime) -> dict[int, Wait]:
    """The wait of each job that waits, by its id; three queries at most, whatever the number of jobs."""
    found = {}
    for job, why in why_waiting(jobs, now).items():
        facts = dict(why.hold.facts)
        if isinstance(facts.get("jobs"), str):
            facts["jobs"] = _JOB_IS.sub(_job_is, str(facts["jobs"]))
        found[job] = Wait(why.hold.reason.value, words.sentence(why.hold.template, facts), why.since, facts)
    return found
