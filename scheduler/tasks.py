"""The Celery tasks of the scheduler: who is woken when. What they do is in `loop`, `rounds`, `sweeping` and `demo`.

All of them are level-triggered and idempotent: a message may be lost, come late or twice. Each names one cluster, so
that a broken cluster stops nobody else; `tick` runs on the queue of the cluster's group, with one solo worker process,
and never shares it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog
from celery import Task, current_app, shared_task
from django.conf import settings
from django.utils import timezone

from jobs.wake import TICK_EXPIRES_S
from scheduler.backends.base import BackendError
from scheduler.connect import Connections
from scheduler.demo.trickle import trickle
from scheduler.inventory.models import Cluster
from scheduler.loop import Loop
from scheduler.rounds import Rounds
from scheduler.sweeping import sweep_all, sweep_cluster
from scheduler.timings import TIMINGS

log = structlog.get_logger(__name__)
ROUND_EXPIRES_S = 2


def send_dispatch(cluster_id: int) -> None:
    """Ask for a dispatch of one cluster: a courtesy, the rounds come by themselves."""
    _send("scheduler.tasks.dispatch", cluster_id)


CONNECTIONS = Connections()
LOOP = Loop(dispatch=send_dispatch)
ROUNDS = Rounds(connections=CONNECTIONS)


@shared_task(name="scheduler.tasks.tick", bind=True, ignore_result=True)
def tick(self: Task[Any, Any], cluster_id: int | None = None, group: str | None = None) -> None:
    """One cycle of a cluster, or of each cluster of a group."""
    asked_at = _sent_at(self.request.expires)
    if cluster_id is not None:
        ids = [cluster_id]
    else:
        ids = list(Cluster.objects.filter(tick_group=group or "main").order_by("pk").values_list("pk", flat=True))
    for each in ids:
        try:
            LOOP.tick(each, asked_at=asked_at)
        except Exception:  # the roster is dropped; the next tick reads all rows again
            log.exception("a cycle has failed", cluster=each)
    TIMINGS.publish()


@shared_task(name="scheduler.tasks.rounds", ignore_result=True)
def rounds() -> None:
    """Send the round of every cluster: beat calls this each second."""
    for cluster_id in Cluster.objects.order_by("pk").values_list("pk", flat=True):
        _send("scheduler.tasks.dispatch", cluster_id)
        _send("scheduler.tasks.observe", cluster_id)
    TIMINGS.publish()


@shared_task(name="scheduler.tasks.dispatch", ignore_result=True)
def dispatch(cluster_id: int) -> None:
    """Tell a cluster's backend what is to start and to stop."""
    try:
        ROUNDS.dispatch(cluster_id)
    except BackendError as error:
        log.warning("there is no backend to dispatch to", cluster=cluster_id, error=str(error))


@shared_task(name="scheduler.tasks.observe", ignore_result=True)
def observe(cluster_id: int) -> None:
    """Write down what a cluster's backend says."""
    ROUNDS.observe(cluster_id)


@shared_task(name="scheduler.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """Clean up after everybody."""
    sweep_all()
    for cluster in Cluster.objects.order_by("pk"):
        with structlog.contextvars.bound_contextvars(cluster=cluster.slug):
            try:
                backend = CONNECTIONS.backend_of(cluster)
            except BackendError:
                backend = None
            found = {name: number for name, number in sweep_cluster(cluster, backend, timezone.now()).items() if number}
            if found:
                log.info("swept", **found)


@shared_task(name="scheduler.tasks.demo", ignore_result=True)
def demo() -> None:
    """Let the teams of the demo clusters submit what they would submit now."""
    if settings.ENV.demo:
        trickle(timezone.now())


def _send(name: str, cluster_id: int) -> None:
    try:
        current_app.send_task(name, kwargs={"cluster_id": cluster_id}, expires=ROUND_EXPIRES_S)
    except Exception as error:  # whatever is wrong with the broker: the next round finds what is to do
        log.warning("a round was not sent", task=name, cluster=cluster_id, error=str(error))


def _sent_at(expires: object) -> float | None:
    """When a tick was asked for, by when it expires; None where it does not say."""
    if isinstance(expires, str):
        try:
            expires = datetime.fromisoformat(expires)
        except ValueError:
            return None
    return expires.timestamp() - TICK_EXPIRES_S if isinstance(expires, datetime) else None
