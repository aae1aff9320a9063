"""Steps of a first start (see `rota.bootstrap`): this machine and the demo as clusters. What is there is left alone."""

from __future__ import annotations

import random
from collections.abc import Mapping

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from quotas.limits import Amount, Quota
from quotas.services import replace_numbers
from scheduler.connect import connect
from scheduler.demo import catalogue
from scheduler.inventory.models import BackendKind, Cluster
from scheduler.inventory.selectors import capacity_of
from scheduler.inventory.services import create_cluster, mark_unsynced, open_to
from scheduler.rounds import observe
from teams.models import Role, Team, User
from teams.services import add_member, create_team

LOCAL = "local"
TEAM = "demo"


def look_again() -> Mapping[str, str] | None:
    """Let nothing start in any cluster until its backend has been looked at completely since this start."""
    for cluster_id in Cluster.objects.values_list("pk", flat=True):
        mark_unsynced(cluster_id=cluster_id, why="Rota has just started")
    return None


def this_machine() -> Mapping[str, str] | None:
    """Make the cluster `local` of a Rota that brings its own stores, open to the team `demo` and to admins alone.

    Its commands run on the very machine that Rota runs on, so whoever may use it is an administrator's choice.
    """
    if settings.ENV.database is not None or Cluster.objects.filter(slug=LOCAL).exists():
        return None
    with transaction.atomic():
        cluster = create_cluster(slug=LOCAL, name="This machine", backend=BackendKind.LOCAL)
        team = Team.objects.filter(slug=TEAM, archived_at=None).first()
        team = team or create_team(author=_admin(), name="Demo", slug=TEAM, reason="first start")
        open_to(author=None, cluster=cluster, team=team, default=True)
    return None


def demo_cluster() -> Mapping[str, str] | None:
    """Make the simulated cluster with its four teams, unless ROTA_DEMO=0."""
    if not settings.ENV.demo or Cluster.objects.filter(slug=catalogue.SLUG).exists():
        return None
    admin = _admin()
    with transaction.atomic():
        cluster = create_cluster(
            slug=catalogue.SLUG, name=catalogue.NAME, backend=BackendKind.SIMULATED, config=dict(catalogue.CONFIG)
        )
        observe(cluster, connect(cluster), None, clock=timezone.now, chance=random.random)
        capacity = capacity_of(cluster.pk)
        for demo in catalogue.TEAMS:
            team = Team.objects.filter(slug=demo.slug, archived_at=None).first()
            if team is None:
                team = create_team(
                    author=admin, name=demo.name, slug=demo.slug, weight=demo.weight, reason="first start"
                )
            open_to(author=None, cluster=cluster, team=team, default=True)
            add_member(author=admin, team=team, user=bot_of(demo.slug), role=Role.MEMBER)
            quotas = [
                Quota(model, Amount(guaranteed), None if limit is None else Amount(limit))
                for model, (guaranteed, limit) in demo.quotas.items()
            ]
            replace_numbers(
                author=admin, team=team, cluster_id=cluster.pk, quotas=quotas, windows=(), capacity=capacity,
                reason="first start",
            )  # fmt: skip
    return None


def bot_of(team: str) -> User:
    """The account that submits a demo team's jobs; nobody can sign in with it."""
    user, created = User.objects.get_or_create(username=f"{team}-bot")
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user


def _admin() -> User:
    return User.objects.filter(is_superuser=True, is_active=True).order_by("pk")[0]
