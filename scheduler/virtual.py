"""The simulated clusters of a live Rota: a backend whose whole state is the rows and the clock.

What an attempt was told stands in its row, what that has come to by now is `scheduler.backends.virtual`. So nothing is
lost when a process dies, any process may ask, and a thousand nodes cost nothing while nothing happens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobs.models import Attempt
from jobs.reading import SpecError, duration
from scheduler.backends import virtual
from scheduler.backends.base import (
    AttemptKey,
    AttemptReport,
    Launch,
    LogChunk,
    Observation,
    PermanentError,
    Phase,
    refused_env,
)
from scheduler.backends.virtual import Facts, Part, World
from scheduler.inventory.models import Allocation, Cluster

GRACE_S = 30.0
"""As `jobs.spec.JobSpec.grace` where a job says nothing."""
COLUMNS = (
    "pk", "key", "launched_at", "seen_at", "running_at", "ended_at", "stop_at", "stop_sent_at", "stop_grace_s",
    "stop_why", "job__time_limit_s", "job__labels", "job__spec__checkpoint", "job__spec__groups",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    """What is needed of an attempt's row."""

    pk: int
    seen: bool
    ran: bool
    ended: float | None
    groups: tuple[str, ...]
    facts: Facts


class VirtualBackend:
    """See the module. Safe for several threads and processes; cursors are milliseconds of the clock."""

    name = "simulated"

    resizes = False

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime]) -> None:
        """Raises PermanentError where the cluster's `config` makes no sense."""
        self.cluster_id = cluster.pk
        self.chooses_gpu = cluster.chooses_gpu
        self.world: World = virtual.read_world(cluster.config)
        self._clock = clock

    def observe(self, cursor: int | None = None) -> Observation:
        """See Backend. Three queries; linear in the attempts that live."""
        moment = self._clock().timestamp()
        rows = _read(Attempt.objects.filter(job__cluster_id=self.cluster_id, ended_at=None, launched_at__isnull=False))
        complete = cursor is None or not 0 <= cursor <= moment * 1000
        if self.world.faults:
            rows = self._with_parts(rows)
        told = [(row, virtual.report(row.facts, self.world, moment)) for row in rows]
        if not complete:
            told = [(row, seen) for row, seen in told if _is_news(row, seen)]
        before = moment if cursor is None else cursor / 1000
        nodes = self.world.nodes_at(moment) if complete else self.world.changed_between(before, moment)
        return Observation(complete, int(moment * 1000), nodes, tuple(self._whole(told, moment)))

    def launch(self, order: Launch) -> None:
        """See Backend: whether it can run; the row that says that it was launched is what makes it run."""
        if (key := refused_env(order.env)) is not None:
            raise PermanentError(f"env.{key}: set by Rota, a job may not set it")
        cards = {node.name: len(node.gpus) for node in self.world.nodes}
        for replica in order.replicas:
            if replica.node not in cards:
                raise PermanentError(f"replicas[{replica.rank}].node: there is no node {replica.node!r}")
            if any(not 0 <= gpu < cards[replica.node] for gpu in replica.gpus):
                raise PermanentError(f"replicas[{replica.rank}].gpus: {replica.node} has {cards[replica.node]} cards")

    def resize(self, order: Launch) -> None:
        """See Backend."""
        raise PermanentError(f"attempt {order.attempt}: the number of its replicas cannot change yet")

    def stop(self, attempt: AttemptKey, *, grace_s: float | None = None, why: str = "") -> None:
        """See Backend: the row that says that it was asked to stop is what ends it."""

    def forget(self, attempt: AttemptKey) -> None:
        """See Backend: there is nothing that could be dropped."""

    def logs(self, attempt: AttemptKey, *, replica: int = 0, offset: int = 0, limit: int = 65536) -> LogChunk:
        """See Backend."""
        if offset < 0 or limit < 1:
            raise PermanentError("logs: offset must be at least 0 and limit at least 1")
        rows = _read(Attempt.objects.filter(key=attempt, launched_at__isnull=False))
        rows = self._with_parts(rows) if self.world.faults else rows
        if not rows:
            return LogChunk(b"", offset, offset, True)
        ended = rows[0].ended
        now = self._clock().timestamp() if ended is None else ended
        chunk = virtual.log(rows[0].facts, self.world, now, offset=offset, limit=limit)
        return chunk if ended is None else replace(chunk, eof=len(chunk.data) < limit)

    def _whole(self, told: list[tuple[_Row, AttemptReport]], moment: float) -> Iterable[AttemptReport]:
        """The reports with their replicas and, of those that run, the cards that they hold."""
        rows = self._with_parts([row for row, _ in told])
        reports = [virtual.report(row.facts, self.world, moment) for row in rows]
        if self.chooses_gpu:
            return reports
        running = [row for row, seen in zip(rows, reports, strict=True) if seen.phase is Phase.RUNNING]
        picked = self._pick(running)
        facts = [
            replace(row.facts, parts=tuple(_with_cards(part, picked.get((row.pk, part))) for part in row.facts.parts))
            for row in rows
        ]
        return [virtual.report(each, self.world, moment) for each in facts]

    def _pick(self, rows: list[_Row]) -> Mapping[tuple[int, Part], tuple[str, ...]]:
        """The cards that nodes give, each by itself, to replicas that are not confirmed yet."""
        parts = {(row.pk, part.group, part.index): part for row in rows for part in row.facts.parts}
        nodes = {part.node for part in parts.values()}
        held = Allocation.objects.filter(node__cluster=self.cluster_id, node__name__in=nodes, released_at=None)
        columns = ("attempt_id", "group", "replica", "node__name", "gpu__uuid", "slot", "mib")
        by_slot = {(node.name, card.index): card.uuid for node in self.world.nodes for card in node.gpus}
        taken: list[str] = []
        shared: dict[tuple[int, Part], tuple[str, ...]] = defaultdict(tuple)
        missing: dict[tuple[int, Part], int] = defaultdict(int)
        for attempt, group, replica, node, uuid, slot, mib in held.order_by("started_at", "pk").values_list(*columns):
            part = parts.get((attempt, group, replica))
            if uuid is not None:
                taken.append(uuid)
            elif mib and (node, slot) in by_slot:  # a share of a card lies where it was planned
                taken.append(by_slot[node, slot])
                if part is not None:
                    shared[attempt, part] += (by_slot[node, slot],)
            elif part is not None and slot is not None:
                missing[attempt, part] += 1
        wanted = [((attempt, part), part.node, count) for (attempt, part), count in missing.items()]
        return shared | virtual.choose_cards(self.world, wanted, taken)

    def _with_parts(self, rows: Collection[_Row]) -> list[_Row]:
        """The same rows with where their replicas lie."""
        held: dict[int, dict[tuple[str, int], list[tuple[str, str | None]]]]
        held = defaultdict(lambda: defaultdict(list))
        allocations = Allocation.objects.filter(attempt__in=[row.pk for row in rows]).order_by("pk")
        columns = ("attempt_id", "group", "replica", "node__name", "gpu__uuid")
        for attempt, group, replica, node, uuid in allocations.values_list(*columns) if rows else ():
            held[attempt][group, replica].append((node, uuid))
        return [replace(row, facts=replace(row.facts, parts=_parts(row, held[row.pk]))) for row in rows]


