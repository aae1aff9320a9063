"""What might let a job start: for each kind of change, its forms from the smallest to the furthest."""

import math
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np

from scheduler.engine.cluster import Inventory, members
from scheduler.engine.demand import MIB_PER_GIB, Group, PendingJob, Shape, Topology
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit
from scheduler.engine.report.whatif import Change
from scheduler.engine.snapshot import Lane, Snapshot

T = TypeVar("T")
MOST_FORMS = 256
"""Forms of one change at most: halving needs 8 decisions for as many, and one for the last."""
HIGHEST_PRIORITY = 1_000


class Kind(StrEnum):
    """What may be changed, in the order in which people would rather do it."""

    RELEASE = "release"
    TOPOLOGY = "topology"
    TIME_LIMIT = "time_limit"
    MODEL = "model"
    VRAM = "vram"
    HOST = "host"
    GPUS = "gpus"
    REPLICAS = "replicas"
    LABELS = "labels"
    TOLERATE = "tolerate"
    EXCLUDED = "excluded"
    QUOTA = "quota"
    PRIORITY = "priority"
    UNTAINT = "untaint"
    BACK = "back"


class Form(NamedTuple):
    """One form of a change; ``template`` and ``facts`` say it, as those of a Hold do."""

    change: Change
    template: str
    facts: tuple[tuple[str, object], ...]


class Family(NamedTuple):
    """The forms of one change, each going further than the one before."""

    kind: Kind
    forms: list[Form]


def form(change: Change, template: str, **facts: object) -> Form:
    """Make a :class:`Form`."""
    return Form(change, template, tuple(facts.items()))


def of_the_job(snapshot: Snapshot, lane: Lane, job: PendingJob) -> Iterator[Family]:
    """Other forms of the job itself, but for its time limit and its priority."""
    yield from _gates(job)
    topology = job.shape.topology
    if topology.require is not None or topology.spread is not None:
        loose = replace(job.shape, topology=Topology(prefer=topology.prefer))
        level = str(topology.require or topology.spread)
        yield Family(Kind.TOPOLOGY, [form(_shaped(job, loose), "without its topology by {level}", level=level)])
    yield from _models(snapshot.inventory, job)
    for index, group in enumerate(job.shape.groups):
        for family in (
            _memory(snapshot, lane.fit, job, index),
            *_host(snapshot.ledger, job, index),
            _gpus(job, index),
            _replicas(job, index),
        ):
            if family.forms:
                yield family
        yield from _labels(job, index)
        yield from _tolerations(snapshot.inventory, job, index, group)
    if job.shape.excluded:
        again = _shaped(job, replace(job.shape, excluded=frozenset()))
        names = ", ".join(sorted(job.shape.excluded))
        yield Family(Kind.EXCLUDED, [form(again, "if it may use {nodes} again", nodes=names)])


def of_the_nodes(snapshot: Snapshot, lane: Lane) -> Iterator[Family]:
    """Nodes without their taints, and nodes and cards back in service."""
    inventory, ledger, fit = snapshot.inventory, snapshot.ledger, lane.fit
    tainted: list[int] = []
    for each in fit.groups:
        group = each.group
        able = inventory.of_model(group.models) & inventory.with_memory(group, each.mib)
        shut = able & inventory.with_labels(group.selector) & ~each.nodes & ledger.ready
        tainted += [node for node in members(shut) if node not in tainted]
    tolerated = {taint for group in lane.shape.groups for taint in group.tolerations}
    tainted.sort(key=lambda node: (-ledger.free[node].bit_count(), node))
    yield Family(Kind.UNTAINT, [_untainted(inventory, tainted[:n], tolerated) for n in _up_to(len(tainted))])
    gone = [
        node
        for node in members(fit.nodes & ~fit.excluded)
        if not ledger.ready >> node & 1 or ledger.working[node].bit_count() < inventory.nodes[node].gpus
    ]
    yield Family(
        Kind.BACK,
        [
            form(Change(back=names), "with {nodes} back in service", nodes=", ".join(names))
            for n in _up_to(len(gone))
            for names in [tuple(inventory.names[node] for node in gone[:n])]
        ],
    )


