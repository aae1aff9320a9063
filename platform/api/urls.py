"""The addresses below `/api/`. Each may also be written without its last slash."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import SimpleRouter

from api.clusters import ClusterViewSet
from api.docs import DocsView, SchemaView
from api.events import EventViewSet
from api.jobs import JobViewSet
from api.me import HealthView, MeView, VersionView
from api.nodes import NodeViewSet
from api.quotas import QuotaViewSet
from api.teams import TeamViewSet
from api.token_views import TokenViewSet
from api.users import UserViewSet

router = SimpleRouter()
router.register("jobs", JobViewSet, basename="api-job")
router.register("teams", TeamViewSet, basename="api-team")
router.register("clusters", ClusterViewSet, basename="api-cluster")
router.register("nodes", NodeViewSet, basename="api-node")
router.register("quotas", QuotaViewSet, basename="api-quota")
router.register("events", EventViewSet, basename="api-event")
router.register("tokens", TokenViewSet, basename="api-token")
router.register("users", UserViewSet, basename="api-user")

urlpatterns: list[URLPattern | URLResolver] = [
    path("schema/", SchemaView.as_view(), name="schema"),
    path("docs/", DocsView.as_view(), name="api-docs"),
    path("v1/me/", MeView.as_view(), name="api-me"),
    path("v1/version/", VersionView.as_view(), name="api-version"),
    path("v1/health/", HealthView.as_view(), name="api-health"),
    path("v1/", include(router.urls)),
]
