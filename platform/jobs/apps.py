"""The Django application `jobs`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class JobsConfig(AppConfig):
    """Jobs, their attempts and what happened to them."""

    name = "jobs"
    verbose_name = _("Jobs")
