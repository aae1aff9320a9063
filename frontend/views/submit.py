"""Submitting a job by a form, or by YAML in the other tab; the two say the same."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from frontend import words
from frontend.jobform import Asked, FormError, field_of, from_fields, from_yaml, to_fields
from frontend.views.page import PageRequest, page, show
from jobs.models import Job
from jobs.selectors import job_for
from jobs.submission import submit, team_for
from scheduler.engine.demand import Kind
from scheduler.inventory.models import Cluster, Pool
from scheduler.targets import target_for
from teams.problems import Problem
from teams.selectors import teams_of

FRESH: Mapping[str, str] = {"gpus": "1", "replicas": "1", "priority": "normal", "preemptible": "on"}


@page
def submit_page(request: PageRequest) -> HttpResponse:
    """The form; a POST submits it."""
    if request.method == "POST":
        return _submit(request)
    fields = dict(FRESH)
    if key := request.GET.get("copy"):
        job = job_for(request.user, key)
        fields = to_fields(Asked(job.spec, job.team.slug, job.cluster.slug))
    return _form(request, fields)


@page
@require_POST
def convert(request: PageRequest) -> JsonResponse:
    """The YAML of the form's fields, or the fields of the YAML: what a change of tab asks for."""
    try:
        if request.POST.get("mode") == "yaml":
            return JsonResponse({"fields": to_fields(from_yaml(request.POST.get("yaml", "")))})
        return JsonResponse({"yaml": from_fields(request.POST.dict()).as_yaml()})
    except FormError as error:
        return JsonResponse({"field": error.field, "problem": words.said(error.problem)}, status=422)


def _submit(request: PageRequest) -> HttpResponse:
    data = {name: str(value) for name, value in request.POST.items()}
    by_yaml = data.get("mode") == "yaml"
    try:
        asked = from_yaml(data.get("yaml", "")) if by_yaml else from_fields(data)
        job = _take_in(request, asked, data.get("token", ""))
    except FormError as error:
        return _form(request, data, errors={error.field: words.said(error.problem)})
    except Problem as problem:
        return _form(request, data, errors=_errors(problem, by_yaml=by_yaml))
    messages.success(request, _("%(name)s was submitted.") % {"name": job.name})
    return redirect("job", job.key)


def _take_in(request: PageRequest, asked: Asked, token: str) -> Job:
    team = team_for(request.user, asked.team)
    target = target_for(user=request.user, team=team, cluster=asked.cluster)
    # The form's own token makes a second click the same submission.
    key = f"form-{token}" if token else None
    return submit(user=request.user, team=team, target=target, body=asked.body, idempotency_key=key).job


def _errors(problem: Problem, *, by_yaml: bool) -> dict[str, str]:
    path = str(problem.facts.get("field", ""))
    field = "yaml" if by_yaml else field_of(path)
    said = words.refused(problem.message, path)
    return {field or "form": said.removeprefix(f"{path}: ") if field == path else said}


def _form(request: PageRequest, fields: Mapping[str, str], errors: Mapping[str, str] | None = None) -> HttpResponse:
    teams = list(teams_of(request.user))
    values = dict(fields)
    if not values.get("team") and len(teams) == 1:
        values["team"] = teams[0].slug
    return show(
        request,
        "pages/submit.html",
        {
            "fields": values,
            "errors": errors or {},
            "mode": values.get("mode", "form"),
            "token": values.get("token") or uuid4().hex,
            "teams": teams,
            "clusters": Cluster.objects.order_by("slug").only("slug", "name", "backend"),
            "models": Pool.objects.order_by("model").values_list("model", flat=True).distinct(),
            "kinds": [kind.value for kind in Kind],
            "priorities": [("low", _("low")), ("normal", _("normal")), ("high", _("high"))],
        },
        status=422 if errors else 200,
    )
