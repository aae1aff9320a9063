"""The project as a Django application: loads the Celery application wherever Django is set up."""

from __future__ import annotations

from django.apps import AppConfig

from rota import celery, checks

__all__ = ["RotaConfig", "celery", "checks"]


class RotaConfig(AppConfig):
    """Importing this module is what it is for."""

    name = "rota"
    verbose_name = "Rota"
