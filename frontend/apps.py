"""The Django application `frontend`."""

from __future__ import annotations

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    """The pages."""

    name = "frontend"
    verbose_name = "Rota"
