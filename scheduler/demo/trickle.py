"""The living trickle of the demo: every few seconds its teams submit what keeps the cluster busy, and a few waiting."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import datetime

import structlog
from django.db import connection, transaction
from django.db.models import Count, Q

from jobs.models import WAITING_STATES, Job
from jobs.submission import submit
from scheduler.demo.catalogue import Recipe, body_of, draw_recipe
from scheduler.demo.first_start import bot_of
from scheduler.inventory.models import Cluster, Gpu, Node
from scheduler.targets import target_for
from teams.models import Team
from teams.problems import Problem

log = structlog.get_logger(__name__)
BUSY, WAVE, WAVE_S = 0.84, 0.06, 2_700.0
"""The share of each pool that is wanted busy: about so much, up and down by a wave of so many seconds."""
QUEUE_LEAST, QUEUE_MOST = 6, 24
"""Jobs that should, and that may, wait."""
TRICKLE_LOCK = 0x44454D4F  # "DEMO": beside those of cycles and observers
AT_ONCE, AT_FIRST = 5, 140
"""Jobs submitted at most in one go, and in the very first one."""


def trickle(now: datetime) -> int:
    """Let the teams of each demo cluster submit; how many jobs that were."""
    number = 0
    for cluster in Cluster.objects.filter(config__demo=True, synced=True):
        with transaction.atomic():
            if _alone(cluster):
                number += _one(cluster, now, random.Random(f"{cluster.pk}/{now.timestamp():.0f}"))  # noqa: S311
    return number


def hunger(busy: Mapping[str, float], now: float) -> dict[str, float]:
    """How much each pool wants for work, 0 to 1, by the share of it that is or will be busy."""
    goal = BUSY + WAVE * math.sin(2 * math.pi * now / WAVE_S)
    return {model: min(1.0, max(0.0, (goal - share) / goal)) for model, share in busy.items()}


def _one(cluster: Cluster, now: datetime, dice: random.Random) -> int:
    cards, held = _cards(cluster)
    first = not Job.objects.filter(cluster=cluster).exists()
    waiting = Job.objects.filter(cluster=cluster, state__in=WAITING_STATES).count()
    submitted = 0
    while submitted < (AT_FIRST if first else AT_ONCE):
        hungry = hunger({model: held.get(model, 0.0) / total for model, total in cards.items()}, now.timestamp())
        wanted = max(hungry.values(), default=0.0)
        if waiting >= QUEUE_MOST and not first:
            break
        if wanted <= 0.0 and waiting + submitted >= QUEUE_LEAST:
            break
        recipe = draw_recipe(dice, hungry)
        _submit(cluster, recipe, _number(cluster), dice, begun=dice.random() * 0.9 if first else 0.0)
        held[recipe.model] = held.get(recipe.model, 0.0) + recipe.gpus * recipe.replicas
        waiting += not first
        submitted += 1
    return submitted


def _alone(cluster: Cluster) -> bool:
    """Whether no other process lets this cluster's teams submit at this moment."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [TRICKLE_LOCK, cluster.pk])
        return bool(cursor.fetchone()[0])


def _cards(cluster: Cluster) -> tuple[dict[str, int], dict[str, float]]:
    """The cards of each model that take work, and how many of them are held."""
    ready = Node.objects.filter(cluster=cluster, state="ready", removed_at=None)
    rows = (
        Gpu.objects.filter(node__in=ready, missing_since=None)
        .values_list("node__pool__model")
        .annotate(cards=Count("id"), held=Count("id", filter=Q(allocated_mib__gt=0)))
        .order_by()
    )
    found = list(rows)
    return {model: cards for model, cards, _ in found}, {model: float(held) for model, _, held in found}


def _number(cluster: Cluster) -> int:
    """A number for the next name that has not been used lately."""
    newest = Job.objects.filter(cluster=cluster).order_by("-pk").values_list("pk", flat=True).first()
    return 100 + (newest or 0) % 9_000


def _submit(cluster: Cluster, recipe: Recipe, number: int, dice: random.Random, *, begun: float) -> None:
    team = Team.objects.filter(slug=recipe.team, archived_at=None).first()
    if team is None:
        return  # somebody has archived it: the demo does not insist
    user = bot_of(recipe.team)
    try:
        with transaction.atomic():
            target = target_for(user=user, team=team, cluster=cluster.slug)
            submit(user=user, team=team, target=target, body=body_of(recipe, number, dice, begun=begun))
    except Problem as error:
        log.info("the demo could not submit", team=recipe.team, error=str(error))
