"""Middleware of the project: request ids, health endpoints, one-time passwords.

The health endpoints are middleware so that they answer without session, host check or database, in any state.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import cast

import structlog
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware

from rota import health as probes

log = structlog.get_logger("rota.request")

Sync = Callable[[HttpRequest], HttpResponseBase]
Async = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

REQUEST_ID = "X-Request-ID"
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


@sync_and_async_middleware
def request_id(get_response: Sync | Async) -> Sync | Async:
    """Give each request an id, the caller's if it is harmless; put it into each log line and into the answer."""

    def begin(request: HttpRequest) -> tuple[str, float]:
        given = request.headers.get(REQUEST_ID, "")
        identifier = given if _ACCEPTABLE_ID.fullmatch(given) else uuid.uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=identifier)
        request.META["ROTA_REQUEST_ID"] = identifier
        return identifier, time.perf_counter()

    def end(request: HttpRequest, response: HttpResponseBase, identifier: str, started: float) -> HttpResponseBase:
        response.headers[REQUEST_ID] = identifier
        quiet = request.path in ("/healthz", "/readyz") or request.path.startswith("/static/")
        spoken = log.debug if quiet and response.status_code < 400 else log.info
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        spoken("request", method=request.method, path=request.path, status=response.status_code, ms=milliseconds)
        return response

    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            identifier, started = begin(request)
            return end(request, await get_response(request), identifier, started)

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        identifier, started = begin(request)
        return end(request, get_response(request), identifier, started)  # type: ignore[arg-type]

    return synchronous


@sync_and_async_middleware
def health(get_response: Sync | Async) -> Sync | Async:
    """Answer `/healthz` (this process lives) and `/readyz` (its database and its broker answer, else 503)."""

    def alive() -> HttpResponse:
        return JsonResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})

    def ready() -> HttpResponse:
        results = probes.readiness()
        failed = [name for name, problem in results.items() if problem]
        body = {"status": "unready" if failed else "ok"} | {name: problem or "ok" for name, problem in results.items()}
        return JsonResponse(body, status=503 if failed else 200, headers={"Cache-Control": "no-store"})

    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            if request.path == "/healthz":
                return alive()
            if request.path == "/readyz":
                return await sync_to_async(ready, thread_sensitive=False)()
            return cast(HttpResponseBase, await get_response(request))

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        if request.path == "/healthz":
            return alive()
        if request.path == "/readyz":
            return ready()
        return cast(HttpResponseBase, get_response(request))

    return synchronous


def must_change_password(get_response: Sync) -> Sync:
    """Send whoever signed in with a one-time password to the page that changes it, and nowhere else."""

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        user = request.user
        if user.is_authenticated and user.must_change_password:
            change = reverse("account_change_password")
            allowed = (change, reverse("account_logout"), reverse("set_language"))
            # The API says so itself, in words that a program understands.
            if request.path not in allowed and not request.path.startswith(("/static/", "/api/")):
                return redirect(change)
        return get_response(request)

    return synchronous