def _parts(row: _Row, held: Mapping[tuple[str, int], list[tuple[str, str | None]]]) -> tuple[Part, ...]:
    place = {group: position for position, group in enumerate(row.groups)}
    ordered = sorted(held, key=lambda key: (place.get(key[0], 0), key[1]))
    return tuple(
        Part(rank, group, index, held[group, index][0][0], tuple(uuid for _, uuid in held[group, index] if uuid))
        for rank, (group, index) in enumerate(ordered)
    )


def _with_cards(part: Part, more: tuple[str, ...] | None) -> Part:
    return part if more is None else replace(part, gpus=(*part.gpus, *more))


def _is_news(row: _Row, seen: AttemptReport) -> bool:
    """Whether the row does not say that yet."""
    return not row.seen or seen.phase.ended or (seen.started is not None and not row.ran)


def _read(attempts: QuerySet[Attempt]) -> list[_Row]:
    return [_row(dict(zip(COLUMNS, columns, strict=True))) for columns in attempts.order_by("pk").values_list(*COLUMNS)]


def _row(columns: Mapping[str, Any]) -> _Row:
    key, limit, grace = columns["key"], columns["job__time_limit_s"], columns["stop_grace_s"]
    lasts, code = virtual.profile(key, columns["job__labels"], limit)
    told_to_stop = columns["stop_at"] is not None and columns["stop_sent_at"] is not None
    facts = Facts(
        attempt=key,
        launched=columns["launched_at"].timestamp(),
        parts=(),
        time_limit=limit,
        grace=_grace(columns["job__spec__checkpoint"]) if grace is None else grace,
        stop=columns["stop_at"].timestamp() if told_to_stop else None,
        stop_why=columns["stop_why"],
        duration=lasts,
        exit_code=code,
    )
    names = tuple(str(group["name"]) for group in columns["job__spec__groups"] or ())
    ended = columns["ended_at"]
    return _Row(
        pk=columns["pk"],
        seen=columns["seen_at"] is not None,
        ran=columns["running_at"] is not None,
        ended=None if ended is None else ended.timestamp(),
        groups=names,
        facts=facts,
    )


def _grace(checkpoint: dict[str, Any] | None) -> float:
    with suppress(KeyError, TypeError, SpecError):
        return duration()((checkpoint or {})["grace"])
    return GRACE_S
