"""Nodes and their cards, a page at a time, and who holds what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Length

from frontend.selectors.gpumap import BYTES, state_byte
from frontend.words import NODE_STATES
from jobs.models import Job
from jobs.permissions import may_see_job
from scheduler.inventory.models import Allocation, Gpu, Node
from teams.models import User
from teams.selectors import standing_of

PAGE = 50
SOME = 24
STATES = {number: state for state, number in BYTES.items()}


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list of nodes is narrowed down to; empty: not at all."""

    cluster: str = ""
    state: str = ""
    text: str = ""

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Filter:
        """Read from an address; what makes no sense is left out."""
        state = str(query.get("state", ""))
        return cls(
            cluster=str(query.get("cluster", ""))[:63],
            state=state if state in NODE_STATES else "",
            text=str(query.get("text", "")).strip()[:200],
        )

    def narrow(self, *, but_state: bool = False) -> QuerySet[Node]:
        """The nodes that it lets through."""
        nodes = Node.objects.filter(removed_at=None)
        if self.cluster:
            nodes = nodes.filter(cluster__slug=self.cluster)
        if self.state and not but_state:
            nodes = nodes.filter(state=self.state)
        if self.text:
            nodes = nodes.filter(Q(name__icontains=self.text) | Q(pool__model__icontains=self.text) | Q(rack=self.text))
        return nodes


@dataclass(frozen=True, slots=True)
class Row:
    """A node with its cards, one state of the map each, in order of index, and the share of them that is held."""

    node: Node
    cards: list[str]

    @property
    def held(self) -> int:
        """Cards that somebody holds, shared ones too."""
        return sum(card in ("held", "shared") for card in self.cards)

    @property
    def free(self) -> int:
        """Cards that could take work now."""
        return self.cards.count("free")


@dataclass(frozen=True, slots=True)
class Page:
    """Rows from ``offset`` on; ``newer`` and ``older`` are the offsets of the pages before and after, if any."""

    rows: list[Row]
    offset: int
    newer: int | None
    older: int | None


def page_of(wanted: Filter, *, offset: int = 0, size: int = PAGE) -> Page:
    """One page of nodes by cluster and name; two queries."""
    order = ("cluster__slug", Length("name"), "name")
    nodes = wanted.narrow().select_related("cluster", "pool", "cordon_by").order_by(*order)
    rows = list(nodes[offset : offset + size + 1])
    more, rows = len(rows) > size, rows[:size]
    cards: dict[int, list[str]] = {node.pk: [] for node in rows}
    states = Gpu.objects.filter(node__in=list(cards)).annotate(byte=state_byte()).order_by("node_id", "index")
    for node, byte in states.values_list("node_id", "byte"):
        cards[node].append(STATES[byte])
    newer = max(0, offset - size) if offset else None
    return Page([Row(node, cards[node.pk]) for node in rows], offset, newer, offset + size if more else None)


def counts(wanted: Filter) -> dict[str, int]:
    """How many nodes there are of each state; one query."""
    rows = wanted.narrow(but_state=True).order_by().values_list("state").annotate(nodes=Count("id"))
    return dict(Counter(dict(rows)))


def offset_of(query: Mapping[str, Any]) -> int:
    """Where the page begins that an address asks for."""
    given = str(query.get("from", "0"))
    return min(int(given), 1_000_000) if given.isascii() and given.isdigit() and len(given) < 16 else 0


@dataclass(frozen=True, slots=True)
class Card:
    """One card with who holds it: pairs of a job (None: not one that the reader may see) and its MiB (0: all)."""

    gpu: Gpu
    state: str
    holders: list[tuple[Job | None, int]]

    @property
    def held_share(self) -> float:
        """How much of its memory is held, 0 to 1."""
        return self.gpu.allocated_mib / max(1, self.gpu.capacity_mib)


def cards_of(node: Node, user: User) -> list[Card]:
    """The cards of a node and what is on them; four queries."""
    standing = standing_of(user)
    gpus = list(node.gpus.annotate(byte=state_byte()).order_by("index"))
    holders: dict[int, list[tuple[Job | None, int]]] = {gpu.pk: [] for gpu in gpus}
    rows = Allocation.objects.filter(gpu__in=gpus, released_at=None).select_related("attempt__job__team")
    for row in rows.order_by("id"):
        job = row.attempt.job
        shown = job if may_see_job(standing, job.team_id) else None
        holders[row.gpu_id or 0].append((shown, row.mib))
    return [Card(gpu, STATES[gpu.byte], holders[gpu.pk]) for gpu in gpus]


def unnamed_on(node: Node) -> int:
    """Cards of a node that are held, while it has not said which."""
    return Allocation.objects.filter(node=node, gpu=None, slot__isnull=False, released_at=None).count()
