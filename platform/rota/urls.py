"""The roots of all addresses. Each package mounts its own below them."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from frontend import urls as frontend

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", include("api.urls")),
    path("accounts/", include("allauth.urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("frontend.urls")),
]
websocket_urlpatterns: list[URLPattern | URLResolver] = [*frontend.websocket_urlpatterns]
"""Channels' consumers, mounted by rota.asgi. /healthz and /readyz are answered before all this, in rota.middleware."""
