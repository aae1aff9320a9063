"""The list of jobs, the queue, and what is done to many jobs at once."""

from __future__ import annotations

from datetime import datetime

from django.contrib import messages
from django.http import HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from frontend import words
from frontend.selectors import joblist
from frontend.selectors.waits import waits_of
from frontend.views.page import PageRequest, back, page, show
from jobs.models import TERMINAL_STATES, Job
from jobs.permissions import acts_as
from jobs.selectors import visible_to
from jobs.services import cancel
from jobs.states import JobState
from scheduler.inventory.models import Cluster
from teams.models import User
from teams.problems import Problem
from teams.selectors import standing_of, teams_of

CANCELLED_AT_ONCE_MOST = 200


@page
def job_list(request: PageRequest) -> HttpResponse:
    """Jobs, newest first, filtered, a page at a time."""
    now = timezone.now()
    wanted = joblist.Filter.of(request.GET)
    visible = visible_to(request.user)
    found = joblist.page_of(
        wanted.narrow(visible), before=request.GET.get("before", ""), after=request.GET.get("after", "")
    )
    counts = joblist.counts(wanted.narrow(visible, but_state=True))
    return show(
        request,
        "pages/jobs.html",
        {
            "rows": _rows(request.user, found.jobs, now),
            "page": found,
            "wanted": wanted,
            "chips": _chips(counts, wanted.state),
            "counted_most": joblist.COUNTED_MOST,
            "teams": teams_of(request.user),
            "clusters": Cluster.objects.order_by("slug").only("slug", "name"),
        },
    )


@page
def queue(request: PageRequest) -> HttpResponse:
    """What waits, in order, with the reason beside each."""
    now = timezone.now()
    wanted = joblist.Filter.of({**request.GET.dict(), "state": "waiting"})
    offset = _offset(request)
    rows, more = joblist.queue(wanted.narrow(visible_to(request.user)), offset=offset)
    return show(
        request,
        "pages/queue.html",
        {
            "rows": _rows(request.user, rows, now),
            "first": offset + 1,
            "wanted": wanted,
            "newer": max(0, offset - joblist.PAGE) if offset else None,
            "older": offset + joblist.PAGE if more else None,
            "teams": teams_of(request.user),
            "clusters": Cluster.objects.order_by("slug").only("slug", "name"),
            "sees_all": request.user.is_superuser,
        },
    )


@page
@require_POST
def cancel_many(request: PageRequest) -> HttpResponse:
    """Cancel the jobs that are ticked; those that may not be cancelled are named, the others still are."""
    keys = request.POST.getlist("job")[:CANCELLED_AT_ONCE_MOST]
    done = 0
    for job in visible_to(request.user).filter(key__in=keys).order_by("id"):
        try:
            cancel(user=request.user, job=job)
            done += 1
        except Problem as problem:
            messages.error(request, f"{job.name}: {words.said(problem.message)}")
    if done:
        said = ngettext("%(count)d job is being cancelled.", "%(count)d jobs are being cancelled.", done)
        messages.success(request, said % {"count": done})
    elif not keys:
        messages.warning(request, _("No job was ticked."))
    return back(request, "jobs")


def _rows(user: User, jobs: list[Job], now: datetime) -> list[dict[str, object]]:
    waits = waits_of(jobs, now)
    standing = standing_of(user)
    return [
        {
            "job": job,
            "wait": waits.get(job.pk),
            "mine": job.state not in TERMINAL_STATES
            and acts_as(standing, user.pk, team_id=job.team_id, owner_id=job.user_id) is not None,
        }
        for job in jobs
    ]


def _chips(counts: dict[str, int], chosen: str) -> list[dict[str, object]]:
    return [
        {
            "state": state.value,
            "look": words.look(words.JOB_STATES, state.value),
            "count": counts.get(state.value, 0),
            "active": chosen == state.value,
        }
        for state in JobState
        if counts.get(state.value) or chosen == state.value
    ]


def _offset(request: PageRequest) -> int:
    given = request.GET.get("from", "0")
    return min(int(given), 100_000) if given.isascii() and given.isdigit() and len(given) < 16 else 0
