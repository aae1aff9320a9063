"""Taking in what a backend reports about its nodes: a report that says nothing new writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Greatest

from jobs.events import short
from scheduler.backends.base import NodeReport
from scheduler.inventory.models import Allocation, Cluster, Contact, Gpu, Node, Pool
from scheduler.inventory.services import note_nodes

OBSERVE_LOCK = 0x524F5441  # "ROTA": the first half of the advisory locks that observers of one cluster share
OUT_OF_THE_WAY = 16_384  # added to indexes of cards while they change places
NODE_FIELDS = (
    "pool", "contact", "contact_at", "note", "vram_mib", "cpus_milli", "memory_mib", "labels", "taints", "rack",
    "switch", "nvlink", "last_seen", "removed_at",
)  # fmt: skip
GPU_FIELDS = ("node", "index", "virtual", "memory_mib", "usable_mib", "missing_since")


@dataclass(slots=True)
class _Sighting:
    """What one set of reports changes."""

    cluster: Cluster
    now: datetime
    pools: dict[str, Pool]
    nodes: dict[str, Node]
    cards: dict[str, Gpu]
    cards_of: dict[int, list[Gpu]]
    new_nodes: list[Node] = field(default_factory=list)
    changed_nodes: dict[str, Node] = field(default_factory=dict)
    new_cards: list[Gpu] = field(default_factory=list)
    changed_cards: dict[str, Gpu] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    resized: set[int] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)


def take_in_nodes(*, cluster: Cluster, reports: Sequence[NodeReport], complete: bool, now: datetime) -> frozenset[str]:
    """Bring nodes and cards up to date; returns the names of the nodes that changed.

    With ``complete`` a node that is not reported has left: it is ``removed_at`` now, or down while it still holds
    something. A card that its node no longer reports stays, out of use, behind the others.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [OBSERVE_LOCK, cluster.pk])
        seen = _look_up(cluster, reports, now, complete=complete)
        for report in reports:
            _take_in(seen, report)
        if complete:
            _miss_nodes(seen, {report.name for report in reports})
        _write(seen)
        if seen.touched:
            names = Node.objects.filter(cluster=cluster, name__in=seen.touched)
            note_nodes(cluster, names.values_list("pk", flat=True))
    return frozenset(seen.touched)


def _look_up(cluster: Cluster, reports: Sequence[NodeReport], now: datetime, *, complete: bool) -> _Sighting:
    nodes, cards = Node.objects.filter(cluster=cluster), Gpu.objects.filter(cluster=cluster)
    if not complete:
        names = [report.name for report in reports]
        uuids = [card.uuid for report in reports for card in report.gpus]
        nodes = nodes.filter(name__in=names)
        cards = cards.filter(node__name__in=names) | cards.filter(uuid__in=uuids)
    rows = list(cards)
    cards_of: dict[int, list[Gpu]] = defaultdict(list)
    for card in rows:
        cards_of[card.node_id].append(card)
    return _Sighting(
        cluster,
        now,
        {pool.model: pool for pool in Pool.objects.filter(cluster=cluster)},
        {node.name: node for node in nodes},
        {card.uuid: card for card in rows},
        cards_of,
    )


def _take_in(seen: _Sighting, report: NodeReport) -> None:
    node = seen.nodes.get(report.name)
    new = node is None
    if node is None:
        node = seen.nodes[report.name] = Node(cluster=seen.cluster, name=report.name, contact="", contact_at=seen.now)
    before = [getattr(node, name) for name in ("pool_id", *NODE_FIELDS[1:])]
    for name, value in _facts(seen, report).items():
        setattr(node, name, value)
    contact = Contact.READY if report.ready else Contact.DOWN
    if node.contact != contact:
        node.contact, node.contact_at, node.last_seen = contact, seen.now, seen.now
    if new:
        seen.new_nodes.append(node)
    elif before != [getattr(node, name) for name in ("pool_id", *NODE_FIELDS[1:])]:
        seen.changed_nodes[node.name] = node
    if new or node.name in seen.changed_nodes:
        seen.touched.add(node.name)
    _take_in_cards(seen, node, report)


def _facts(seen: _Sighting, report: NodeReport) -> Mapping[str, Any]:
    return {
        "pool": _pool(seen, report.model) if report.gpus and report.model else None,
        "note": short(report.note),
        "vram_mib": min((card.memory_mib for card in report.gpus), default=0),
        "cpus_milli": report.cpus * 1000,
        "memory_mib": report.memory_mib,
        "labels": dict(report.labels),
        "taints": list(report.taints),
        "rack": report.rack,
        "switch": report.switch,
        "nvlink": report.nvlink,
        "removed_at": None,
    }


