"""Who asks, what this is, and whether it works."""

from __future__ import annotations

from typing import Any

import redis
from django.core.cache import cache
from django.db import connection
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from api.authentication import token_of, user_of
from api.errors import Unavailable
from api.token_views import TokenSerializer
from rota_client import __version__
from teams.models import Membership

API_VERSION = "1"


class MeSerializer(serializers.Serializer[Any]):
    """Whoever asks."""

    username = serializers.CharField()
    admin = serializers.BooleanField(help_text="Runs the platform.")
    memberships = inline_serializer(
        "MyMembership",
        {
            "team": serializers.CharField(),
            "role": serializers.CharField(),
            "until": serializers.DateTimeField(allow_null=True),
        },
        many=True,
    )
    token = TokenSerializer(allow_null=True, help_text="The one that was shown; null for a browser.")


class MeView(APIView):
    """Who asks."""

    @extend_schema(operation_id="me", summary="Who you are", responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Your name, your teams, and your token."""
        user, token = user_of(request), token_of(request)
        rows = Membership.objects.filter(user=user, team__archived_at=None).order_by("team__slug")
        memberships = [
            {"team": slug, "role": role, "until": until}
            for slug, role, until in rows.values_list("team__slug", "role", "until")
        ]
        me = {"username": user.get_username(), "admin": user.is_superuser, "memberships": memberships, "token": token}
        return Response(MeSerializer(me).data)


class VersionView(APIView):
    """What this is."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        operation_id="version",
        summary="The version of the server and of its API",
        auth=[],
        responses=inline_serializer("Version", {"version": serializers.CharField(), "api": serializers.CharField()}),
    )
    def get(self, request: Request) -> Response:
        """For everybody."""
        return Response({"version": __version__, "api": API_VERSION})


class HealthView(APIView):
    """Whether it works."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = ()

    @extend_schema(
        operation_id="health",
        summary="Whether database and broker answer",
        auth=[],
        responses=inline_serializer("Health", {"status": serializers.CharField()}),
    )
    def get(self, request: Request) -> Response:
        """For everybody; 503 where one does not. Probes ask /healthz and /readyz, which need no host name."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        try:
            cache.get("health")
        except (redis.RedisError, OSError) as error:
            raise Unavailable("the broker does not answer now") from error
        return Response({"status": "ok"}, headers={"Cache-Control": "no-store"})
