"""What all pages share: who may come in, the layout that was asked for, and how a refusal is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme

from frontend import words
from teams.models import User
from teams.problems import Forbidden, NotFound, Problem

P = ParamSpec("P")
LIVE_HEADER = "X-Rota-Live"


class PageRequest(HttpRequest):
    """A request of somebody who is signed in."""

    user: User
    htmx: Any


View = Callable[Concatenate[PageRequest, P], HttpResponseBase]


def page(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """A view for people who are signed in; what is not there for them is a 404, what they may not do a 403."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not _is_text(request):
            return render(request, "400.html", status=400)
        try:
            return view(cast(PageRequest, request), *args, **kwargs)
        except NotFound as problem:
            raise Http404(problem.message) from None
        except Forbidden as problem:
            return render(request, "403.html", {"exception": words.said(problem.message)}, status=403)

    return cast(Callable[Concatenate[HttpRequest, P], HttpResponseBase], login_required(checked))


def _is_text(request: HttpRequest) -> bool:
    """Whether all that was sent can be stored: no keyboard types a NUL, and no database keeps one."""
    pairs = (pair for given in (request.GET, request.POST) for pair in given.lists())
    return not any("\0" in text for name, values in pairs for text in (name, *values))


def show(request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200) -> HttpResponse:
    """Render a page, or only its live part where the browser brings an open page up to date."""
    partial = request.headers.get(LIVE_HEADER) or request.headers.get("HX-Request")
    layout = "live.html" if partial else "page.html"
    response = render(request, template, {**context, "layout": layout}, status=status)
    response.headers["Cache-Control"] = "private, no-store"
    response.headers["Vary"] = f"{LIVE_HEADER}, HX-Request, Cookie, Accept-Language"
    return response


def back(request: HttpRequest, fallback: str, *args: Any) -> HttpResponseRedirect:
    """Return to the page that an action came from, if it is one of ours."""
    wanted = request.POST.get("next", "")
    if wanted and url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure()):
        return HttpResponseRedirect(wanted)
    return redirect(fallback, *args)


def attempt(request: HttpRequest, action: Callable[[], object], done: str) -> bool:
    """Do what was asked for and say so, or say in one line why not; what may not be seen stays a 404."""
    try:
        action()
    except NotFound:
        raise
    except Problem as problem:
        messages.error(request, words.refused(problem.message, str(problem.facts.get("field", ""))))
        return False
    messages.success(request, done)
    return True