def shorter(snapshot: Snapshot, job: PendingJob, now: float) -> Family:
    """Shorter time limits: those that end when cards come free, which is when reservations begin."""
    if snapshot.horizon is None:
        return Family(Kind.TIME_LIMIT, [])
    rows = snapshot.horizon.rows
    times = np.unique(rows[np.isfinite(rows)])
    most = math.inf if job.time_limit is None else job.time_limit
    limits = sorted({float(math.floor(at - now)) for at in times if 1.0 <= at - now < most}, reverse=True)
    return Family(
        Kind.TIME_LIMIT,
        [
            form(Change(replace(job, time_limit=limit)), "with a time limit of {seconds:g} s", seconds=limit)
            for limit in _thinned(limits)
            if limit < most
        ],
    )


def more_urgent(snapshot: Snapshot, job: PendingJob) -> Family:
    """Higher priorities: just above those of the jobs that run or wait."""
    met = {running.job.priority for running in snapshot.running.values()}
    met |= {other.priority for lane in snapshot.lanes for other in lane.jobs}
    higher = sorted(priority + 1 for priority in met if job.priority <= priority < HIGHEST_PRIORITY)
    return Family(
        Kind.PRIORITY,
        [
            form(Change(replace(job, priority=priority)), "with priority {priority}", priority=priority)
            for priority in _thinned(higher)
        ],
    )


def _gates(job: PendingJob) -> Iterator[Family]:
    """A job that is stopped by itself, let go: each of its gates, then all."""
    open_now: dict[str, Any] = {}
    if job.held:
        open_now["held"] = ""
    if job.backoff_until:
        open_now["backoff_until"] = 0.0
    if job.not_before:
        open_now["not_before"] = 0.0
    if job.waits_for:
        open_now["waits_for"] = ()
    if open_now:
        said = {"held": "the hold", "backoff_until": "the pause", "not_before": "the start time",
                "waits_for": "the jobs it waits for"}  # fmt: skip
        gates = ", ".join(said[name] for name in open_now)
        yield Family(Kind.RELEASE, [form(Change(replace(job, **open_now)), "without {gates}", gates=gates)])


def _models(inventory: Inventory, job: PendingJob) -> Iterator[Family]:
    asked = {model for group in job.shape.groups for model in group.models}
    if not asked:
        return
    for models in [*((model,) for model in inventory.cards if model not in asked), ()]:
        groups = tuple(replace(group, models=models) if group.models else group for group in job.shape.groups)
        change = _shaped(job, replace(job.shape, groups=groups))
        said = form(change, "on {model}", model=models[0]) if models else form(change, "on any model")
        yield Family(Kind.MODEL, [said])


def _memory(snapshot: Snapshot, fit: Fit, job: PendingJob, index: int) -> Family:
    """Less memory on each card: what is left somewhere, or the sizes that cards have."""
    group = job.shape.groups[index]
    if not group.vram_mib:
        return Family(Kind.VRAM, [])
    if group.share:
        each = next(each for each in fit.groups if each.group.name == group.name)
        grown = each.mib / group.vram_mib  # with the head room of inference
        _, lefts = snapshot.ledger.card_arrays()
        sizes = {int(left / part / grown) for left in set(lefts.tolist()) for part in range(1, group.replicas + 1)}
    else:
        sizes = set(snapshot.inventory.vram_mib.tolist())
    smaller = sorted((mib for mib in sizes if 0 < mib < group.vram_mib), reverse=True)
    return Family(
        Kind.VRAM,
        [
            form(
                _regrouped(job, index, vram_mib=mib),
                "with {gib:g} GiB on each card{of}",
                gib=round(mib / MIB_PER_GIB, 2),
                of=_of(job, group),
            )
            for mib in _thinned(smaller)
        ],
    )


