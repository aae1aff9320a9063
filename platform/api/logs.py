"""The output of a job: piece by piece from an offset on, at once or when there is more, as JSON or as plain text."""

from __future__ import annotations

import asyncio
import codecs
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from api.errors import Unavailable
from api.pages import read_whole
from jobs.models import TERMINAL_STATES, Attempt, Job
from scheduler.backends.base import BackendError, LogChunk
from scheduler.logs import PIECE, read_log
from teams.problems import NotFound

MOST_PIECE = 1 << 20
LONGEST_WAIT = 30
FOLLOW_MOST = 3600.0
LOOK_EVERY, ASK_EVERY = 0.2, 0.6
"""Seconds between two looks at a log, and at the rows."""
TEXT = "text/plain; charset=utf-8"


def _parameter(name: str, least: int, most: int | None, said: str) -> OpenApiParameter:
    schema = {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})
    return OpenApiParameter(name, schema, description=said)


PARAMETERS = [
    _parameter("attempt", 1, None, "Of which attempt; default: the newest."),
    _parameter("replica", 0, None, "Of which replica (its rank); default 0."),
    _parameter("offset", 0, None, "From this byte on, counted from the first."),
    _parameter("limit", 1, MOST_PIECE, f"At most so many bytes; default {PIECE}."),
    _parameter("wait", 0, LONGEST_WAIT, "Seconds to wait for more where there is nothing yet."),
    OpenApiParameter("follow", bool, description="As plain text: go on until the job has ended, an hour at most."),
    OpenApiParameter("format", str, enum=["json", "txt"], description="The same as Accept."),
]


class LogSerializer(serializers.Serializer[Any]):
    """A piece of the output of one replica."""

    attempt = serializers.IntegerField(allow_null=True, help_text="Null where there is no attempt yet.")
    replica = serializers.IntegerField()
    offset = serializers.IntegerField(help_text="Where it really begins: what lies before was rotated away.")
    next_offset = serializers.IntegerField(help_text="Ask with this one next.")
    eof = serializers.BooleanField(help_text="Nothing more will come of this attempt.")
    text = serializers.CharField(allow_blank=True)


class PlainText(BaseRenderer):
    """Text as it is."""

    media_type, format, charset = "text/plain", "txt", "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """The text, or an error's values, as bytes."""
        if isinstance(data, bytes):
            return data
        return (data if isinstance(data, str) else json.dumps(data)).encode()


@dataclass(frozen=True, slots=True)
class Want:
    """Which output is asked for. ``attempt`` is None, and its key empty, while there is none.

    ``over``: the attempt has ended, as the rows say; ``ended``: the job has, so that no other will follow.
    """

    job: int
    backend: str
    ended: bool
    over: bool
    attempt: int | None
    attempt_key: str
    replica: int
    offset: int
    limit: int

    def read(self) -> LogChunk:
        """What there is now. Raises BackendError.

        A backend calls the log of an attempt complete that it has not been asked to start yet: the rows know better.
        """
        if not self.attempt_key:
            return LogChunk(b"", self.offset, self.offset, self.ended)
        chunk = read_log(self.backend, self.attempt_key, replica=self.replica, offset=self.offset, limit=self.limit)
        return replace(chunk, eof=chunk.eof and self.over)


def log_answer(request: Request, job: Job) -> Response | HttpResponse | StreamingHttpResponse:
    """What was asked for in whatever form. Raises Invalid, NotFound, Unavailable."""
    want = _wanted(request, job)
    wait = read_whole(request, "wait", 0, 0, LONGEST_WAIT)
    text = request.accepted_renderer.format == PlainText.format
    if text and request.query_params.get("follow", "").lower() in ("true", "1"):
        fixed = "attempt" in request.query_params
        return _streamed(_follow(want, fixed=fixed), TEXT)
    try:
        chunk = want.read()
    except BackendError as error:
        raise Unavailable(str(error)) from error
    if text:
        return HttpResponse(chunk.data, content_type=TEXT, headers=_headers(want, chunk))
    if not wait or chunk.data or chunk.eof:
        return Response(_plain(want, chunk), headers={"Cache-Control": "no-store"})
    # Its status and headers are known, its body comes when there is something: nobody holds a thread meanwhile.
    return _streamed(_later(want, time.monotonic() + wait), "application/json")


