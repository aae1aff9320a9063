"""Events: every change of a job's state, append-only."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.filters import SinceFilter
from api.pages import Cursor
from api.views import Resource
from jobs.models import JobEvent
from jobs.states import Actor, Event

KINDS = [(kind.value, kind.value) for kind in Event]


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    """Something that happened to a job."""

    job = serializers.CharField(source="job.key")
    job_name = serializers.CharField(source="job.name")
    team = serializers.CharField(source="job.team.slug")
    kind = serializers.ChoiceField(KINDS)
    actor = serializers.ChoiceField([(actor.value, actor.value) for actor in Actor])
    user = serializers.CharField(source="user.username", allow_null=True, default=None)
    data = serializers.DictField()  # type: ignore[assignment]

    class Meta:
        model = JobEvent
        fields = ("id", "at", "job", "job_name", "team", "kind", "actor", "user", "origin", "to", "reason", "data")


def events_with_names() -> QuerySet[JobEvent]:
    """All events with what their serializer names."""
    return JobEvent.objects.select_related("job__team", "user")


class EventFilter(django_filters.FilterSet):  # type: ignore[misc]
    """What a list of events can be narrowed down to."""

    kind = django_filters.MultipleChoiceFilter(choices=KINDS, help_text="May be given several times.")
    job = django_filters.CharFilter("job__key")
    team = django_filters.CharFilter("job__team__slug")
    cluster = django_filters.CharFilter("job__cluster__slug")
    since = SinceFilter("at", "gte")

    class Meta:
        model = JobEvent
        fields: tuple[str, ...] = ()


class EventViewSet(Resource):
    """What happened to the jobs of the teams that one sees."""

    queryset = JobEvent.objects.none()
    serializer_class = EventSerializer
    filterset_class = EventFilter
    pagination_class = Cursor

    def get_queryset(self) -> QuerySet[JobEvent]:
        """Those that whoever asks may see."""
        found, standing = events_with_names(), self.standing
        return found if standing.admin else found.filter(job__team__in=standing.member | standing.lead)

    @extend_schema(summary="List events, newest first")
    def list(self, request: Request) -> Response:
        """A page of events."""
        return self.page(self.filter_queryset(self.get_queryset()), request, EventSerializer)
