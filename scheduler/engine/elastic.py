"""Elastic jobs: the size of the hour, and what a running one gives up or asks for.

A job has ``replicas`` replicas, or what an open scale window says; it may start with any number from its least to
that. Growing back to it is demand like a waiting job's, one replica at a time. Growing beyond it, up to
``max_replicas``, takes only what is idle and is given back to whoever needs it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from scheduler.engine.cluster import Inventory
from scheduler.engine.demand import Group, Level, PendingJob, Shape, Topology
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, slice_mib
from scheduler.engine.plan import Piece, Resize
from scheduler.engine.snapshot import Lane, RunningJob


class Size(NamedTuple):
    """What a job should have at a moment.

    ``least`` and ``wanted`` replicas, at ``most`` so many where cards are idle, and ``vram_mib`` a card (0: any).
    """

    least: int
    wanted: int
    most: int
    vram_mib: int


def size_at(job: PendingJob, moment: datetime) -> Size:
    """The size of an elastic job by the wall clock."""
    group = job.shape.groups[0]
    least = group.replicas if group.min_replicas is None else group.min_replicas
    wanted, most, vram = group.replicas, max(group.replicas, group.max_replicas or 0), group.vram_mib
    for window in job.scale:
        if window.is_open(moment.time()):
            if window.replicas is not None:
                wanted = most = window.replicas
            vram = window.vram_mib or vram
    return Size(min(least, wanted), wanted, most, vram)


def sized(shape: Shape, replicas: int, vram_mib: int) -> Shape:
    """The same shape with another number of replicas or memory per card."""
    group = replace(shape.groups[0], replicas=replicas, vram_mib=vram_mib)
    return shape if group == shape.groups[0] else replace(shape, groups=(group,))


def shrunk(running: RunningJob, size: Size) -> Resize | None:
    """The giving up of replicas beyond the most of the hour, the last first; None where there are none."""
    if len(running.pieces) <= size.most:
        return None
    return Resize(running.job.key, running.pieces[: size.most])


def reshaped(running: RunningJob, size: Size, ledger: Ledger, headroom: float) -> Resize | None:
    """The slices of a running job at the memory of the hour, where its cards have it; None where nothing changes."""
    group = running.job.shape.groups[0]
    if not group.share:
        return None
    mib = slice_mib(replace(group, vram_mib=size.vram_mib), headroom)
    if all(piece.mib == mib for piece in running.pieces) or not _room_for(running.pieces, mib, ledger):
        return None
    return Resize(running.job.key, tuple(piece._replace(mib=mib) for piece in running.pieces))


def _room_for(pieces: tuple[Piece, ...], mib: int, ledger: Ledger) -> bool:
    more: dict[tuple[int, int], int] = {}
    for piece in pieces:
        node = ledger.inventory.index.get(piece.node)
        if node is None:
            return False
        for gpu in piece.gpus:
            more[node, gpu] = more.get((node, gpu), 0) + mib - piece.mib
    return all(extra <= 0 or ledger.slice_left(node, gpu) >= extra for (node, gpu), extra in more.items())


class Growth(NamedTuple):
    """One more replica that a running job asks for: a lane of its own, for a job called ``<job>+<replica>``."""

    running: RunningJob
    lane: Lane


def growths(
    running: RunningJob, wanted: int, inventory: Inventory, headroom: float, team: int, now: float, first: int
) -> Iterator[Growth]:
    """The replicas that a running job lacks, as jobs of one replica; lanes are numbered down from ``first``."""
    job, have = running.job, {piece.replica for piece in running.pieces}
    missing = [replica for replica in range(wanted) if replica not in have]
    for place, replica in enumerate(missing[: wanted - len(have)]):
        shape = _one_more(running, inventory)
        left = None if running.ends_by is None else max(0.0, running.ends_by - now)
        asking = replace(
            job, key=f"{job.key}+{replica}", shape=shape, scale=(), time_limit=left, held="", backoff_until=0.0,
            not_before=0.0, waits_for=(),
        )  # fmt: skip
        lane = Lane(first - place, team, shape, Fit(shape, inventory, headroom), (asking,))
        yield Growth(running, lane)


def _one_more(running: RunningJob, inventory: Inventory) -> Shape:
    """A shape of one replica that keeps to the topology of those there are."""
    shape = running.job.shape
    group: Group = replace(shape.groups[0], replicas=1, min_replicas=None, max_replicas=None)
    barred = _outside(running, inventory, shape.topology) | _full_domains(running, inventory, shape.topology)
    return Shape((group,), Topology(), shape.excluded | barred, shape.avoided)


def _outside(running: RunningJob, inventory: Inventory, topology: Topology) -> frozenset[str]:
    """The nodes outside the one domain that the job must lie in."""
    if topology.require is None or not running.pieces or running.pieces[0].node not in inventory.index:
        return frozenset()
    level = topology.require
    home = inventory.nodes[inventory.index[running.pieces[0].node]].domain(level)
    return frozenset(node.name for node in inventory.nodes if node.domain(level) != home)


def _full_domains(running: RunningJob, inventory: Inventory, topology: Topology) -> frozenset[str]:
    """The nodes of domains that hold as many replicas as one may."""
    if topology.spread is None or topology.max_per_domain is None:
        return frozenset()
    counts = _per_domain(running.pieces, inventory, topology.spread)
    most = max(1, int(topology.max_per_domain * (len(running.pieces) + 1) + 1e-9))
    return frozenset(node.name for node in inventory.nodes if counts.get(node.domain(topology.spread), 0) >= most)


def _per_domain(pieces: tuple[Piece, ...], inventory: Inventory, level: Level) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for piece in pieces:
        if piece.node in inventory.index:
            domain = inventory.nodes[inventory.index[piece.node]].domain(level)
            counts[domain] = counts.get(domain, 0) + 1
    return counts
