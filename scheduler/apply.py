"""Carrying a plan out: one guarded transaction, a constant number of queries, all of it or nothing.

    applied = apply(live, plan, now)

The transaction holds the cluster's advisory lock and its row, and is refused where the epoch, the quotas or the policy
are no longer those that the plan was made with. Jobs that somebody has changed meanwhile are left out, as are those
whose nodes or cards no longer take work; the others go on. Only when it is committed does the roster follow. On any
other error than `NotApplied` the roster has to be dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from django.db import connection, transaction

from jobs.events import event_of, note_dependents
from jobs.models import Job, JobEvent
from jobs.states import Actor, AttemptEnd, Event, JobState, transition
from scheduler.bulk import insert_rows, update_rows
from scheduler.engine.plan import Cause, Piece, Plan, Preempt, Start
from scheduler.engine.reasons import Hold
from scheduler.engine.snapshot import Phase
from scheduler.load import Live, Said, Superseded
from teams.selectors import revision

CYCLE_LOCK = 0x524F5442
REPEAT_FACTS_S = 4.0
"""A reason whose numbers alone have changed is written again after this long."""
STARTED = transition(JobState.QUEUED, Event.PLACE, Actor.ENGINE).value
ATTEMPT_COLUMNS = (
    ("job_id", "bigint"), ("number", "int"), ("key", "text"), ("started_at", "timestamptz"), ("launch_problem", "text"),
    ("stop_end", "text"), ("stop_why", "text"), ("end", "text"), ("note", "text"),
)  # fmt: skip
ALLOCATION_COLUMNS = (
    ("attempt_id", "bigint"), ("node_id", "bigint"), ("group", "text"), ("replica", "int"), ("mib", "int"),
    ("started_at", "timestamptz"), ("slot", "int"), ("gpu_id", "bigint"),
)  # fmt: skip
EVENT_COLUMNS = (
    ("job_id", "bigint"), ("at", "timestamptz"), ("kind", "text"), ("actor", "text"), ("origin", "text"),
    ("to", "text"), ("reason", "text"), ("data", "jsonb"),
)  # fmt: skip
STOPS = {
    Cause.PREEMPTION: (Event.PREEMPT, AttemptEnd.PREEMPTED, "{winner} goes first"),
    Cause.RECLAIM: (Event.RECLAIM, AttemptEnd.RECLAIMED, "its cards are taken back for {winner}"),
}


class NotApplied(Exception):
    """Nothing of the plan was carried out; the roster is fine. Catch up and decide again."""


class Busy(NotApplied):
    """Another process is carrying out a plan for this cluster at this moment."""


class Stale(NotApplied):
    """Quotas or policy have changed since the plan was made."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was carried out: the keys of jobs that start, that stop and that were left out; how many reasons changed."""

    started: tuple[str, ...] = ()
    stopping: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    reasons_written: int = 0


def apply(live: Live, plan: Plan, now: datetime) -> Applied:
    """Carry out the plan, then bring the roster in step. Raises Superseded, Busy, Stale."""
    said = _news(live, plan, now)
    with transaction.atomic():
        # 1. See that this process may, and that the plan still stands on what is in force.
        _guard(live)
        # 2. Start jobs: state, attempt, allocations, event; the GPUs' books follow by trigger.
        starts = [start for start in plan.starts if _takes_work(live, start.pieces)]
        fit = _on_working_hardware(live, starts)
        started = _start(live, [start for start in starts if start.job in fit], now)
        # 3. Ask those to stop who give way.
        stopping = _stop(live, plan.preempts, now)
        # 4. Say why the others wait.
        _write_reasons(live, said, now)
        note_dependents(chain(started.values(), stopping.values()))
    # 5. The rows are committed: let the roster follow.
    _follow(live, plan, started, stopping, said, now)
    left_out = tuple(start.job for start in plan.starts if start.job not in started)
    return Applied(tuple(started), tuple(stopping), left_out, len(said.written) + len(said.gone))


def _guard(live: Live) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [CYCLE_LOCK, live.cluster_id])
        if not cursor.fetchone()[0]:
            raise Busy(f"the cluster {live.cluster_id} is being changed by another process")
        cursor.execute(
            "UPDATE inventory_cluster SET version = version + 1 WHERE id = %s RETURNING epoch, policy_id, synced",
            [live.cluster_id],
        )
        row = cursor.fetchone()
    if row is None or row[0] != live.epoch:
        raise Superseded(f"the cluster {live.cluster_id} is scheduled by another process now")
    if row[1] != live.policy_id or row[2] != live.roster.synced or revision() != live.revision:
        raise Stale("quotas, policy or the view of the cluster have changed")


