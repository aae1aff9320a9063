"""The Django application `teams`."""

from __future__ import annotations

from django.apps import AppConfig


class TeamsConfig(AppConfig):
    """People and their teams."""

    name = "teams"
    verbose_name = "Teams"
