"""The roster of one cluster, from its rows: all of them when a loop takes over, then change by change.

    live = take_over(cluster_id, now)      # this process schedules the cluster from now on
    changed = catch_up(live, now)          # a few queries, however much waits or runs

Whoever takes over raises the cluster's `epoch` and so shuts out whoever scheduled it before. Changes come as notes
(`jobs.models.Change`) written with the rows and deleted by the one loop whose epoch is in force: a note that is not
committed yet is found the next time, and one that was taken by a loop that then died is not needed by its successor,
which reads every row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connection, transaction

from jobs.models import Subject
from jobs.selectors import lane_key
from quotas.selectors import quota_tree
from scheduler.engine.cluster import CardState
from scheduler.engine.reasons import Hold, Reason
from scheduler.engine.roster import Roster
from scheduler.inventory.models import Allocation, Cluster
from scheduler.models import LaneHold
from scheduler.policies import rules_by_id
from scheduler.rows import Entry, Machine, Reader, faded_use
from teams.models import Team
from teams.selectors import revision


class Superseded(Exception):
    """Another process schedules this cluster now: forget the roster."""


@dataclass(slots=True)
class Said:
    """The hold of a lane as the table has it, and when it was written (unix seconds)."""

    hold: Hold
    at: float


@dataclass(slots=True)
class Live:
    """A roster with what ties it to the rows. Belongs to one process and one thread; is dropped on any doubt."""

    cluster_id: int
    tick_group: str
    chooses_gpu: bool
    epoch: int
    roster: Roster
    reader: Reader
    revision: int
    policy_id: int | None
    machines: dict[str, Machine] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    changes_at: dict[int, float] = field(default_factory=dict)
    lanes: dict[int, str] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    wake_at: float | None = None

    def lane(self, number: int) -> str:
        """The key in the tables of a lane of the roster."""
        return self.lanes[number]


def take_over(cluster_id: int, now: datetime) -> Live:
    """Make this process the one that schedules the cluster, and read all of its rows.

    Raises Cluster.DoesNotExist.
    """
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update(no_key=True).get(pk=cluster_id)
        cluster.epoch += 1
        cluster.save(update_fields=["epoch"])
        _take_notes(cluster_id)
    return _read_all(cluster, now)


def look_at(cluster_id: int, now: datetime) -> Live:
    """Read all rows of a cluster without taking it over: to look, not to decide for anybody.

    Raises Cluster.DoesNotExist.
    """
    return _read_all(Cluster.objects.get(pk=cluster_id), now)


def catch_up(live: Live, now: datetime) -> bool:
    """Bring the roster up to date; returns whether anything changed. Raises Superseded."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT epoch, policy_id, synced FROM inventory_cluster WHERE id = %s FOR NO KEY UPDATE",
                [live.cluster_id],
            )
            row = cursor.fetchone()
        if row is None or row[0] != live.epoch:
            raise Superseded(f"the cluster {live.cluster_id} is scheduled by another process now")
        jobs, nodes = _take_notes(live.cluster_id)
    changed = live.roster.synced != row[2] or bool(jobs or nodes)
    live.roster.synced = row[2]
    number = revision()
    numbers_changed = number != live.revision
    if numbers_changed and _teams_renamed(live):
        cluster = Cluster.objects.get(pk=live.cluster_id)
        cluster.epoch = live.epoch
        _replace(live, _read_all(cluster, now))
        return True
    moment = now.timestamp()
    jobs |= {pk for pk, at in live.changes_at.items() if at <= moment}
    if row[1] != live.policy_id:
        live.roster.set_policy(rules_by_id(row[1]))
        live.policy_id, changed = row[1], True
    machines = {machine.node.name: machine for machine in live.reader.machines(nodes)} if nodes else {}
    forced = _held_on(nodes)
    entries = live.reader.entries(now, jobs | forced) if jobs or forced else []
    _take_out(live, jobs | forced, entries, forced, moment)
    if numbers_changed:
        live.roster.set_tree(quota_tree(live.cluster_id))
        live.revision = number
    _change_machines(live, nodes, machines)
    for entry in sorted(entries, key=_by_start):
        _put_in(live, entry)
    return changed or numbers_changed or bool(entries)


def _by_start(entry: Entry) -> tuple[float, int]:
    return (0.0 if entry.holding is None else entry.holding.started, entry.pk)


