"""The numbers of a dashboard, from the rows: a few aggregate queries over what is alive, never over history.

All of it is plain data, so that it can be published once a second and read by pages, sockets and metrics alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, Exists, F, Min, OuterRef, Q, Sum, Value, When
from django.db.models.functions import Coalesce

from jobs.models import LIVE_STATES, WAITING_STATES, Dependency, Job
from jobs.states import JobState
from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.reasons import ORDER, Reason
from scheduler.inventory.models import Allocation, Cluster, Node
from scheduler.models import LaneHold


@dataclass(slots=True)
class Cards:
    """The GPUs of a pool or a cluster. ``held`` counts a shared card as the share of it that is held.

    ``free`` are whole cards that could take work now, on ``free_on`` nodes; ``largest`` is the most of them on one
    node and ``whole_nodes`` how many lie on nodes that are entirely free. ``by_free[n]`` counts the ready nodes with
    n free cards. ``out`` are cards that take no work: bad ones, and idle ones of nodes that take none.
    """

    total: int = 0
    held: float = 0.0
    free: int = 0
    out: int = 0
    nodes: int = 0
    nodes_ready: int = 0
    free_on: int = 0
    largest: int = 0
    whole_nodes: int = 0
    by_free: list[int] = field(default_factory=list)

    @property
    def held_share(self) -> float:
        """Held cards of all cards, 0 to 1."""
        return min(1.0, self.held / self.total) if self.total else 0.0

    @property
    def fragmentation(self) -> float:
        """The share of the free cards that lie on nodes where others run, 0 to 1."""
        return 1 - self.whole_nodes / self.free if self.free else 0.0

    def add(self, other: Cards) -> None:
        """Take another pool's numbers in."""
        for name in ("total", "held", "free", "out", "nodes", "nodes_ready", "free_on", "whole_nodes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest = max(self.largest, other.largest)
        length = max(len(self.by_free), len(other.by_free))
        self.by_free = [sum(each[n] for each in (self.by_free, other.by_free) if n < len(each)) for n in range(length)]


def cluster_numbers(now: datetime) -> dict[str, Any]:
    """The numbers of every cluster by its slug, and when they were read."""
    clusters = Cluster.objects.order_by("slug")
    pools = _cards()
    jobs = _jobs()
    reasons = waiting_by_reason(now)
    found = {}
    for cluster in clusters:
        own = {model: cards for (of, model), cards in pools.items() if of == cluster.pk}
        whole = Cards()
        for cards in own.values():
            whole.add(cards)
        found[cluster.slug] = {
            "id": cluster.pk,
            "slug": cluster.slug,
            "name": cluster.name,
            "backend": cluster.backend,
            "synced": cluster.synced,
            "problem": cluster.sync_problem,
            "cards": plain(whole),
            "pools": [{"model": model or "", **plain(cards)} for model, cards in sorted(own.items())],
            "jobs": jobs.get(cluster.pk, _no_jobs()),
            "reasons": reasons.get(cluster.pk, []),
        }
    return {"at": now.timestamp(), "clusters": found}


def plain(cards: Cards) -> dict[str, Any]:
    """A pool's numbers as plain data, with the two shares."""
    return asdict(cards) | {"held_share": cards.held_share, "fragmentation": cards.fragmentation, "used_share": None}


def _cards() -> dict[tuple[int, str], Cards]:
    """Cards by cluster and GPU model; one query with a row a node, one for cards that a node has not named yet."""
    usable = Q(gpus__state=CardState.OK.value, gpus__missing_since=None)
    here = Q(gpus__missing_since=None)
    rows = (
        Node.objects.filter(removed_at=None)
        .values("id", "cluster_id", "pool__model", "state")
        .annotate(
            total=Count("gpus", filter=here),
            whole=Count("gpus", filter=here & Q(gpus__whole=True)),
            sliced=Coalesce(
                Sum(
                    Value(1.0) * F("gpus__allocated_mib") / F("gpus__capacity_mib"),
                    filter=here & Q(gpus__whole=False, gpus__allocated_mib__gt=0),
                ),
                Value(0.0),
            ),
            usable=Count("gpus", filter=usable),
            free=Count("gpus", filter=usable & Q(gpus__allocated_mib=0)),
        )
    )
    provisional = Allocation.objects.filter(released_at=None, gpu=None, slot__isnull=False)
    unnamed = dict(provisional.values_list("node_id").annotate(cards=Count("id")))
    found: dict[tuple[int, str], Cards] = {}
    for row in rows:
        cards = found.setdefault((row["cluster_id"], row["pool__model"] or ""), Cards())
        _count_node(cards, row, unnamed.get(row["id"]) or 0)
    return found


def _count_node(cards: Cards, row: Mapping[str, Any], unnamed: int) -> None:
    ready = row["state"] == NodeState.READY.value
    held = row["whole"] + float(row["sliced"]) + unnamed
    free = max(0, row["free"] - unnamed) if ready else 0
    cards.nodes += 1
    cards.nodes_ready += ready
    cards.total += row["total"]
    cards.held += held
    cards.free += free
    cards.out += row["total"] - row["usable"] if ready else max(0, row["total"] - int(held))
    if ready:
        cards.by_free += [0] * (free + 1 - len(cards.by_free))
        cards.by_free[free] += 1
        cards.free_on += free > 0
        cards.largest = max(cards.largest, free)
        cards.whole_nodes += free if free == row["total"] else 0


def _no_jobs() -> dict[str, Any]:
    return dict.fromkeys((*WAITING_STATES, *LIVE_STATES), 0) | {"waiting_gpus": 0, "oldest": None}


def _jobs() -> dict[int, dict[str, Any]]:
    """Jobs that have not ended by cluster: how many in each state, what is asked for, since when the oldest waits."""
    alive = Job.objects.filter(state__in=(*WAITING_STATES, *LIVE_STATES))
    rows = alive.order_by().values("cluster_id", "state").annotate(
        jobs=Count("id"), cards=Sum("gpus"), oldest=Min("submitted_at")
    )  # fmt: skip
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        numbers = found.setdefault(row["cluster_id"], _no_jobs())
        numbers[row["state"]] = row["jobs"]
        if row["state"] == JobState.QUEUED.value:
            numbers["waiting_gpus"] = row["cards"]
            numbers["oldest"] = row["oldest"].timestamp()
    return found


def waiting_by_reason(now: datetime) -> dict[int, list[dict[str, Any]]]:
    """How many jobs wait for which reason, by cluster, in the order of the table of reasons."""
    own = Job.objects.filter(state__in=WAITING_STATES).order_by()
    rows = (
        own.annotate(gate=own_gate(now))
        .values("cluster_id", "lane", "gate")
        .annotate(jobs=Count("id"), cards=Sum("gpus"))
        .values_list("cluster_id", "lane", "gate", "jobs", "cards")
    )
    holds = LaneHold.objects.values_list("cluster_id", "lane", "code")
    codes = {(cluster, lane): code for cluster, lane, code in holds}
    synced = set(Cluster.objects.filter(synced=True).values_list("id", flat=True))
    counts: dict[int, Counter[str]] = {}
    cards: dict[tuple[int, str], int] = Counter()
    for cluster, lane, gate, jobs, asked in rows:
        # As scheduler.selectors says it: nobody has looked at a lane that has no reason yet.
        code = gate or (codes.get((cluster, lane), Reason.TURN.value) if cluster in synced else Reason.SYNCING.value)
        counts.setdefault(cluster, Counter())[code] += jobs
        cards[cluster, code] += asked
    return {cluster: _ordered(cluster, counter, cards) for cluster, counter in counts.items()}


def _ordered(cluster: int, counter: Counter[str], cards: Mapping[tuple[int, str], int]) -> list[dict[str, Any]]:
    return [
        {"code": reason.value, "jobs": counter[reason.value], "gpus": cards[cluster, reason.value]}
        for reason in ORDER
        if counter[reason.value]
    ]


def own_gate(now: datetime) -> Case:
    """The gate that stops a waiting job by itself, as the engine asks them, empty where none does."""
    before = Dependency.objects.filter(job=OuterRef("pk")).exclude(on__state=JobState.SUCCEEDED.value)
    return Case(
        When(state=JobState.HELD.value, then=Value(Reason.HELD.value)),
        When(backoff_until__gt=now, then=Value(Reason.BACKOFF.value)),
        When(not_before__gt=now, then=Value(Reason.NOT_BEFORE.value)),
        When(Exists(before), then=Value(Reason.NOT_BEFORE.value)),
        default=Value(""),
    )


def summed(clusters: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of several clusters as one."""
    whole, jobs, reasons = Cards(), _no_jobs(), Counter[str]()
    names = set(Cards.__slots__)
    for cluster in clusters:
        whole.add(Cards(**{name: value for name, value in cluster["cards"].items() if name in names}))
        for name, value in cluster["jobs"].items():
            if name == "oldest":
                jobs[name] = min((at for at in (jobs[name], value) if at), default=None)
            else:
                jobs[name] += value
        for row in cluster["reasons"]:
            reasons[row["code"]] += row["jobs"]
    rows = [{"code": reason.value, "jobs": reasons[reason.value]} for reason in ORDER if reasons[reason.value]]
    return {"cards": plain(whole), "jobs": jobs, "reasons": rows}
