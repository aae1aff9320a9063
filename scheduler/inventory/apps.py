"""The Django application `inventory`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class InventoryConfig(AppConfig):
    """Clusters and their hardware."""

    name = "scheduler.inventory"
    label = "inventory"
    verbose_name = _("Inventory")