def _takes_work(live: Live, pieces: Iterable[Piece]) -> bool:
    return all(piece.node in live.machines for piece in pieces)


def _on_working_hardware(live: Live, starts: list[Start]) -> set[str]:
    """The jobs all of whose nodes and cards take work at this moment, as the rows say."""
    cards = {pk for start in starts for piece in start.pieces for pk in _cards(live, piece)}
    nodes = {live.machines[piece.node].pk for start in starts for piece in start.pieces}
    if not nodes:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT node.id, array_remove(array_agg(gpu.id), NULL) FROM inventory_node AS node"
            " LEFT JOIN inventory_gpu AS gpu ON gpu.node_id = node.id AND gpu.id = ANY(%s)"
            " AND gpu.state = 'ok' AND gpu.missing_since IS NULL"
            " WHERE node.id = ANY(%s) AND node.state = 'ready' AND node.removed_at IS NULL GROUP BY node.id",
            [list(cards), list(nodes)],
        )
        working = dict(cursor.fetchall())
    good = set(chain.from_iterable(working.values()))
    return {
        start.job
        for start in starts
        if all(
            live.machines[piece.node].pk in working and good.issuperset(_cards(live, piece)) for piece in start.pieces
        )
    }


def _cards(live: Live, piece: Piece) -> list[int]:
    cards = live.machines[piece.node].cards
    return [cards[index] for index in piece.gpus]


def _start(live: Live, starts: list[Start], now: datetime) -> dict[str, int]:
    """Start those that still wait as they did when the plan was made; returns the ids of their jobs by key."""
    if not starts:
        return {}
    wanted = [live.entries[start.job] for start in starts]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_job AS job SET state = %s, state_at = %s, state_why = '', version = job.version + 1,"
            " attempt_count = job.attempt_count + 1, backoff_until = NULL,"
            " first_started_at = coalesce(job.first_started_at, %s)"
            " FROM (SELECT mine.id FROM jobs_job AS mine JOIN unnest(%s::bigint[], %s::int[]) AS wanted(id, version)"
            " ON mine.id = wanted.id AND mine.version = wanted.version WHERE mine.state = 'queued'"
            " ORDER BY mine.id FOR NO KEY UPDATE OF mine SKIP LOCKED) AS free"
            " WHERE job.id = free.id RETURNING job.key, job.id, job.attempt_count",
            [STARTED, now, now, [entry.pk for entry in wanted], [entry.version for entry in wanted]],
        )
        rows = {key: (pk, number) for key, pk, number in cursor.fetchall()}
    begun = [start for start in starts if start.job in rows]
    attempts = dict(
        insert_rows(
            "jobs_attempt",
            ATTEMPT_COLUMNS,
            [(*rows[key], f"{key}.{rows[key][1]}", now, "", "", "", "", "") for key, _ in begun],
            returning="job_id, id",
        )
    )
    insert_rows(
        "inventory_allocation",
        ALLOCATION_COLUMNS,
        [
            row
            for start in begun
            for piece in start.pieces
            for row in _allocations(live, attempts[rows[start.job][0]], piece, now)
        ],
    )
    insert_rows("jobs_jobevent", EVENT_COLUMNS, [_place_event(*rows[start.job], start, now) for start in begun])
    return {start.job: rows[start.job][0] for start in begun}


def _allocations(live: Live, attempt: int, piece: Piece, now: datetime) -> Iterable[tuple[object, ...]]:
    machine = live.machines[piece.node]
    where = (attempt, machine.pk, piece.group, piece.replica, piece.mib, now)
    if not piece.gpus:
        yield (*where, None, None)
    for index in piece.gpus:
        yield (*where, index, machine.cards[index] if live.chooses_gpu else None)


def _place_event(job: int, number: int, start: Start, now: datetime) -> tuple[object, ...]:
    data = {"attempt": number, "nodes": sorted({piece.node for piece in start.pieces})[:50]}
    return (job, now, Event.PLACE.value, Actor.ENGINE.value, JobState.QUEUED.value, STARTED, "", json.dumps(data))