def _pool(seen: _Sighting, model: str) -> Pool:
    if model not in seen.pools:
        seen.pools[model], _ = Pool.objects.get_or_create(cluster=seen.cluster, model=model)
    return seen.pools[model]


def _take_in_cards(seen: _Sighting, node: Node, report: NodeReport) -> None:
    """Cards are known by their UUID: where they are renumbered, or move to another node, their rows go with them."""
    wanted: list[tuple[str, int, int, bool, datetime | None]] = [
        (card.uuid, card.index, card.memory_mib, card.virtual, None) for card in report.gpus
    ]
    reported = {card.uuid for card in report.gpus}
    own = seen.cards_of.get(node.pk, []) if node.pk else []
    here = (card for card in own if card.node_id == node.pk and card.uuid not in reported)  # others may have moved away
    lost = sorted(here, key=lambda card: card.index)
    for position, card in enumerate(lost, start=len(report.gpus)):
        wanted.append((card.uuid, position, card.memory_mib, card.virtual, card.missing_since or seen.now))
    for uuid, index, memory, virtual, missing in wanted:
        usable = max(0, memory - seen.cluster.reserve_mib)
        known = seen.cards.get(uuid)
        if known is None:
            gpu = Gpu(
                cluster=seen.cluster, node=node, uuid=uuid, index=index, virtual=virtual, memory_mib=memory,
                usable_mib=usable, capacity_mib=max(1, usable),
            )  # fmt: skip
            seen.new_cards.append(gpu)
            seen.cards[uuid] = gpu
            seen.touched.add(node.name)
        else:
            _change_card(
                seen, known, node=node, index=index, memory_mib=memory, usable_mib=usable, virtual=virtual,
                missing_since=missing,
            )  # fmt: skip


def _change_card(seen: _Sighting, gpu: Gpu, **values: Any) -> None:
    if (gpu.node_id, gpu.index) != (values["node"].pk, values["index"]):
        seen.moved.add(gpu.pk)
    unused = not gpu.whole and gpu.capacity_mib > max(1, gpu.allocated_mib, values["usable_mib"])
    if gpu.usable_mib != values["usable_mib"] or unused:
        seen.resized.add(gpu.pk)
    same = gpu.node_id == values["node"].pk
    if not same or any(getattr(gpu, name) != value for name, value in values.items() if name != "node"):
        seen.touched |= {values["node"].name} | (set() if same else {gpu.node.name})
        for name, value in values.items():
            setattr(gpu, name, value)
        seen.changed_cards[gpu.uuid] = gpu


def _miss_nodes(seen: _Sighting, reported: Collection[str]) -> None:
    gone = [node for node in seen.nodes.values() if node.name not in reported and node.removed_at is None]
    if not gone:
        return
    busy = set(Allocation.objects.filter(node__in=gone, released_at=None).values_list("node_id", flat=True))
    for node in gone:
        down = node.contact == Contact.DOWN
        if node.pk in busy and down:
            continue
        if node.pk in busy:
            node.contact, node.contact_at, node.note = Contact.DOWN, seen.now, "the cluster no longer reports it"
        else:
            node.removed_at = seen.now
        seen.changed_nodes[node.name] = node
        seen.touched.add(node.name)


def _write(seen: _Sighting) -> None:
    Node.objects.bulk_create(seen.new_nodes, batch_size=1000)
    if seen.changed_nodes:
        Node.objects.bulk_update(seen.changed_nodes.values(), NODE_FIELDS, batch_size=500)
    if seen.moved:
        Gpu.objects.filter(pk__in=seen.moved).update(index=F("index") + OUT_OF_THE_WAY)
    if seen.changed_cards:
        Gpu.objects.bulk_update(seen.changed_cards.values(), GPU_FIELDS, batch_size=500)
    Gpu.objects.bulk_create(seen.new_cards, batch_size=2000)
    if seen.resized:
        # What is held now may differ from what was read: the database reckons with its own numbers.
        Gpu.objects.filter(pk__in=seen.resized).update(
            capacity_mib=Case(
                When(whole=True, then=F("capacity_mib")),
                default=Greatest(F("usable_mib"), F("allocated_mib"), Value(1)),
            )
        )
