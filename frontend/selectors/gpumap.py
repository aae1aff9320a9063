"""A cluster's GPUs as one byte each, in an order that its layout names: 10,000 of them are 10 kB."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, IntegerField, Q, Value, When
from django.db.models.functions import Length

from frontend.words import GPU_STATES
from scheduler.engine.cluster import CardState, NodeState
from scheduler.inventory.models import Gpu

BYTES = {state: number for number, state in enumerate(GPU_STATES)}
"""Free 0, shared 1, held 2, suspect 3, out 4, unknown 5, cordoned and idle 6, node down 7."""
ORDER = ("node__rack", Length("node__name"), "node__name", "index")


def state_byte(prefix: str = "") -> Case:
    """The byte of a card: what is wrong with it comes before who holds it."""

    def when(name: str, /, **conditions: Any) -> When:
        named = {f"{prefix}{field}": value for field, value in conditions.items()}
        return When(Q(**named), then=Value(BYTES[name]))

    return Case(
        when("down", node__state=NodeState.DOWN.value),
        when("unknown", missing_since__isnull=False),
        when("out", state=CardState.OUT.value),
        when("suspect", state=CardState.SUSPECT.value),
        when("unknown", state=CardState.UNKNOWN.value),
        when("held", whole=True),
        when("shared", allocated_mib__gt=0),
        when("cordoned", node__state__in=[NodeState.CORDONED.value, NodeState.DRAINING.value]),
        default=Value(BYTES["free"]),
        output_field=IntegerField(),
    )


def gpu_bytes(cluster_id: int) -> bytes:
    """The states of a cluster's cards, in the order of its layout; one query."""
    cards = Gpu.objects.filter(cluster_id=cluster_id, node__removed_at=None)
    return bytes(cards.annotate(byte=state_byte()).order_by(*ORDER).values_list("byte", flat=True))


def layout(cluster_id: int) -> list[dict[str, Any]]:
    """The nodes in order with their rack and how many cards of the map are theirs; one query."""
    rows = (
        Gpu.objects.filter(cluster_id=cluster_id, node__removed_at=None)
        .order_by(*ORDER)
        .values_list("node__name", "node__rack", "node__pool__model")
    )
    nodes: list[dict[str, Any]] = []
    for name, rack, model in rows:
        if not nodes or nodes[-1]["name"] != name:
            nodes.append({"name": name, "rack": rack, "model": model or "", "gpus": 0})
        nodes[-1]["gpus"] += 1
    return nodes
