"""Between the rows and a backend: what the rows want of it. (What it says becomes rows in `scheduler.observing`.)

Level-triggered: any step may die, be repeated or come late.

What the rows want of a backend (the caller talks to it, outside of any transaction):

    orders = orders_for(cluster_id, now)
    for launch in orders.launches:
        if begin_launch(launch.attempt, now):      # claimed: from here on it may exist over there
            backend.launch(launch)
            note_launched(launch.attempt, now)     # or refuse_launch(...) on a PermanentError
    for stop in orders.stops:
        backend.stop(stop.attempt, grace_s=stop.grace_s, why=stop.why)
        note_stop_sent(stop.attempt, now)

What a backend says becomes rows:

    begun = timezone.now()
    seen = backend.observe(cursor)
    found = take_in(cluster_id, seen, begun=begun, now=timezone.now(), chance=random.random)
    for attempt in found.orphans: backend.stop(attempt, grace_s=0, why="no such attempt")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import F, Q

from jobs.events import short
from jobs.models import Attempt
from jobs.reading import SpecError
from jobs.selectors import spec_of
from jobs.spec import JobSpec
from jobs.states import AttemptEnd, JobState
from scheduler.backends.base import Launch, ReplicaLaunch
from scheduler.endings import Ended, Ending, end_attempts
from scheduler.inventory.models import Allocation, Cluster

LAUNCH_TIMEOUT = timedelta(seconds=60)
"""A launch without an answer for this long is begun again: its dispatcher has died, or the call has."""
UNSEEN_AFTER = timedelta(seconds=20)
"""A launched attempt that the backend still does not know after this long is lost."""
STOP_AGAIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt that is to end over there."""

    attempt: str
    grace_s: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Orders:
    """What the backend is to be told now; saying it twice does no harm.

    ``unreadable`` are attempts of jobs whose description cannot be read any more, each with why: to be refused.
    """

    launches: tuple[Launch, ...] = ()
    stops: tuple[Stop, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)


def orders_for(cluster_id: int, now: datetime, *, most: int = 1000) -> Orders:
    """Which attempts are to be started and which stopped, in a constant number of queries; oldest first."""
    due = Q(launch_begun_at=None) | Q(launched_at=None, launch_begun_at__lt=now - LAUNCH_TIMEOUT)
    attempts = (
        Attempt.objects.filter(
            due, job__cluster_id=cluster_id, job__state=JobState.STARTING, ended_at=None, stop_at=None
        )
        .select_related("job__team", "job__user")
        .order_by("started_at", "pk")[:most]
    )
    launches, unreadable = _launches(list(attempts))
    return Orders(tuple(launches), tuple(_stops(cluster_id, now, most)), unreadable)


def begin_launch(attempt: str, now: datetime) -> bool:
    """Claim an attempt for launching. False where it is not to be launched any more, or somebody else is at it."""
    return attempt in begin_launches([attempt], now)


