"""The Django application `scheduler`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SchedulerConfig(AppConfig):
    """Policies, and why jobs wait."""

    name = "scheduler"
    verbose_name = _("Scheduler")