def _stop(live: Live, preempts: Iterable[Preempt], now: datetime) -> dict[str, int]:
    """Ask those to stop that still run; returns the ids of their jobs by key."""
    wanted = {preempt.job: preempt for preempt in preempts if preempt.job in live.entries}
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_job AS job SET state = 'stopping', state_at = %s, version = job.version + 1"
            " FROM (SELECT id, state FROM jobs_job WHERE id = ANY(%s) AND state IN ('starting', 'running')"
            " ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) AS live"
            " WHERE job.id = live.id RETURNING job.key, job.id, live.state",
            [now, [live.entries[key].pk for key in wanted]],
        )
        rows = {key: (pk, origin) for key, pk, origin in cursor.fetchall()}
    stops, events = [], []
    for key, (pk, origin) in rows.items():
        event, end, template = STOPS[wanted[key].cause]
        why = template.format(winner=wanted[key].winner)
        job = Job(pk=pk, state=transition(JobState(origin), event, Actor.ENGINE).value)
        stops.append((pk, why, end.value, now))
        events.append(event_of(job, event, Actor.ENGINE, origin=origin, at=now, why=why))
    update_rows("jobs_job", [("id", "bigint"), ("state_why", "text")], [stop[:2] for stop in stops])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_attempt AS attempt SET stop_at = %s, stop_end = stop.how, stop_why = stop.why"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS stop(job_id, why, how)"
            " WHERE attempt.job_id = stop.job_id AND attempt.ended_at IS NULL AND attempt.stop_at IS NULL",
            [now, *([stop[place] for stop in stops] for place in range(3))],
        )
    JobEvent.objects.bulk_create(events)
    return {key: pk for key, (pk, _) in rows.items()}


@dataclass(frozen=True, slots=True)
class _News:
    """Reasons to write, by lane, and lanes that wait no more."""

    written: Mapping[str, Hold]
    gone: tuple[str, ...]


def _news(live: Live, plan: Plan, now: datetime) -> _News:
    moment = now.timestamp()
    present = {live.lane(number): hold for number, hold in plan.waiting.items()}
    written = {lane: hold for lane, hold in present.items() if _is_news(live.said.get(lane), hold, moment)}
    return _News(written, tuple(lane for lane in live.said if lane not in present))


def _is_news(said: Said | None, hold: Hold, moment: float) -> bool:
    if said is None or said.hold.reason is not hold.reason or said.hold.template != hold.template:
        return True
    return said.hold != hold and said.at <= moment - REPEAT_FACTS_S


def _write_reasons(live: Live, news: _News, now: datetime) -> None:
    with connection.cursor() as cursor:
        if news.gone:
            cursor.execute(
                "DELETE FROM scheduler_lanehold WHERE cluster_id = %s AND lane = ANY(%s)",
                [live.cluster_id, list(news.gone)],
            )
        if news.written:
            holds = list(news.written.values())
            cursor.execute(
                "INSERT INTO scheduler_lanehold AS old (cluster_id, lane, code, template, facts, since)"
                " SELECT %s, fresh.lane, fresh.code, fresh.template, fresh.facts::jsonb, %s"
                " FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS fresh(lane, code, template, facts)"
                " ON CONFLICT (cluster_id, lane) DO UPDATE SET code = excluded.code, template = excluded.template,"
                " facts = excluded.facts,"
                " since = CASE WHEN old.code = excluded.code THEN old.since ELSE excluded.since END",
                [
                    live.cluster_id,
                    now,
                    list(news.written),
                    [hold.reason.value for hold in holds],
                    [hold.template for hold in holds],
                    [json.dumps(dict(hold.facts)) for hold in holds],
                ],
            )


def _follow(
    live: Live, plan: Plan, started: Mapping[str, int], stopping: Mapping[str, int], news: _News, now: datetime
) -> None:
    moment = now.timestamp()
    pieces = {start.job: start.pieces for start in plan.starts}
    for key in started:
        live.roster.start(key, pieces[key], moment)
    for key in stopping:
        live.roster.set_phase(key, Phase.STOPPING)
    live.roster.keep(plan.claims)
    for lane, hold in news.written.items():
        live.said[lane] = Said(hold, moment)
    for lane in news.gone:
        del live.said[lane]
    live.wake_at = plan.wake_at
