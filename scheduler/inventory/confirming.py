"""Noting which cards a node has really given out, where that is its own choice or differs from what was planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.db import transaction

from jobs.events import note_jobs
from jobs.wake import wake
from scheduler.backends.base import AttemptReport, ReplicaReport
from scheduler.inventory.models import Allocation, Cluster, Gpu


def confirm_cards(*, cluster: Cluster, reports: Sequence[tuple[int, AttemptReport]]) -> int:
    """Bring allocations in line with the cards that replicas say they hold; returns how many rows changed.

    Idempotent, and one transaction: whoever was thought to hold a card that another one reports goes back to
    provisional, in the slot that came free, until it is reported itself.
    """
    told = [
        (attempt, replica) for attempt, report in reports for replica in report.replicas
        if replica.gpus and not replica.phase.ended
    ]  # fmt: skip
    if not told:
        return 0
    rows = _rows({attempt for attempt, _ in told})
    differing = [
        (mine, replica)
        for attempt, replica in told
        if (mine := rows.get((attempt, replica.group, replica.index)))
        and {row.gpu.uuid for row in mine if row.gpu} != set(replica.gpus)
    ]
    if not differing:
        return 0
    with transaction.atomic():
        changed, jobs = 0, set()
        for mine, replica in differing:
            for row in _confirm(cluster, [row.pk for row in mine], replica):
                changed += 1
                jobs.add(row.attempt.job_id)
        note_jobs(cluster.pk, jobs)
        if jobs:
            wake(cluster.pk, cluster.tick_group)
    return changed


def _rows(attempts: set[int]) -> dict[tuple[int, str, int], list[Allocation]]:
    found: dict[tuple[int, str, int], list[Allocation]] = defaultdict(list)
    live = Allocation.objects.filter(attempt__in=attempts, released_at=None, slot__isnull=False)
    for row in live.select_related("gpu").order_by("pk"):
        found[row.attempt_id, row.group, row.replica].append(row)
    return found


def _confirm(cluster: Cluster, ids: list[int], replica: ReplicaReport) -> list[Allocation]:
    """Give the rows of one replica the cards that it reports; returns all rows that changed."""
    rows = list(
        Allocation.objects.select_for_update(of=("self",))
        .select_related("gpu", "attempt")
        .filter(pk__in=ids, released_at=None)
        .order_by("pk")
    )
    held = {row.gpu.uuid for row in rows if row.gpu}
    cards = list(Gpu.objects.filter(cluster=cluster, uuid__in=set(replica.gpus) - held).order_by("index"))
    misplaced = [row for row in rows if row.gpu is None or row.gpu.uuid not in replica.gpus]
    # Cards that lie where they were planned stay there; the rest is paired as it comes.
    changed: list[Allocation] = []
    for row in list(misplaced):
        planned = next((card for card in cards if row.gpu is None and card.index == row.slot), None)
        if planned is not None:
            cards.remove(planned)
            misplaced.remove(row)
            changed += _give(row, planned)
    for row, card in zip(misplaced, cards, strict=False):
        changed += _give(row, card)
    return changed


def _give(row: Allocation, card: Gpu) -> list[Allocation]:
    """Let a row hold a card; whoever was there gets the slot, and becomes provisional."""
    if row.mib:
        Allocation.objects.filter(pk=row.pk).update(gpu=card, slot=card.index)
        return [row]
    live = Allocation.objects.select_for_update(of=("self",)).select_related("attempt").filter(
        released_at=None, mib=0, node_id=row.node_id
    ).exclude(pk=row.pk)  # fmt: skip
    others = list(live.filter(gpu=card)) or list(live.filter(gpu=None, slot=card.index))
    freed = row.slot
    for other in others:
        Allocation.objects.filter(pk=other.pk).update(gpu=None, slot=None)
    Allocation.objects.filter(pk=row.pk).update(gpu=card, slot=card.index)
    for other in others:
        Allocation.objects.filter(pk=other.pk).update(slot=freed)
    return [row, *others]
