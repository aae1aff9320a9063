"""Changing the hardware's rows: what people and health rules decide about nodes, cards and clusters.

What a backend reports is taken in by `scheduler.inventory.sighting`. Each verb is one transaction and notes the node
for the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs.events import short
from jobs.models import Change, Subject
from jobs.states import Actor
from jobs.wake import wake
from scheduler.engine.cluster import CardState
from scheduler.inventory.models import BackendKind, Cluster, ClusterAccess, Cordon, Gpu, Node
from teams.models import Team, User
from teams.problems import Conflict, Forbidden, Invalid
from teams.selectors import standing_of

PEOPLE = frozenset({Actor.USER, Actor.LEAD, Actor.ADMIN})


def create_cluster(
    *, slug: str, name: str, backend: str, config: dict[str, Any] | None = None, chooses_gpu: bool = True,
    is_default: bool = False, open_to_all: bool = False,
) -> Cluster:  # fmt: skip
    """Make a cluster; its nodes come with the first look at its backend. The caller has asked who may."""
    if backend not in BackendKind.values:
        raise Invalid("invalid", f"backend: must be one of {', '.join(BackendKind.values)}", field="backend")
    if Cluster.objects.filter(slug=slug).exists():
        raise Conflict("taken", f"slug: there is already a cluster {slug}", field="slug")
    with transaction.atomic():
        if is_default:
            Cluster.objects.filter(is_default=True).update(is_default=False)
        return Cluster.objects.create(
            slug=slug, name=name, backend=backend, config=config or {}, chooses_gpu=chooses_gpu,
            is_default=is_default, open_to_all=open_to_all,
        )  # fmt: skip


def open_to(*, author: User | None, cluster: Cluster, team: Team, default: bool = False) -> ClusterAccess:
    """Open a cluster to a team and those below it; ``default``: its jobs go there unless they say otherwise."""
    if author is not None:
        _admin(author)
    with transaction.atomic():
        if default:
            ClusterAccess.objects.filter(team=team, is_default=True).exclude(cluster=cluster).update(is_default=False)
        access, _ = ClusterAccess.objects.update_or_create(
            cluster=cluster, team=team, defaults={"is_default": default, "granted_by": author}
        )
    return access


def close_to(*, author: User, cluster: Cluster, team: Team) -> None:
    """Take no new jobs of a team into a cluster; those that are there stay. Nothing to do: does nothing."""
    _admin(author)
    ClusterAccess.objects.filter(cluster=cluster, team=team).delete()


def mark_unsynced(*, cluster_id: int, why: str) -> None:
    """Let nothing start until the backend has been looked at completely again."""
    with transaction.atomic():
        Cluster.objects.filter(pk=cluster_id).exclude(synced=False, sync_problem=short(why)).update(
            synced=False, sync_problem=short(why)
        )


def cordon(*, node: Node, actor: Actor, why: str, user: User | None = None, drain: bool = False) -> Node:
    """Keep new work off a node; with ``drain`` the present work is to go too. A person's cordon stays a person's.

    ``user`` is the person where ``actor`` is one, and has to be an admin.
    """
    _may(actor, user)
    if not why.strip():
        raise Invalid("invalid", "why: is missing", field="why")
    with transaction.atomic():
        node = _lock(node)
        wanted = Cordon.DRAINING if drain else Cordon.CORDONED
        if node.cordon and Actor(node.cordon_actor) in PEOPLE and actor not in PEOPLE:
            return node
        node.cordon, node.cordon_actor, node.cordon_by = wanted, actor.value, user
        node.cordon_why, node.cordon_at = short(why.strip()), timezone.now()
        _save(node)
    return node


def uncordon(*, node: Node, actor: Actor, user: User | None = None) -> Node:
    """Let a node take new work again. Only a person undoes what a person, or another part, has done.

    Raises Conflict where ``actor`` may not undo this cordon. Nothing to do: does nothing.
    """
    _may(actor, user)
    with transaction.atomic():
        node = _lock(node)
        if not node.cordon:
            return node
        if actor not in PEOPLE and node.cordon_actor != actor.value:
            raise Conflict("not_your_cordon", f"{node.name} was cordoned by {node.cordon_actor}: {node.cordon_why}")
        node.cordon, node.cordon_actor, node.cordon_by = Cordon.NO, "", None
        node.cordon_why, node.cordon_at = "", None
        _save(node)
    return node


def set_card_state(*, gpu: Gpu, state: CardState, actor: Actor, why: str, user: User | None = None) -> Gpu:
    """Say whether a card is fit for work; only an ok one takes any."""
    _may(actor, user)
    with transaction.atomic():
        gpu = Gpu.objects.select_for_update(of=("self",), no_key=True).select_related("cluster").get(pk=gpu.pk)
        if gpu.state == state.value:
            return gpu
        gpu.state, gpu.state_actor = state.value, actor.value
        gpu.state_why, gpu.state_at = short(why), timezone.now()
        gpu.save(update_fields=["state", "state_actor", "state_why", "state_at"])
        note_nodes(gpu.cluster, [gpu.node_id])
    return gpu


def note_nodes(cluster: Cluster, node_ids: Iterable[int]) -> None:
    """Tell the loop of a cluster to look at these nodes again."""
    notes = [Change(cluster=cluster, subject=Subject.NODE, ref=node) for node in sorted(set(node_ids))]
    if notes:
        Change.objects.bulk_create(notes)
        wake(cluster.pk, cluster.tick_group)


def _lock(node: Node) -> Node:
    return Node.objects.select_for_update(of=("self",), no_key=True).select_related("cluster").get(pk=node.pk)


def _save(node: Node) -> None:
    node.save(update_fields=["cordon", "cordon_actor", "cordon_by", "cordon_why", "cordon_at"])
    node.refresh_from_db(fields=["state"])
    note_nodes(node.cluster, [node.pk])


def _may(actor: Actor, user: User | None) -> None:
    if actor in PEOPLE:
        if user is None:
            raise Forbidden("admin_only", "only a platform admin may do that")
        _admin(user)


def _admin(user: User) -> None:
    if not standing_of(user).admin:
        raise Forbidden("admin_only", "only a platform admin may do that")
