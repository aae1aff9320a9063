"""Rows as the values that the engine thinks in. Reads only; a constant number of queries however many rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection
from django.db.models import QuerySet

from jobs.models import LIVE_STATES, WAITING_STATES, Attempt, Dependency, Job
from jobs.reading import SpecError
from jobs.selectors import lane_key
from jobs.spec import parse_job
from jobs.states import JobState
from scheduler.engine.cluster import CardState, Node, NodeState
from scheduler.engine.demand import Group, PendingJob, Shape
from scheduler.engine.plan import Piece
from scheduler.engine.snapshot import Phase
from scheduler.inventory.models import Allocation, Gpu
from scheduler.inventory.models import Node as NodeRow

log = structlog.get_logger(__name__)
PHASES = {
    JobState.STARTING.value: Phase.STARTING,
    JobState.RUNNING.value: Phase.RUNNING,
    JobState.STOPPING.value: Phase.STOPPING,
}


FORGOTTEN_AFTER_S = 90 * 86_400.0
"""Use that is older counts for nothing, however slowly a policy lets it fade."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node with the ids behind it: ``cards`` has the id of the GPU at each index, ``bad`` those that take no work."""

    pk: int
    node: Node
    state: NodeState
    cards: tuple[int, ...]
    bad: tuple[tuple[int, CardState], ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """The live attempt of a job and where it lies; ``started`` in unix seconds."""

    attempt: int
    started: float
    phase: Phase
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A job that waits (``holding`` None) or holds cards; ``changes_at``: when an exclusion of it ends (unix)."""

    pk: int
    team_id: int
    version: int
    job: PendingJob
    holding: Holding | None
    changes_at: float | None


JOB_COLUMNS = (
    "pk", "key", "team_id", "lane", "state", "version", "priority", "submitted_at", "time_limit_s", "min_runtime_s",
    "preemptible", "held_why", "backoff_until", "not_before", "excluded", "preemptions", "returning",
)  # fmt: skip


class Reader:
    """Reads the rows of one cluster. Remembers the shape of each lane, so that a lane's jobs are parsed once."""

    def __init__(self, cluster_id: int, reserve_mib: int, slugs: dict[int, str]) -> None:
        self.cluster_id = cluster_id
        self.reserve_mib = reserve_mib
        self.slugs = slugs
        self._shapes: dict[str, Shape] = {}
        self._unreadable: dict[str, str] = {}

    def machines(self, pks: Collection[int] | None = None) -> list[Machine]:
        """The nodes of the cluster that have not left it, or those of ``pks``."""
        rows = NodeRow.objects.filter(cluster_id=self.cluster_id, removed_at=None).select_related("pool")
        gpus = Gpu.objects.filter(cluster_id=self.cluster_id).order_by("node_id", "index")
        if pks is not None:
            rows, gpus = rows.filter(pk__in=pks), gpus.filter(node_id__in=pks)
        cards: dict[int, list[tuple[int, CardState]]] = defaultdict(list)
        for pk, node_id, state, missing in gpus.values_list("pk", "node_id", "state", "missing_since"):
            cards[node_id].append((pk, CardState.OUT if missing else CardState(state)))
        return [self._machine(row, cards[row.pk]) for row in rows]

    def entries(self, now: datetime, pks: Collection[int] | None = None) -> list[Entry]:
        """The jobs of the cluster that have not ended, or those among ``pks``: waiting and holding cards."""
        jobs = Job.objects.filter(cluster_id=self.cluster_id, state__in=(*WAITING_STATES, *LIVE_STATES))
        if pks is not None:
            jobs = jobs.filter(pk__in=pks)
        rows = [dict(zip(JOB_COLUMNS, row, strict=True)) for row in jobs.values_list(*JOB_COLUMNS)]
        self._learn_shapes(jobs, {row["lane"] for row in rows})
        waits = self._waits(jobs)
        live = self._holdings(pks)
        found = [self._entry(row, waits.get(row["pk"], ()), live.get(row["pk"]), now) for row in rows]
        self._keep_lanes(rows, found)
        return found

    def _machine(self, row: NodeRow, cards: list[tuple[int, CardState]]) -> Machine:
        node = Node(
            name=row.name,
            gpus=len(cards),
            model=row.model,
            vram_mib=row.vram_mib,
            reserve_mib=self.reserve_mib,
            cpus_milli=row.cpus_milli,
            memory_mib=row.memory_mib,
            rack=row.rack,
            switch=row.switch,
            nvlink=row.nvlink,
            labels=tuple(sorted((str(key), str(value)) for key, value in row.labels.items())),
            taints=tuple(row.taints),
        )
        bad = tuple((index, state) for index, (_, state) in enumerate(cards) if state is not CardState.OK)
        return Machine(row.pk, node, NodeState(row.state), tuple(pk for pk, _ in cards), bad)

    def _learn_shapes(self, jobs: QuerySet[Job], lanes: set[str]) -> None:
        unknown = lanes - self._shapes.keys()
        if not unknown:
            return
        rows = jobs.filter(lane__in=unknown).order_by("lane", "pk").distinct("lane")
        for lane, spec in rows.values_list("lane", "spec"):
            try:
                self._shapes[lane] = parse_job(spec, team="-", user="-").shape()
            except SpecError as error:  # of an older version, perhaps: it waits for a person, and nobody else for it
                log.error("jobs cannot be read any more", lane=lane, error=str(error))
                self._shapes[lane], self._unreadable[lane] = Shape(), f"it cannot be read any more: {error}"

    def _entry(self, row: dict[str, Any], waits: tuple[str, ...], holding: Holding | None, now: datetime) -> Entry:
        moment = now.timestamp()
        shape = self._shapes[row["lane"]]
        if holding is not None and row["lane"] in self._unreadable:
            shape = _shape_of(holding.pieces)
        until = [each.get("until") for each in row["excluded"]]
        excluded = frozenset(each["node"] for each in row["excluded"] if (each.get("until") or moment + 1) > moment)
        if excluded or shape.excluded:
            shape = replace(shape, excluded=excluded)
        job = PendingJob(
            key=row["key"],
            team=self.slugs[row["team_id"]],
            shape=shape,
            priority=row["priority"],
            submitted=row["submitted_at"].timestamp(),
            sequence=row["pk"],
            time_limit=row["time_limit_s"],
            held=row["held_why"] or self._unreadable.get(row["lane"], ""),
            backoff_until=_unix(row["backoff_until"]),
            not_before=_unix(row["not_before"]),
            waits_for=waits,
            preemptible=row["preemptible"],
            min_runtime=row["min_runtime_s"],
            taken=row["preemptions"],
            returning=row["returning"],
        )
        if holding is not None:
            holding = replace(holding, phase=PHASES[row["state"]], pieces=_in_order(shape, holding.pieces))
        changes_at = min((end for end in until if end is not None and end > moment), default=None)
        return Entry(row["pk"], row["team_id"], row["version"], job, holding, changes_at)

    def _waits(self, jobs: QuerySet[Job]) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = defaultdict(list)
        rows = Dependency.objects.filter(job__in=jobs).exclude(on__state=JobState.SUCCEEDED).order_by("pk")
        for job, name, state in rows.values_list("job_id", "on__name", "on__state"):
            found[job].append(f"{name} is {state}")
        return {job: tuple(each) for job, each in found.items()}

    def _holdings(self, pks: Collection[int] | None) -> dict[int, Holding]:
        attempts = Attempt.objects.filter(job__cluster_id=self.cluster_id, ended_at=None)
        held = Allocation.objects.filter(attempt__job__cluster_id=self.cluster_id, released_at=None)
        if pks is not None:
            attempts = attempts.filter(job__in=pks)
            held = held.filter(attempt__job__in=pks, attempt__ended_at=None)
        pieces: dict[int, dict[tuple[str, int, str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        columns = ("attempt_id", "group", "replica", "node__name", "mib", "gpu__index", "slot")
        for attempt, group, replica, node, mib, index, slot in held.values_list(*columns):
            card = index if index is not None else slot
            pieces[attempt][group, replica, node, mib] += [] if card is None else [card]
        return {
            job: Holding(
                pk,
                started.timestamp(),
                Phase.STARTING,
                tuple(
                    Piece(group, replica, node, tuple(sorted(cards)), mib)
                    for (group, replica, node, mib), cards in pieces[pk].items()
                ),
            )
            for pk, job, started in attempts.values_list("pk", "job_id", "started_at")
        }

    def _keep_lanes(self, rows: list[dict[str, Any]], entries: list[Entry]) -> None:
        """Write the lane of those jobs whose exclusions have come or gone, so that their reason is found."""
        for row, entry in zip(rows, entries, strict=True):
            if not row["excluded"] and not self._shapes[row["lane"]].excluded:
                continue
            lane = lane_key(row["team_id"], entry.job.shape)
            if lane != row["lane"]:
                self._shapes[lane] = entry.job.shape
                Job.objects.filter(pk=entry.pk).update(lane=lane)


def faded_use(cluster_id: int, now: datetime, half_life: float) -> list[tuple[int, float]]:
    """What each team used in allocations that have ended, in GPU-seconds as they count at ``now``, by team id.

    A GPU held from s to e counts for the integral of 0.5 ** ((now - t) / half_life): the same fading as
    `scheduler.engine.fairshare.settle`. What is older than ten half-lives counts for nothing.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT job.team_id, sum(CASE WHEN held.mib = 0 THEN 1.0 ELSE held.mib::float / greatest(node.vram_mib, 1)"
            " END * %(half)s / ln(2.0) * (power(0.5, extract(epoch FROM %(now)s - held.released_at)::float / %(half)s)"
            " - power(0.5, extract(epoch FROM %(now)s - held.started_at)::float / %(half)s)))::float"
            " FROM inventory_allocation AS held JOIN inventory_node AS node ON node.id = held.node_id"
            " JOIN jobs_attempt AS attempt ON attempt.id = held.attempt_id"
            " JOIN jobs_job AS job ON job.id = attempt.job_id"
            " WHERE node.cluster_id = %(cluster)s AND held.slot IS NOT NULL AND held.released_at > %(since)s"
            " AND held.released_at <= %(now)s GROUP BY job.team_id ORDER BY job.team_id",
            {
                "half": half_life,
                "now": now,
                "cluster": cluster_id,
                "since": now - timedelta(seconds=min(10 * half_life, FORGOTTEN_AFTER_S)),
            },
        )
        return [(team, float(seconds)) for team, seconds in cursor.fetchall()]


def _shape_of(pieces: tuple[Piece, ...]) -> Shape:
    """What a job must look like that lies so, as far as cards go."""
    groups = {
        piece.group: Group(piece.group, gpus=len(piece.gpus), cpus_milli=0, memory_mib=0, vram_mib=piece.mib,
                           share=piece.mib > 0)
        for piece in pieces
    }  # fmt: skip
    return Shape(tuple(groups.values()))


def _in_order(shape: Shape, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    place = {group.name: position for position, group in enumerate(shape.groups)}
    return tuple(sorted(pieces, key=lambda piece: (place.get(piece.group, 0), piece.replica)))


def _unix(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