def _host(ledger: Ledger, job: PendingJob, index: int) -> Iterator[Family]:
    """Fewer CPUs, or less host memory: what is left on some node."""
    group = job.shape.groups[index]
    cpus, memory = ledger.host_arrays()
    for field, need, lefts, unit, said in (
        ("cpus_milli", group.cpus_milli, cpus, 1000, "with {need:g} CPUs a replica{of}"),
        ("memory_mib", group.memory_mib, memory, MIB_PER_GIB, "with {need:g} GiB of host memory a replica{of}"),
    ):
        less = sorted({left for left in lefts.tolist() if 0 < left < need}, reverse=True)
        yield Family(
            Kind.HOST,
            [
                form(_regrouped(job, index, **{field: left}), said, need=round(left / unit, 3), of=_of(job, group))
                for left in _thinned(less)
            ],
        )


def _gpus(job: PendingJob, index: int) -> Family:
    group = job.shape.groups[index]
    return Family(
        Kind.GPUS,
        [
            form(_regrouped(job, index, gpus=gpus), "with {gpus} GPUs a replica{of}", gpus=gpus, of=_of(job, group))
            for gpus in range(group.gpus - 1, 0, -1)
        ],
    )


def _replicas(job: PendingJob, index: int) -> Family:
    group = job.shape.groups[index]
    least = group.replicas if group.min_replicas is None else group.min_replicas
    return Family(
        Kind.REPLICAS,
        [
            form(
                _regrouped(job, index, replicas=replicas, min_replicas=None, max_replicas=None),
                "with {replicas} replicas{of}",
                replicas=replicas,
                of=_of(job, group),
            )
            for replicas in _thinned(list(range(least - 1, 0, -1)))
        ],
    )


def _labels(job: PendingJob, index: int) -> Iterator[Family]:
    """Without one of its labels, or without all."""
    group = job.shape.groups[index]
    dropped = [(pair,) for pair in group.selector]
    for pairs in dropped if len(dropped) < 2 else [*dropped, group.selector]:
        rest = tuple(pair for pair in group.selector if pair not in pairs)
        labels = ", ".join(f"{key}={value}" for key, value in pairs)
        said = form(_regrouped(job, index, selector=rest), "without the label {labels}{of}", labels=labels,
                    of=_of(job, group))  # fmt: skip
        yield Family(Kind.LABELS, [said])


def _tolerations(inventory: Inventory, job: PendingJob, index: int, group: Group) -> Iterator[Family]:
    """Tolerating one taint more, or all that there are."""
    strange = sorted({taint for node in inventory.nodes for taint in node.taints} - set(group.tolerations))
    for taints in [[taint] for taint in strange] + ([strange] if len(strange) > 1 else []):
        tolerations = (*group.tolerations, *taints)
        said = form(_regrouped(job, index, tolerations=tolerations), "if it tolerates the taint {taints}{of}",
                    taints=", ".join(taints), of=_of(job, group))  # fmt: skip
        yield Family(Kind.TOLERATE, [said])


def _untainted(inventory: Inventory, nodes: list[int], tolerated: set[str]) -> Form:
    bare = [inventory.nodes[node] for node in nodes]
    left = tuple(replace(node, taints=tuple(t for t in node.taints if t in tolerated)) for node in bare)
    taints = sorted({taint for node in bare for taint in node.taints} - tolerated)
    return form(
        Change(nodes=left), "with the taint {taints} removed from {nodes}", taints=", ".join(taints),
        nodes=", ".join(node.name for node in bare),
    )  # fmt: skip


def _shaped(job: PendingJob, shape: Shape) -> Change:
    return Change(replace(job, shape=shape))


def _regrouped(job: PendingJob, index: int, **changes: Any) -> Change:
    groups = list(job.shape.groups)
    groups[index] = replace(groups[index], **changes)
    return _shaped(job, replace(job.shape, groups=tuple(groups)))


def _of(job: PendingJob, group: Group) -> str:
    return f" in group {group.name}" if len(job.shape.groups) > 1 else ""


def _up_to(count: int) -> range:
    return range(1, min(count, MOST_FORMS) + 1)


def _thinned(forms: list[T]) -> list[T]:
    """At most so many, evenly chosen, the last among them."""
    if len(forms) <= MOST_FORMS:
        return forms
    step = len(forms) / MOST_FORMS
    return [forms[math.ceil((at + 1) * step) - 1] for at in range(MOST_FORMS)]
