"""The Django application `api`."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """The REST API and its tokens."""

    name = "api"
    verbose_name = "API"

    def ready(self) -> None:
        # drf-spectacular finds an extension once its module is loaded.
        import_module("api.schema")