def begin_launches(attempts: Collection[str], now: datetime) -> set[str]:
    """Claim attempts for launching, in one statement; those not returned must not be launched."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_attempt AS attempt SET launch_begun_at = %s FROM jobs_job AS job"
            " WHERE job.id = attempt.job_id AND job.state = 'starting' AND attempt.key = ANY(%s)"
            " AND attempt.ended_at IS NULL AND attempt.stop_at IS NULL AND attempt.launched_at IS NULL"
            " AND (attempt.launch_begun_at IS NULL OR attempt.launch_begun_at < %s) RETURNING attempt.key",
            [now, list(attempts), now - LAUNCH_TIMEOUT],
        )
        return {key for (key,) in cursor.fetchall()}


def note_launched(attempts: str | Collection[str], now: datetime) -> None:
    """Note that the backend has taken launches in. Again: does nothing."""
    keys = [attempts] if isinstance(attempts, str) else list(attempts)
    Attempt.objects.filter(key__in=keys, launched_at=None).update(launched_at=now, launch_problem="")


def launch_again(attempt: str, why: str, *, now: datetime, shortest: timedelta, longest: timedelta) -> None:
    """Note that a launch has failed for the time being (TransientError): it is due again after a while.

    That is half as long as it has been tried so far, so the pauses grow by themselves, within the given bounds.
    """
    row = Attempt.objects.filter(key=attempt, launched_at=None, seen_at=None).first()
    if row is None or row.launch_begun_at is None:
        return
    pause = min(longest, max(shortest, (now - row.started_at) / 2))
    Attempt.objects.filter(pk=row.pk, launched_at=None, seen_at=None).update(
        launch_begun_at=now - LAUNCH_TIMEOUT + pause, launch_problem=short(why)
    )


def refuse_launch(attempt: str, why: str, *, now: datetime, chance: Callable[[], float]) -> list[Ended]:
    """End an attempt that the backend will never start (PermanentError), as a failure of its own."""
    row = Attempt.objects.select_related("job__cluster").filter(key=attempt, ended_at=None).first()
    if row is None:
        return []
    ending = Ending(row.pk, AttemptEnd.FAILED, note=why, again=False)
    return end_attempts(cluster=row.job.cluster, endings=[ending], now=now, chance=chance)


def note_stop_sent(attempts: str | Collection[str], now: datetime) -> None:
    """Note that the backend was asked to stop attempts; it is asked again as long as they live."""
    keys = [attempts] if isinstance(attempts, str) else list(attempts)
    Attempt.objects.filter(key__in=keys, ended_at=None).update(stop_sent_at=now)


def end_unlaunched(cluster_id: int, *, now: datetime, chance: Callable[[], float]) -> list[Ended]:
    """End the attempts that were asked to stop before anybody began to launch them: nothing of them exists."""
    rows = Attempt.objects.filter(
        job__cluster_id=cluster_id, ended_at=None, launch_begun_at=None, stop_at__isnull=False
    ).values_list("pk", "stop_end")
    endings = [Ending(pk, AttemptEnd(end), note="it had not been launched yet") for pk, end in rows]
    if not endings:
        return []
    cluster = Cluster.objects.select_related("policy").get(pk=cluster_id)
    return end_attempts(cluster=cluster, endings=endings, now=now, chance=chance)


def to_forget(cluster_id: int, *, ended_before: datetime, most: int = 500) -> list[str]:
    """Attempts that ended before a moment and whose records over there may go."""
    rows = Attempt.objects.filter(
        job__cluster_id=cluster_id, forgotten_at=None, ended_at__lt=ended_before, launch_begun_at__isnull=False
    )
    return list(rows.order_by("ended_at").values_list("key", flat=True)[:most])


def note_forgotten(attempts: Collection[str], now: datetime) -> None:
    """Note that the backend has dropped what it knew of these attempts."""
    Attempt.objects.filter(key__in=list(attempts), ended_at__isnull=False).update(forgotten_at=now)


def _stops(cluster_id: int, now: datetime, most: int) -> Iterable[Stop]:
    # One that was sent while the launch was still on its way may have found nothing to stop.
    due = Q(stop_sent_at=None) | Q(stop_sent_at__lt=now - STOP_AGAIN) | Q(stop_sent_at__lt=F("launched_at"))
    rows = Attempt.objects.filter(
        due, job__cluster_id=cluster_id, ended_at=None, stop_at__isnull=False, launch_begun_at__isnull=False
    )
    columns = rows.order_by("stop_at", "pk").values_list("key", "stop_grace_s", "stop_why")[:most]
    return [Stop(key, grace, why) for key, grace, why in columns]


def _launches(attempts: list[Attempt]) -> tuple[list[Launch], dict[str, str]]:
    launches: list[Launch] = []
    unreadable: dict[str, str] = {}
    if not attempts:
        return launches, unreadable
    held: dict[int, dict[tuple[str, int], list[tuple[str, int | None, int | None, int]]]]
    held = defaultdict(lambda: defaultdict(list))
    rows = Allocation.objects.filter(attempt__in=attempts, released_at=None).order_by("pk")
    columns = ("attempt_id", "group", "replica", "node__name", "gpu__index", "slot", "mib")
    for attempt, group, replica, node, index, slot, mib in rows.values_list(*columns):
        held[attempt][group, replica].append((node, index, slot, mib))
    for row in attempts:
        try:
            spec = spec_of(row.job)
        except SpecError as error:
            unreadable[row.key] = f"its description cannot be read any more: {error}"
            continue
        launches.append(_launch(row, spec, held[row.pk]))
    return launches, unreadable


def _launch(
    row: Attempt, spec: JobSpec, held: dict[tuple[str, int], list[tuple[str, int | None, int | None, int]]]
) -> Launch:
    return Launch(
        attempt=row.key,
        job=row.job.key,
        replicas=tuple(_replicas(spec, held)),
        command=spec.command,
        env=dict(spec.env),
        cwd=spec.cwd,
        grace_s=spec.grace,
        time_limit_s=spec.time_limit,
        checkpoint_signal=spec.checkpoint_signal,
    )


def _replicas(
    spec: JobSpec, held: dict[tuple[str, int], list[tuple[str, int | None, int | None, int]]]
) -> Iterable[ReplicaLaunch]:
    """The replicas in order of rank: group by group as the job lists them, then by their index."""
    place = {group.name: position for position, group in enumerate(spec.groups)}
    for rank, (group, index) in enumerate(sorted(held, key=lambda key: (place.get(key[0], 0), key[1]))):
        cards = held[group, index]
        named = tuple(sorted(card for _, card, _, _ in cards if card is not None))
        count = sum(1 for _, _, slot, _ in cards if slot is not None)
        yield ReplicaLaunch(group, index, rank, cards[0][0], named, count, cards[0][3])
