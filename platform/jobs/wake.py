"""Waking the loop of a cluster, by the name of its task: a courtesy, because the loop comes by itself anyway."""

from __future__ import annotations

from functools import partial

import structlog
from celery import current_app
from django.db import transaction

log = structlog.get_logger(__name__)
TICK = "scheduler.tasks.tick"
TICK_EXPIRES_S = 1


def wake(cluster_id: int, tick_group: str) -> None:
    """Once this transaction is committed, tell the loop of a cluster that there is something to do."""
    transaction.on_commit(partial(_send, cluster_id, tick_group))


def _send(cluster_id: int, tick_group: str) -> None:
    try:
        current_app.send_task(
            TICK, kwargs={"cluster_id": cluster_id}, queue=f"tick-{tick_group}", expires=TICK_EXPIRES_S
        )
    except Exception as error:  # whatever is wrong with the broker: what is committed will be found without it
        log.warning("the loop was not woken", cluster=cluster_id, error=str(error))
