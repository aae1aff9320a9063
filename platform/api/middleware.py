"""What surrounds every answer below `/api/`: one language, one shape of errors, both spellings of an address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import cast

from django.http import HttpRequest, HttpResponseBase
from django.utils import translation
from django.utils.decorators import sync_and_async_middleware

from api.errors import CONTENT_TYPE, plain_problem
from api.parsing import BODY_MOST

Sync = Callable[[HttpRequest], HttpResponseBase]
Async = Callable[[HttpRequest], Awaitable[HttpResponseBase]]
ROOT = "/api/"
LANGUAGE = "en"
"""For programs: codes, and sentences in one language; the pages say the same in the reader's."""
_SAID = {404: "there is no such address", 500: "something went wrong here; the log of the server says what"}

_TOO_LARGE = f"the body is larger than {BODY_MOST} bytes"


@sync_and_async_middleware
def api_answers(get_response: Sync | Async) -> Sync | Async:
    """Stand around everything that may answer a request to the API without being a view of it."""
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            if not _begins(request):
                return cast(HttpResponseBase, await get_response(request))
            if _too_large(request):
                return plain_problem(request, 413, _TOO_LARGE)
            with translation.override(LANGUAGE):
                return _ends(request, await get_response(request))

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        if not _begins(request):
            return cast(HttpResponseBase, get_response(request))
        if _too_large(request):
            return plain_problem(request, 413, _TOO_LARGE)
        with translation.override(LANGUAGE):
            return _ends(request, cast(HttpResponseBase, get_response(request)))

    return synchronous


def _begins(request: HttpRequest) -> bool:
    """Whether it goes to the API."""
    if not request.path_info.startswith(ROOT):
        return False
    # Both spellings are the same resource: a redirect would lose the body of a POST.
    if not request.path_info.endswith("/"):
        request.path_info += "/"
    return True


def _too_large(request: HttpRequest) -> bool:
    """Whether the body is said to be larger than any view takes: Django would call that a malformed request."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    return length.isdecimal() and (len(length) > 15 or int(length) > BODY_MOST)


def _ends(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """The answer, as a problem where it is an error in any other form."""
    if response.status_code < 400 or response.headers.get("Content-Type", "").startswith(CONTENT_TYPE):
        return response
    problem = plain_problem(request, response.status_code, _SAID.get(response.status_code, ""))
    for name in ("Allow", "Retry-After", "WWW-Authenticate"):
        if name in response.headers:
            problem.headers[name] = response.headers[name]
    return problem
