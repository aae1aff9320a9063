"""What the views of all resources share."""

from __future__ import annotations

from typing import Any

from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, CharField, Serializer, ValidationError
from rest_framework.viewsets import GenericViewSet

from api.authentication import user_of
from api.pages import Cursor
from teams.models import User
from teams.selectors import Standing, standing_of

NAME = r"[^/\x00]+"
"""A name in an address."""
SLUG = r"[a-z0-9-]{1,63}"
KEY = r"[0-9a-z]{12}"


class StrictSerializer(Serializer[Any]):
    """A body of which every key has to be known: a typing error must not pass for silence."""

    def to_internal_value(self, data: Any) -> Any:
        """The values. Raises ValidationError that names the first unknown keys."""
        if isinstance(data, dict) and (unknown := [key for key in data if key not in self.fields]):
            raise ValidationError({str(key)[:200]: ["is not a known key"] for key in unknown[:10]})
        return super().to_internal_value(data)


class WhySerializer(StrictSerializer):
    """Why a person does something."""

    why = CharField(max_length=1000, allow_blank=True, required=False, default="", help_text="For people, and kept.")


class MustSayWhySerializer(StrictSerializer):
    """Why a person does something that others will ask about."""

    why = CharField(max_length=1000, help_text="For people, and kept.")


class Resource(GenericViewSet[Any]):
    """One resource: its selector gives the rows, its serializer the answer."""

    lookup_value_regex = NAME

    @property
    def user(self) -> User:
        """Whoever asks."""
        return user_of(self.request)

    @property
    def standing(self) -> Standing:
        """What whoever asks is among the teams; read once a request."""
        if not hasattr(self, "_standing"):
            self._standing = standing_of(self.user)
        return self._standing

    def page(self, rows: Any, request: Request, serializer: type[BaseSerializer[Any]], **context: Any) -> Response:
        """One page of rows as the list answers it."""
        found = self.paginate_queryset(rows)
        assert found is not None
        own = issubclass(serializer, self.get_serializer_class())
        more = self.context_of(found) if own else {}
        shown = serializer(found, many=True, context={"request": request, **more, **context})
        return self.get_paginated_response(shown.data)

    def context_of(self, rows: list[Any]) -> dict[str, Any]:
        """What a serializer needs about all rows of a page, read at once."""
        return {}

    def by_cursor(self, cursor: type[BasePagination] = Cursor) -> None:
        """Let this request's list go by cursor."""
        self._paginator = cursor()


def parsed(serializer: type[Serializer[Any]], data: Any) -> dict[str, Any]:
    """A body as its serializer reads it. Raises ValidationError."""
    reader = serializer(data=data)
    reader.is_valid(raise_exception=True)
    values: dict[str, Any] = reader.validated_data
    return values