def _take_notes(cluster_id: int) -> tuple[set[int], set[int]]:
    """Delete the notes for a cluster; returns the ids of the jobs and of the nodes that they name."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobs_change WHERE cluster_id = %s RETURNING subject, ref", [cluster_id])
        notes = cursor.fetchall()
    jobs = {ref for subject, ref in notes if subject == Subject.JOB}
    return jobs, {ref for subject, ref in notes if subject == Subject.NODE}


def _read_all(cluster: Cluster, now: datetime) -> Live:
    number = revision()
    slugs = dict(Team.objects.values_list("pk", "slug"))
    reader = Reader(cluster.pk, cluster.reserve_mib, slugs)
    machines = reader.machines()
    roster = Roster(quota_tree(cluster.pk), rules_by_id(cluster.policy_id), [each.node for each in machines])
    roster.synced = cluster.synced
    live = Live(
        cluster.pk, cluster.tick_group, cluster.chooses_gpu, cluster.epoch, roster, reader, number, cluster.policy_id
    )
    for machine in machines:
        live.machines[machine.node.name] = machine
        _set_states(live, machine, ())
    for entry in sorted(reader.entries(now), key=_by_start):
        _put_in(live, entry)
    for team, gpu_seconds in faded_use(cluster.pk, now, roster.policy.fair.half_life):
        if slugs[team] in roster.tree.index:
            roster.remember(slugs[team], gpu_seconds, now.timestamp())
    for row in LaneHold.objects.filter(cluster=cluster):
        live.said[row.lane] = Said(Hold(Reason(row.code), row.template, tuple(row.facts.items())), 0.0)
    return live


def _teams_renamed(live: Live) -> bool:
    """Whether the teams go by other names than in the roster; takes in those that are new."""
    slugs = dict(Team.objects.values_list("pk", "slug"))
    live_slugs = {branch.name for branch in live.roster.tree.teams}
    known = live.reader.slugs
    renamed = any(slugs.get(pk) != slug for pk, slug in known.items())
    reused = any(slugs[pk] in live_slugs for pk in slugs.keys() - known.keys())
    if not (renamed or reused):
        known |= slugs
    return renamed or reused


def _replace(live: Live, fresh: Live) -> None:
    for name in Live.__slots__:
        setattr(live, name, getattr(fresh, name))


def _held_on(nodes: Collection[int]) -> set[int]:
    """The jobs that hold something on these nodes."""
    if not nodes:
        return set()
    rows = Allocation.objects.filter(node_id__in=nodes, released_at=None).values_list("attempt__job_id", flat=True)
    return set(rows)


def _take_out(live: Live, pks: Iterable[int], entries: list[Entry], forced: Collection[int], moment: float) -> None:
    """Take the changed jobs out of the roster, but for those that only go on where they are."""
    fresh = {entry.pk: entry for entry in entries}
    for pk in pks:
        key = live.keys.get(pk)
        if key is None:
            continue
        before, after = live.entries[key], fresh.get(pk)
        if pk not in forced and after is not None and _goes_on(live, before, after):
            continue
        if live.roster.waiting(key) is not None:
            live.roster.withdraw(key)
        elif live.roster.running(key) is not None:
            live.roster.release(key, moment)
        del live.entries[key], live.keys[pk]
        live.changes_at.pop(pk, None)


def _goes_on(live: Live, before: Entry, after: Entry) -> bool:
    """Whether the job holds what it held, under the same terms."""
    running = live.roster.running(after.job.key)
    return (
        running is not None
        and after.holding is not None
        and before.holding is not None
        and before.holding.attempt == after.holding.attempt
        and running.pieces == after.holding.pieces
        and before.job == after.job
    )


def _put_in(live: Live, entry: Entry) -> None:
    key, roster, holding = entry.job.key, live.roster, entry.holding
    if holding is None:
        number = roster.submit(entry.job)
        if number not in live.lanes:
            live.lanes[number] = lane_key(entry.team_id, entry.job.shape)
    elif roster.running(key) is None:
        roster.adopt(entry.job, holding.pieces, holding.started, holding.phase)
    else:
        roster.set_phase(key, holding.phase)
    live.entries[key] = entry
    live.keys[entry.pk] = key
    if entry.changes_at is not None:
        live.changes_at[entry.pk] = entry.changes_at


def _change_machines(live: Live, pks: Collection[int], fresh: dict[str, Machine]) -> None:
    """Take in what is new of the nodes ``pks``; whatever is not in ``fresh`` has left the cluster."""
    if not pks:
        return
    there = {machine.pk for machine in fresh.values()}
    for name in [name for name, each in live.machines.items() if each.pk in pks and each.pk not in there]:
        live.roster.remove_node(name)
        del live.machines[name]
    before = {name: live.machines.get(name) for name in fresh}
    for name, each in fresh.items():
        if (old := before[name]) is not None and old.node.gpus > each.node.gpus:
            live.roster.remove_node(name)  # with what it remembers of cards that are no longer there
            before[name] = None
    rebuilt = [each.node for name, each in fresh.items() if (old := before[name]) is None or old.node != each.node]
    if rebuilt:
        live.roster.add_nodes(rebuilt)
    for name, machine in fresh.items():
        old = before[name]
        live.machines[name] = machine
        _set_states(live, machine, () if old is None else old.bad)


def _set_states(live: Live, machine: Machine, were_bad: tuple[tuple[int, CardState], ...]) -> None:
    name, roster = machine.node.name, live.roster
    if machine.state is not roster.node_state(name):
        roster.set_node_state(name, machine.state)
    bad = dict(machine.bad)
    for index, _ in were_bad:
        if index not in bad and index < machine.node.gpus:
            roster.set_card_state(name, index, CardState.OK)
    for index, state in bad.items():
        roster.set_card_state(name, index, state)
