"""The rules of a cluster, from its rows to the engine's value, and their new versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pghistory
from django.db import transaction

from jobs.reading import SpecError
from jobs.wake import wake
from scheduler.drive.scenario.policy import changed, read_policy_change
from scheduler.engine.policy import Elastic, Policy
from scheduler.inventory.models import Cluster
from scheduler.models import PolicyVersion
from teams.models import User
from teams.problems import Forbidden, Invalid
from teams.selectors import standing_of

DEFAULT = Policy()


def read_policy(plain: Mapping[str, Any]) -> Policy:
    """A policy from plain JSON values in the form of a scenario's ``policy``. Raises SpecError."""
    return changed(DEFAULT, read_policy_change(dict(plain)))


@lru_cache(maxsize=64)
def policy_by_id(version_id: int | None) -> Policy:
    """The policy of a version, which never changes; None: all defaults."""
    return DEFAULT if version_id is None else read_policy(PolicyVersion.objects.get(pk=version_id).policy)


def rules_by_id(version_id: int | None) -> Policy:
    """What the engine goes by: that policy, but for the size of elastic jobs, which no live backend can change yet."""
    return replace(policy_by_id(version_id), elastic=Elastic(enabled=False))


def policy_of(cluster: Cluster) -> Policy:
    """The policy in force in a cluster."""
    return policy_by_id(cluster.policy_id)


def set_policy(*, author: User, cluster: Cluster, policy: Mapping[str, Any], reason: str) -> PolicyVersion:
    """Put a new version of a cluster's rules in force. Raises Invalid with the place of the first thing wrong."""
    if not standing_of(author).admin:
        raise Forbidden("admin_only", "only a platform admin may change a policy")
    if not reason.strip():
        raise Invalid("invalid", "reason: is missing", field="reason")
    try:
        read_policy(policy)
    except SpecError as error:
        raise Invalid("invalid", str(error), field=error.path) from None
    with transaction.atomic(), pghistory.context(user=author.pk, reason=reason.strip()):
        cluster = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        last = PolicyVersion.objects.filter(cluster=cluster).order_by("-number").first()
        version = PolicyVersion.objects.create(
            cluster=cluster, number=1 if last is None else last.number + 1, policy=dict(policy), author=author,
            reason=reason.strip(),
        )  # fmt: skip
        Cluster.objects.filter(pk=cluster.pk).update(policy=version)
        wake(cluster.pk, cluster.tick_group)
    return version
