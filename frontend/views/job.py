"""The page of one job: its state in a sentence, its story, its log, and what can be done with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from frontend.logs import LOG_BYTES, log_piece, whole_log
from frontend.selectors.jobpage import as_yaml, story_of
from frontend.views.page import PageRequest, attempt, back, page, show
from jobs import services, submission
from jobs.models import TERMINAL_STATES, Job
from jobs.permissions import acts_as
from jobs.selectors import job_for
from jobs.states import JobState
from scheduler.targets import target_for
from teams.models import User
from teams.selectors import standing_of


@page
def job_page(request: PageRequest, key: str) -> HttpResponse:
    """Everything about one job."""
    now = timezone.now()
    job = job_for(request.user, key)
    story = story_of(job, now)
    return show(
        request,
        "pages/job.html",
        {
            "job": job,
            "story": story,
            "may": _may(request.user, job),
            "yaml": as_yaml(job),
            "command": job.spec.get("command", []),
            "waiting": job.state in (JobState.QUEUED.value, JobState.HELD.value),
        },
    )


def _may(user: User, job: Job) -> dict[str, bool]:
    mine = acts_as(standing_of(user), user.pk, team_id=job.team_id, owner_id=job.user_id) is not None
    ended = job.state in TERMINAL_STATES
    return {
        "cancel": mine and not ended,
        "hold": mine and job.state == JobState.QUEUED.value,
        "release": mine and job.state == JobState.HELD.value,
        "requeue": user.is_superuser and job.state in (JobState.STARTING.value, JobState.RUNNING.value),
        "retry": ended,
    }


@page
@require_POST
def job_action(request: PageRequest, key: str, verb: str) -> HttpResponse:
    """Cancel, hold, release or requeue a job."""
    job, user, why = job_for(request.user, key), request.user, request.POST.get("why", "").strip()
    actions: dict[str, tuple[Callable[[], object], str]] = {
        "cancel": (lambda: services.cancel(user=user, job=job, why=why), _("The job is being cancelled.")),
        "hold": (lambda: services.hold(user=user, job=job, why=why), _("The job is held.")),
        "release": (lambda: services.release(user=user, job=job, why=why), _("The job waits for its turn again.")),
        "requeue": (lambda: services.requeue(user=user, job=job, why=why), _("The job is stopped and waits again.")),
    }
    action, done = actions[verb]
    attempt(request, action, done)
    return back(request, "job", key)


@page
@require_POST
def job_retry(request: PageRequest, key: str) -> HttpResponse:
    """Submit an ended job again, as a new one."""
    job = job_for(request.user, key)
    made: list[Job] = []

    def again() -> None:
        target = target_for(user=request.user, team=job.team, cluster=job.cluster.slug)
        made.append(submission.retry(user=request.user, job=job, target=target).job)

    attempt(request, again, _("The job was submitted again."))
    return redirect("job", made[0].key if made else key)


@page
def job_log(request: PageRequest, key: str) -> HttpResponse:
    """A piece of the output of one replica, from an offset on, as plain text in JSON."""
    job = job_for(request.user, key)
    number, replica, offset = (_number(request, name) for name in ("attempt", "replica", "offset"))
    piece = log_piece(job, number or None, replica=replica, offset=offset, limit=LOG_BYTES)
    return JsonResponse(piece._asdict(), headers={"Cache-Control": "no-store"})


@page
def job_log_file(request: PageRequest, key: str) -> StreamingHttpResponse:
    """The whole output of one replica, as it was written."""
    job = job_for(request.user, key)
    number, replica = (_number(request, name) for name in ("attempt", "replica"))
    headers = {"Content-Disposition": f'attachment; filename="{job.key}-{number or job.attempt_count}-{replica}.log"'}
    read = whole_log(job, number or None, replica=replica)
    pieces = _one_by_one(read) if isinstance(request, ASGIRequest) else read
    return StreamingHttpResponse(pieces, content_type="text/plain; charset=utf-8", headers=headers)


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read each piece in a thread, so that a long log is never held in memory as a whole."""
    following = sync_to_async(partial(next, pieces, None))
    while (piece := await following()) is not None:
        yield piece


def _number(request: PageRequest, name: str) -> int:
    given = request.GET.get(name, "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else 0
