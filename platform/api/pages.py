"""Pages of long lists: limit and offset for what is small, a cursor for what grows for ever."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Q, QuerySet
from rest_framework.pagination import BasePagination, LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from teams.problems import Invalid

if TYPE_CHECKING:  # at run time it would be a circle: that module reads the settings, which name this one
    from rest_framework.views import APIView

DEFAULT, MOST = 50, 500
MOST_OFFSET = 1_000_000
_CURSOR = {"name": "cursor", "in": "query", "schema": {"type": "string"}, "description": "From `next` or `previous`."}


def read_whole(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number among the parameters of the address. Raises Invalid."""
    given = request.query_params.get(name)
    if given is None:
        return default
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else -1
    if not least <= number <= most:
        raise Invalid("invalid", f"{name}: must be a whole number from {least} to {most}", field=name)
    return number


class LimitOffset(LimitOffsetPagination):
    """`limit` and `offset` → count, next, previous, results."""

    default_limit, max_limit = DEFAULT, MOST

    def get_limit(self, request: Request) -> int:
        """How many of them; a number that makes no sense is an error, not a surprise."""
        return read_whole(request, "limit", DEFAULT, 1, MOST)

    def get_offset(self, request: Request) -> int:
        """After how many of them."""
        return read_whole(request, "offset", 0, 0, MOST_OFFSET)


class Cursor(BasePagination):
    """`cursor` and `limit` → next, previous, results; newest first. A page costs the same wherever it lies.

    ``order`` names the fields that are compared, most significant first; the last of them is unique.
    """

    order: tuple[str, ...] = ("id",)

    def paginate_queryset(  # type: ignore[override]  # a mere sequence has no order to find a place in
        self, queryset: QuerySet[Any], request: Request, view: APIView | None = None
    ) -> list[Any]:
        """The rows of the page that the request asks for."""
        limit = read_whole(request, "limit", DEFAULT, 1, MOST)
        given = request.query_params.get("cursor")
        backwards, place = _read(given, self.order) if given else (False, None)
        ordered = queryset.order_by(*(name if backwards else f"-{name}" for name in self.order))
        if place is not None:
            ordered = ordered.filter(_beyond(self.order, place, "gt" if backwards else "lt"))
        rows = list(ordered[: limit + 1])
        more, rows = len(rows) > limit, rows[:limit]
        if backwards:
            rows.reverse()
        self._url, self._rows = request.build_absolute_uri(), rows
        self._older = bool(rows) and (backwards or more)
        self._newer = bool(rows) and (more if backwards else place is not None)
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        """The page with the addresses of its neighbours."""
        return Response(
            {
                "next": self._link(self._rows[-1], backwards=False) if self._older else None,
                "previous": self._link(self._rows[0], backwards=True) if self._newer else None,
                "results": data,
            }
        )

    def _link(self, row: Any, *, backwards: bool) -> str:
        values = [getattr(row, name) for name in self.order]
        plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
        text = json.dumps([int(backwards), *plain], separators=(",", ":"))
        cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return replace_query_param(remove_query_param(self._url, "cursor"), "cursor", cursor)

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """What the page looks like, for the description of the API."""
        link = {"type": "string", "format": "uri", "nullable": True}
        properties = {"next": link, "previous": link, "results": schema}
        return {"type": "object", "required": list(properties), "properties": properties}

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        """The parameters, for the description of the API."""
        limit = {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT}
        return [_CURSOR, {"name": "limit", "in": "query", "schema": limit, "description": "How many on a page."}]


class JobCursor(Cursor):
    """Jobs by the time of their submission."""

    order = ("submitted_at", "id")


def _beyond(order: Sequence[str], place: Sequence[Any], how: str) -> Q:
    """Rows that come after ``place``; the first comparison alone lets an index be used."""
    found = Q()
    for depth, name in enumerate(order):
        equal = dict(zip(order[:depth], place[:depth], strict=True))
        found |= Q(**equal, **{f"{name}__{how}": place[depth]})
    return found & Q(**{f"{order[0]}__{how}e": place[0]})


def _read(text: str, order: Sequence[str]) -> tuple[bool, list[Any]]:
    try:
        raw = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        backwards, *place = raw
        if len(place) != len(order) or backwards not in (0, 1) or not 0 <= int(place[-1]) < 2**63:
            raise ValueError
        read: list[Any] = [_moment(value) for value in place[:-1]]
        return bool(backwards), [*read, int(place[-1])]
    except (ValueError, TypeError, binascii.Error, RecursionError, OverflowError):
        raise Invalid("cursor_invalid", "cursor: take it from next or previous", field="cursor") from None


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)
