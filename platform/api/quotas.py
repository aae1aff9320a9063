"""Quotas: what each team may have in each cluster, as one document a team and cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Case, F, FloatField, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, NullIf
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from api.clusters import cluster_seen
from api.etags import answer, require_match
from api.jobs import IF_NONE_MATCH
from api.parsing import body_of
from api.scopes import Scope
from api.views import SLUG, Resource
from jobs.reading import SpecError, record, text
from quotas.limits import DAYS, Amount, Quota, Window
from quotas.models import QuotaWindow, TeamQuota
from quotas.selectors import quota_of, window_of
from quotas.services import replace_numbers, serialize
from scheduler.drive.scenario.teams import read_quotas, read_windows
from scheduler.inventory.models import Allocation, Cluster
from scheduler.inventory.selectors import capacity_of, clusters_seen_by
from teams.models import Team
from teams.permissions import may_see_team
from teams.problems import Invalid, NotFound
from teams.selectors import live_teams

Pair = tuple[int, int]
"""The ids of a team and a cluster."""
PATH = [OpenApiParameter("cluster", str, OpenApiParameter.PATH), OpenApiParameter("team", str, OpenApiParameter.PATH)]
_AMOUNT = {
    "oneOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*%$"}],
    "description": 'Cards, or a share of the model\'s cards such as "50%".',
}
_CLOCK = {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}
_read = record({"quotas": read_quotas, "windows": read_windows, "why": text}, needs=("quotas", "why"))


@extend_schema_field(_AMOUNT)
class AmountField(serializers.Field[Any, Any, Any, Any]):
    """A number of cards, or a percentage of them as text."""

    def to_representation(self, value: Amount) -> float | int | str:
        """As people write it."""
        if value.percent:
            return str(value)
        return int(value.value) if value.value == int(value.value) else value.value


@extend_schema_field(_CLOCK)
class ClockField(serializers.TimeField):
    """A time of day as `HH:MM`."""

    def to_representation(self, value: Any) -> str:
        """Seconds do not matter here."""
        return str(value.strftime("%H:%M"))


class QuotaSerializer(serializers.Serializer[Quota]):
    """Numbers for one GPU model; `*`: all together."""

    model = serializers.CharField(max_length=200)
    guaranteed = AmountField(required=False, help_text="")
    limit = AmountField(required=False, allow_null=True)
    lend_limit = AmountField(required=False, allow_null=True)


class WindowSerializer(serializers.Serializer[Window]):
    """Numbers that replace those for the same model while it is open."""

    days = serializers.SerializerMethodField()
    start = ClockField()
    end = ClockField()
    model = serializers.CharField(max_length=200)
    guaranteed = AmountField(required=False)
    limit = AmountField(required=False, allow_null=True)
    reclaim_lead = serializers.FloatField(required=False, help_text="Seconds.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """`from` and `to`, which Python cannot call its attributes."""
        fields = super().get_fields()
        names = {"start": "from", "end": "to"}
        for name in names:
            fields[name].source = name
        return {names.get(name, name): field for name, field in fields.items()}

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField([(day, day) for day in DAYS])))
    def get_days(self, window: Window) -> list[str]:
        """The days on which it begins."""
        return [DAYS[day] for day in sorted(window.days)]


class NumbersSerializer(serializers.Serializer[Any]):
    """All numbers of a team in a cluster."""

    cluster = serializers.CharField()
    team = serializers.CharField()
    quotas = QuotaSerializer(many=True)
    windows = WindowSerializer(many=True)


class UsedNumbersSerializer(NumbersSerializer):
    """All numbers of a team in a cluster, and what it holds now."""

    used = serializers.DictField(child=serializers.FloatField(), help_text="Cards by model, with all teams below it.")


NUMBERS_SCHEMA = {
    "type": "object",
    "required": ["quotas", "why"],
    "additionalProperties": False,
    "properties": {
        "quotas": {
            "type": "array",
            "items": {
                "type": "object", "required": ["model"], "additionalProperties": False,
                "properties": {
                    "model": {"type": "string", "minLength": 1, "maxLength": 200},
                    "guaranteed": _AMOUNT, "limit": _AMOUNT, "lend_limit": _AMOUNT,
                },
            },
        },
        "windows": {
            "type": "array",
            "items": {
                "type": "object", "required": ["days", "from", "to", "model"], "additionalProperties": False,
                "properties": {
                    "days": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(DAYS)}},
                    "from": _CLOCK, "to": _CLOCK, "model": {"type": "string", "minLength": 1, "maxLength": 200},
                    "guaranteed": _AMOUNT, "limit": _AMOUNT,
                    "reclaim_lead": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
                },
            },
        },
        "why": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "For people, and kept."},
    },
}  # fmt: skip


class QuotaViewSet(Resource):
    """The numbers of the teams that one sees."""

    queryset = TeamQuota.objects.none()
    serializer_class = UsedNumbersSerializer
    scopes: ClassVar = {"replace": Scope.ADMIN}

    @extend_schema(
        summary="List quotas",
        parameters=[OpenApiParameter("cluster", str), OpenApiParameter("team", str)],
    )
    def list(self, request: Request) -> Response:
        """A page of teams with numbers, or with cards, in a cluster."""
        clusters = {row.pk: row for row in _named(clusters_seen_by(self.user), request.query_params.get("cluster"))}
        teams = {row.pk: row for row in live_teams() if may_see_team(self.standing, row.pk)}
        wanted = request.query_params.get("team")
        used = _used(list(clusters))
        quotas, windows = _rows(list(teams), list(clusters))
        pairs = [
            pair
            for pair in {*quotas, *windows, *used}
            if pair[0] in teams and pair[1] in clusters and wanted in (None, teams[pair[0]].slug)
        ]
        pairs.sort(key=lambda pair: (clusters[pair[1]].slug, teams[pair[0]].slug))
        rows = [
            {
                "cluster": clusters[cluster].slug,
                "team": teams[team].slug,
                "quotas": quotas.get((team, cluster), []),
                "windows": windows.get((team, cluster), []),
                "used": used.get((team, cluster), {}),
            }
            for team, cluster in pairs
        ]
        return self.page(rows, request, UsedNumbersSerializer)

    @extend_schema(
        operation_id="quotas_retrieve", summary="Look at a team's numbers", responses=NumbersSerializer,
        parameters=[*PATH, IF_NONE_MATCH],
    )  # fmt: skip
    @action(detail=False, url_path=rf"(?P<cluster>{SLUG})/(?P<team>{SLUG})", url_name="detail")
    def show(self, request: Request, cluster: str, team: str) -> Response:
        """The quotas and windows of one team in one cluster."""
        return answer(request, _document(*self._named(cluster, team)))

    @extend_schema(
        operation_id="quotas_replace", summary="Replace a team's numbers", request={"application/json": NUMBERS_SCHEMA},
        responses=NumbersSerializer,
        parameters=[*PATH, OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True,
                                            description="The ETag of what you saw: 412 where it is no longer so.")],
    )  # fmt: skip
    @show.mapping.put
    def replace(self, request: Request, cluster: str, team: str) -> Response:
        """For admins. All quotas and windows at once; what is left out is gone."""
        row, owner = self._named(cluster, team)
        body = body_of(request)
        try:
            said = _read(body)
        except SpecError as error:
            raise Invalid("invalid", str(error), field=error.path) from None
        if not said["why"].strip():
            raise Invalid("invalid", "why: is missing", field="why")
        with transaction.atomic():
            serialize()
            require_match(request, _document(row, owner), must=True)
            replace_numbers(
                author=self.user, team=owner, cluster_id=row.pk, quotas=said["quotas"],
                windows=said.get("windows", ()), capacity=capacity_of(row.pk), reason=said["why"][:1000],
            )  # fmt: skip
            data = _document(row, owner)
        return answer(request, data)

    def _named(self, cluster: str, team: str) -> tuple[Cluster, Team]:
        row = cluster_seen(clusters_seen_by(self.user), cluster)
        owner = live_teams().filter(slug=team).first()
        if owner is None or not may_see_team(self.standing, owner.pk):
            raise NotFound("team_not_found", f"there is no team {team}")
        return row, owner


def _document(cluster: Cluster, team: Team) -> dict[str, Any]:
    quotas, windows = _rows([team.pk], [cluster.pk])
    pair = (team.pk, cluster.pk)
    found = {
        "cluster": cluster.slug,
        "team": team.slug,
        "quotas": quotas.get(pair, []),
        "windows": windows.get(pair, []),
    }
    return NumbersSerializer(found).data


def _rows(teams: list[int], clusters: list[int]) -> tuple[Mapping[Pair, list[Quota]], Mapping[Pair, list[Window]]]:
    """Quotas and windows by team and cluster; two queries."""
    quotas: dict[Pair, list[Quota]] = defaultdict(list)
    windows: dict[Pair, list[Window]] = defaultdict(list)
    which = {"team__in": teams, "cluster__in": clusters}
    for quota in TeamQuota.objects.filter(**which).order_by("model"):
        quotas[quota.team_id, quota.cluster_id].append(quota_of(quota))
    for window in QuotaWindow.objects.filter(**which).order_by("id"):
        windows[window.team_id, window.cluster_id].append(window_of(window))
    return quotas, windows


def _used(clusters: list[int]) -> Mapping[Pair, dict[str, float]]:
    """What each team holds, with all teams below it, by cluster and model; two queries."""
    nothing = When(mib=0, slot=None, gpu=None, then=Value(0.0))
    whole = When(mib=0, then=Value(1.0))
    share = Value(1.0) * F("mib") / NullIf(Coalesce(F("gpu__capacity_mib"), F("node__vram_mib")), Value(0))
    held = (
        Allocation.objects.filter(released_at=None, node__cluster__in=clusters, node__pool__isnull=False)
        .values_list("attempt__job__team", "node__cluster", "node__pool__model")
        .annotate(cards=Sum(Case(nothing, whole, default=share, output_field=FloatField())))
    )
    parents = dict(Team.objects.values_list("id", "parent_id"))
    found: dict[Pair, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for team, cluster, model, cards in held:
        at: int | None = team
        while at is not None:
            found[at, cluster][model] += float(cards or 0)
            at = parents.get(at)
    return {pair: {model: round(cards, 6) for model, cards in models.items()} for pair, models in found.items()}


def _named(clusters: QuerySet[Cluster], slug: str | None) -> QuerySet[Cluster]:
    return clusters if slug is None else clusters.filter(slug=slug[:63].replace("\0", ""))