def _wanted(request: Request, job: Job) -> Want:
    number = read_whole(request, "attempt", 0, 1, 1_000_000) or None
    attempts = job.attempts.order_by("-number")
    attempt = attempts.first() if number is None else attempts.filter(number=number).first()
    if attempt is None and number is not None:
        raise NotFound("attempt_not_found", f"attempt: the job {job.key} has no attempt {number}", field="attempt")
    return Want(
        job=job.pk,
        backend=job.cluster.backend,
        ended=job.state in TERMINAL_STATES,
        over=attempt is not None and attempt.ended_at is not None,
        attempt=attempt.number if attempt else None,
        attempt_key=attempt.key if attempt else "",
        replica=read_whole(request, "replica", 0, 0, 1_000_000),
        offset=read_whole(request, "offset", 0, 0, 2**62),
        limit=read_whole(request, "limit", PIECE, 1, MOST_PIECE),
    )


def _plain(want: Want, chunk: LogChunk) -> dict[str, Any]:
    """A piece as plain values; the bytes of a character that is not complete yet are left to the next one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(chunk.data, final=chunk.eof)
    left = len(decoder.getstate()[0]) if len(chunk.data) > len(decoder.getstate()[0]) else 0
    if not left and not chunk.eof:
        text = chunk.data.decode("utf-8", "replace")
    return {
        "attempt": want.attempt,
        "replica": want.replica,
        "offset": chunk.offset,
        "next_offset": chunk.next_offset - left,
        "eof": chunk.eof,
        "text": text,
    }


def _headers(want: Want, chunk: LogChunk) -> Mapping[str, str]:
    return {
        "Cache-Control": "no-store",
        "Rota-Log-Attempt": str(want.attempt or ""),
        "Rota-Log-Offset": str(chunk.offset),
        "Rota-Log-Next-Offset": str(chunk.next_offset),
        "Rota-Log-Eof": "true" if chunk.eof else "false",
    }


def _streamed(body: AsyncIterator[bytes], content_type: str) -> StreamingHttpResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(body, content_type=content_type, headers=headers)


async def _later(want: Want, until: float) -> AsyncIterator[bytes]:
    """The piece as JSON, when there is one, or empty when the time is over."""
    asked = time.monotonic()
    while True:
        await asyncio.sleep(LOOK_EVERY)
        now = time.monotonic()
        if now - asked >= ASK_EVERY:
            want, asked = await _again(want, same=want.attempt is not None), now
        chunk = await _look(want)
        if chunk.data or chunk.eof or now >= until:
            yield json.dumps(_plain(want, chunk)).encode()
            return


async def _follow(want: Want, *, fixed: bool) -> AsyncIterator[bytes]:
    """All output from now on; of the attempts that follow too, unless it is about a certain one."""
    until = time.monotonic() + FOLLOW_MOST
    asked = 0.0
    while (now := time.monotonic()) < until:
        chunk = await _look(want)
        if chunk.data:
            want = replace(want, offset=chunk.next_offset)
            yield chunk.data
        elif chunk.eof and (fixed or want.ended):
            return
        elif now - asked >= ASK_EVERY:
            want, asked = await _again(want, same=fixed or not want.over), now
        else:
            await asyncio.sleep(LOOK_EVERY)


async def _look(want: Want) -> LogChunk:
    try:
        return await sync_to_async(want.read, thread_sensitive=False)()
    except BackendError:
        return LogChunk(b"", want.offset, want.offset, False)


async def _again(want: Want, *, same: bool) -> Want:
    """The same wish after another look at the rows; ``same``: not about another attempt."""
    return await sync_to_async(_asked_again, thread_sensitive=False)(want, same)


def _asked_again(want: Want, same: bool) -> Want:
    try:
        state = Job.objects.values_list("state", flat=True).get(pk=want.job)
        attempts = Attempt.objects.filter(job=want.job).order_by("-number")
        found = attempts.filter(number=want.attempt or 0).first() if same else attempts.first()
    finally:
        connections.close_all()  # this thread belongs to nobody: nothing else would give the connection back
    want = replace(want, ended=state in TERMINAL_STATES)
    if found is None:
        return want
    offset = want.offset if found.number == want.attempt or want.attempt is None else 0
    return replace(want, over=found.ended_at is not None, attempt=found.number, attempt_key=found.key, offset=offset)
