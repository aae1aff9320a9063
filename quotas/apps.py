"""The Django application `quotas`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class QuotasConfig(AppConfig):
    """Who may have how much."""

    name = "quotas"
    verbose_name = _("Quotas")
