"""The Celery application. Tasks live in the `tasks.py` of each package and are found by themselves."""

from __future__ import annotations

import logging.config
import os
import warnings
from typing import Any

from celery import Celery
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]
from celery.signals import setup_logging
from django.conf import settings

# Celery warns root of messages that are code; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rota.settings")

app = Celery("rota")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.set_default()  # so `current_app.send_task(name)` reaches our broker from every thread


@setup_logging.connect
def _use_our_logging(**_: Any) -> None:
    """Keep Celery from installing its own log handlers."""
    logging.config.dictConfig(settings.LOGGING)
