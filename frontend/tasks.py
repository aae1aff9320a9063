"""Celery tasks of the pages."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from frontend import live


@shared_task(name="frontend.tasks.publish", ignore_result=True)
def publish() -> None:
    """Publish the numbers of this moment; beat calls it each second."""
    live.publish(timezone.now())
