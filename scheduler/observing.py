"""What a backend says becomes rows: nodes, attempts that run, have ended or are gone, and the cards that they hold.

Nothing here trusts order or novelty: a report is compared with the rows as they are now, so that late and repeated
ones change nothing. Only a complete observation proves that something is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from jobs.events import note_jobs
from jobs.models import Attempt, JobEvent
from jobs.states import Actor, AttemptEnd, Event, JobState, transition
from jobs.wake import wake
from scheduler.backends.base import AttemptReport, Cause, Observation, Phase
from scheduler.endings import Ended, Ending, end_attempts
from scheduler.inventory.confirming import confirm_cards
from scheduler.inventory.models import Cluster
from scheduler.inventory.sighting import take_in_nodes
from scheduler.reconcile import LAUNCH_TIMEOUT, UNSEEN_AFTER

RUNS = transition(JobState.STARTING, Event.RUN, Actor.BACKEND).value


@dataclass(frozen=True, slots=True)
class Found:
    """What an observation has changed, and what the backend should not have.

    ``orphans`` run over there without a live attempt here: to be stopped. ``leftovers`` have ended there and are
    unknown here: to be forgotten.
    """

    nodes: frozenset[str] = frozenset()
    running: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    orphans: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()


def take_in(
    cluster_id: int, observation: Observation, *, begun: datetime, now: datetime, chance: Callable[[], float]
) -> Found:
    """Take an observation in that was asked for at ``begun``; ``chance`` gives random numbers for back-offs."""
    cluster = Cluster.objects.select_related("policy").get(pk=cluster_id)
    # 1. The hardware.
    nodes = take_in_nodes(cluster=cluster, reports=observation.nodes, complete=observation.complete, now=now)
    # 2. The attempts that it tells about, against the rows as they are now.
    reports = {report.attempt: report for report in observation.attempts}
    known = {row.key: row for row in Attempt.objects.filter(key__in=list(reports))}
    live = {key: row for key, row in known.items() if row.ended_at is None}
    running = _note_running(cluster, [(row, reports[key]) for key, row in live.items()], now)
    confirm_cards(cluster=cluster, reports=[(row.pk, reports[key]) for key, row in live.items()])
    endings = [_ending(row, reports[key]) for key, row in live.items() if reports[key].phase.ended]
    # 3. Those that it no longer has.
    if observation.complete:
        endings += _absent(cluster_id, reports, begun)
    ended = end_attempts(cluster=cluster, endings=endings, now=now, chance=chance)
    # 4. From the first complete look on, jobs may start.
    _note_synced(cluster, complete=observation.complete, now=now)
    return Found(
        nodes,
        tuple(running),
        tuple(ended),
        orphans=tuple(key for key, report in reports.items() if key not in live and not report.phase.ended),
        leftovers=tuple(key for key, report in reports.items() if key not in known and report.phase.ended),
    )


def _note_running(cluster: Cluster, pairs: list[tuple[Attempt, AttemptReport]], now: datetime) -> list[str]:
    """Note which attempts have been seen, and which have begun to run; returns the keys of the jobs that now run."""
    seen = [row.pk for row, _ in pairs if row.seen_at is None]
    begun = [row.pk for row, report in pairs if row.running_at is None and report.started is not None]
    if not seen and not begun:
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        # Jobs before attempts, as everywhere: two transactions must not wait for each other.
        cursor.execute(
            "UPDATE jobs_job AS job SET state = %s, state_at = %s, version = job.version + 1 FROM ("
            " SELECT mine.id, attempt.number FROM jobs_job AS mine"
            " JOIN jobs_attempt AS attempt ON attempt.job_id = mine.id AND attempt.ended_at IS NULL"
            " WHERE attempt.id = ANY(%s) AND mine.state = 'starting' ORDER BY mine.id FOR NO KEY UPDATE OF mine"
            ") AS free WHERE job.id = free.id RETURNING job.id, job.key, free.number",
            [RUNS, now, begun],
        )
        rows = cursor.fetchall()
        cursor.execute(
            "UPDATE jobs_attempt SET seen_at = coalesce(seen_at, %s), launched_at = coalesce(launched_at, %s),"
            " running_at = CASE WHEN id = ANY(%s) THEN coalesce(running_at, %s) ELSE running_at END"
            " WHERE id = ANY(%s)",
            [now, now, begun, now, sorted({*seen, *begun})],
        )
        JobEvent.objects.bulk_create(
            JobEvent(
                job_id=pk, at=now, kind=Event.RUN, actor=Actor.BACKEND, origin=JobState.STARTING, to=RUNS,
                data={"attempt": number},
            )
            for pk, _, number in rows
        )  # fmt: skip
        note_jobs(cluster.pk, [pk for pk, _, _ in rows])
        if rows:
            wake(cluster.pk, cluster.tick_group)
    return [key for _, key, _ in rows]


def _ending(row: Attempt, report: AttemptReport) -> Ending:
    return Ending(row.pk, _how(report), report.exit_code, report.signal, report.note)


def _how(report: AttemptReport) -> AttemptEnd:
    """How an attempt ended by what the backend says, whoever may have asked for it here."""
    if report.phase is Phase.LOST:
        return AttemptEnd.LOST
    if report.cause is Cause.TIME_LIMIT:
        return AttemptEnd.TIME_LIMIT
    if report.cause is Cause.STOPPED:
        return AttemptEnd.EVICTED  # nobody here asked for it, or that request says what it was
    return AttemptEnd.COMPLETED if report.exit_code == 0 else AttemptEnd.FAILED


def _absent(cluster_id: int, reports: dict[str, AttemptReport], begun: datetime) -> list[Ending]:
    """Live attempts that should be over there and are not."""
    rows = Attempt.objects.filter(
        job__cluster_id=cluster_id, ended_at=None, launch_begun_at__isnull=False, launch_begun_at__lt=begun
    ).exclude(key__in=list(reports))
    return [Ending(row.pk, AttemptEnd.LOST, note=_lost_note(row)) for row in rows if _is_gone(row, begun)]


def _is_gone(row: Attempt, begun: datetime) -> bool:
    """Whether its absence is certain: it was there, or its launch was over long before the backend was asked.

    A launch whose call has not returned may still land; it is not given up before it would be begun again.
    """
    if row.seen_at is not None:
        return row.seen_at < begun
    if row.launched_at is None:
        return (
            row.stop_at is not None
            and row.launch_begun_at is not None
            and (row.launch_begun_at < begun - LAUNCH_TIMEOUT)
        )
    patience = UNSEEN_AFTER if row.stop_at is None else UNSEEN_AFTER / 4
    return row.launched_at < begun - patience


def _lost_note(row: Attempt) -> str:
    return "the cluster no longer has it" if row.seen_at else "the cluster never had it"


def _note_synced(cluster: Cluster, *, complete: bool, now: datetime) -> None:
    if not complete:
        Cluster.objects.filter(pk=cluster.pk).update(observed_at=now)
        return
    with transaction.atomic():
        changed = Cluster.objects.filter(pk=cluster.pk, synced=False).update(synced=True, sync_problem="")
        Cluster.objects.filter(pk=cluster.pk).update(observed_at=now)
        if changed:
            wake(cluster.pk, cluster.tick_group)
