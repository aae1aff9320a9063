"""Filters that several lists have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import django_filters
from django.db.models import QuerySet

from teams.problems import Invalid


class SinceFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    """From a moment on, given in any time zone that there is; PostgreSQL itself knows fewer of them."""

    def filter(self, qs: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        """Those of then and later. Raises Invalid."""
        if value is None:
            return qs
        try:
            moment = value.astimezone(UTC)
        except (OverflowError, ValueError):
            raise Invalid("invalid", "since: is not a moment that can be reckoned with", field="since") from None
        found: QuerySet[Any] = super().filter(qs, moment)
        return found
