"""What backends say and are told, step by step: launches, stops, ends, cards, and reports that come late."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Attempt, Job, JobEvent
from jobs.services import cancel
from jobs.states import Actor
from scheduler.backends.base import AttemptReport, CardReport, Cause, Phase, ReplicaReport
from scheduler.endings import Ending, end_attempts
from scheduler.inventory.models import Allocation, Gpu, Node
from scheduler.inventory.services import cordon, uncordon
from scheduler.inventory.sighting import take_in_nodes
from scheduler.load import catch_up
from scheduler.reconcile import (
    LAUNCH_TIMEOUT,
    STOP_AGAIN,
    UNSEEN_AFTER,
    begin_launch,
    launch_again,
    note_forgotten,
    note_launched,
    note_stop_sent,
    orders_for,
    refuse_launch,
    to_forget,
)
from teams.problems import Conflict, Forbidden
from tests.integration.world import World, ended, make_world, node, runs, view

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return make_world(node("n1", gpus=4), node("n2", gpus=4))


def started(world: World, **body: object) -> tuple[Job, Attempt]:
    job = world.submit(**body)  # type: ignore[arg-type]
    world.cycle(world.take_over())
    job.refresh_from_db()
    return job, Attempt.objects.get(job=job, ended_at=None)


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return job.state


# --- Orders --------------------------------------------------------------------------------------------------------


def test_a_launch_says_all_that_the_backend_needs(world: World) -> None:
    job, attempt = started(
        world,
        groups=[{"name": "ps", "gpus": 1, "cpus": 1}, {"name": "worker", "replicas": 2, "gpus": 2}],
        command=["python3", "train.py"],
        env={"A": "b"},
        cwd="/tmp",
        time_limit="2h",
        checkpoint={"signal": "USR1", "grace": "5m"},
    )
    (launch,) = orders_for(world.cluster.pk, timezone.now()).launches
    assert (launch.attempt, launch.job, launch.command, launch.env) == (
        attempt.key, job.key, ("python3", "train.py"), {"A": "b"},
    )  # fmt: skip
    assert (launch.cwd, launch.time_limit_s, launch.grace_s, launch.checkpoint_signal) == ("/tmp", 7200, 300, 10)
    assert [(each.rank, each.group, each.index, each.gpu_count, len(each.gpus)) for each in launch.replicas] == [
        (0, "ps", 0, 1, 1), (1, "worker", 0, 2, 2), (2, "worker", 1, 2, 2),
    ]  # fmt: skip
    given = {(each.node, gpu) for each in launch.replicas for gpu in each.gpus}
    held = Allocation.objects.filter(attempt=attempt).values_list("node__name", "gpu__index")
    assert given == set(held)


def test_a_launch_that_nobody_answered_is_begun_again(world: World) -> None:
    _, attempt = started(world)
    now = timezone.now()
    assert begin_launch(attempt.key, now)
    assert not begin_launch(attempt.key, now)
    assert orders_for(world.cluster.pk, now).launches == ()
    late = now + LAUNCH_TIMEOUT + timedelta(seconds=1)
    assert [each.attempt for each in orders_for(world.cluster.pk, late).launches] == [attempt.key]
    second = timedelta(seconds=1)
    launch_again(attempt.key, "the server is busy", now=now, shortest=5 * second, longest=30 * second)
    assert not begin_launch(attempt.key, now + 4 * second)
    soon = now + 6 * second
    assert begin_launch(attempt.key, soon)
    note_launched(attempt.key, soon)
    assert orders_for(world.cluster.pk, late).launches == ()
    assert not begin_launch(attempt.key, late)


def test_an_order_that_is_refused_ends_as_a_failure(world: World) -> None:
    job, attempt = started(world, retries=0)
    begin_launch(attempt.key, timezone.now())
    (end,) = refuse_launch(attempt.key, "unknown card", now=timezone.now(), chance=lambda: 0.5)
    assert (end.end, end.state, state_of(job)) == ("failed", "failed", "failed")
    assert job.state_why == "it failed, and no retry is left (limit 0): unknown card"
    assert refuse_launch(attempt.key, "unknown card", now=timezone.now(), chance=lambda: 0.5) == []


def test_a_stop_is_asked_for_until_it_is_confirmed(world: World) -> None:
    """C65 (b), (c)."""
    job, attempt = started(world)
    now = timezone.now()
    begin_launch(attempt.key, now)
    cancel(user=world.ann, job=job, why="wrong data")
    (stop,) = orders_for(world.cluster.pk, now).stops
    assert (stop.attempt, stop.why) == (attempt.key, "wrong data")
    assert orders_for(world.cluster.pk, now).launches == ()
    note_stop_sent(attempt.key, now)
    assert orders_for(world.cluster.pk, now).stops == ()
    assert len(orders_for(world.cluster.pk, now + STOP_AGAIN + timedelta(seconds=1)).stops) == 1
    world.see(runs(attempt))
    assert state_of(job) == "stopping"  # it came up after all: never running again
    world.see(ended(attempt, 0))
    assert (state_of(job), job.exit_code) == ("cancelled", 0)
    assert not Gpu.objects.filter(whole=True).exists()


# --- What is not there ---------------------------------------------------------------------------------------------


def test_absence_counts_only_where_it_is_certain(world: World) -> None:
    job, attempt = started(world)
    now = timezone.now()
    world.see(complete=True)
    begin_launch(attempt.key, now)
    world.see(complete=True, begun=now + timedelta(seconds=1))
    note_launched(attempt.key, now)
    world.see(complete=True, begun=now + UNSEEN_AFTER - timedelta(seconds=1))
    assert state_of(job) == "starting"
    world.see(begun=now + UNSEEN_AFTER * 9)  # not complete: proves nothing
    assert state_of(job) == "starting"
    (end,) = world.see(complete=True, begun=now + UNSEEN_AFTER + timedelta(seconds=1)).ended
    assert (end.end, state_of(job)) == ("lost", "queued")


def test_an_old_look_does_not_lose_what_was_seen_since(world: World) -> None:
    job, attempt = started(world)
    world.launch()
    asked = timezone.now()
    world.see(runs(attempt))
    world.see(complete=True, begun=asked)
    assert state_of(job) == "running"
    world.see(complete=True, begun=timezone.now() + timedelta(seconds=1))
    assert state_of(job) == "queued"


def test_a_stopped_launch_in_flight_keeps_its_cards_until_it_can_not_land(world: World) -> None:
    job, attempt = started(world)
    now = timezone.now()
    begin_launch(attempt.key, now)
    cancel(user=world.ann, job=job)
    world.see(complete=True, begun=now + LAUNCH_TIMEOUT / 2)
    assert state_of(job) == "stopping"
    world.see(complete=True, begun=now + LAUNCH_TIMEOUT * 1.1)
    assert state_of(job) == "cancelled"


def test_what_nobody_here_knows_is_stopped_or_forgotten(world: World) -> None:
    found = world.see(runs("stranger.1"), ended("stranger.2"))
    assert (found.orphans, found.leftovers) == (("stranger.1",), ("stranger.2",))


def test_records_are_forgotten_some_time_after_the_end(world: World) -> None:
    _, attempt = started(world)
    world.launch()
    world.see(ended(attempt))
    later = timezone.now() + timedelta(hours=1)
    assert to_forget(world.cluster.pk, ended_before=later - timedelta(hours=2)) == []
    assert to_forget(world.cluster.pk, ended_before=later) == [attempt.key]
    note_forgotten([attempt.key], later)
    assert to_forget(world.cluster.pk, ended_before=later) == []


# --- Ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "state", "end"),
    [
        ({"code": 0}, "succeeded", "completed"),
        ({"code": 3}, "queued", "failed"),
        ({"code": 137, "cause": Cause.TIME_LIMIT}, "failed", "time_limit"),
        ({"code": None, "phase": Phase.LOST, "cause": Cause.LOST}, "queued", "lost"),
        ({"code": 143, "cause": Cause.STOPPED}, "queued", "evicted"),
    ],
)
def test_what_an_end_means(world: World, report: dict[str, object], state: str, end: str) -> None:
    job, attempt = started(world)
    world.launch()
    world.see(ended(attempt, **report))  # type: ignore[arg-type]
    attempt.refresh_from_db()
    assert (state_of(job), attempt.end) == (state, end)
    waits = job.backoff_until is not None
    assert waits is (end == "failed")
    if waits:
        seconds = (job.backoff_until - attempt.ended_at).total_seconds()  # type: ignore[operator]
        assert seconds == pytest.approx(30.0, abs=0.01)  # the middle of 30 s ± 25 %
    event = JobEvent.objects.filter(job=job).latest("id")
    assert (event.to, event.data["end"], event.actor) == (state, end, "backend")


def test_infrastructure_that_fails_ten_times_in_a_row_asks_a_person(world: World) -> None:
    job = world.submit()
    live = world.take_over()
    for number in range(1, 11):
        assert world.cycle(live).started == (job.key,)
        world.launch()
        world.see(ended(f"{job.key}.{number}", None, phase=Phase.LOST))
    assert (state_of(job), job.own_failures) == ("held", 0)
    assert job.held_why == "the infrastructure ended it 10 times in a row"
    assert world.cycle(live).started == ()


def test_many_ends_cost_as_many_queries_as_few() -> None:
    def queries(number: int) -> int:
        world = make_world(node("n1"), node("n2"))
        jobs = [world.submit(gpus=1) for _ in range(number)]
        world.cycle(world.take_over())
        world.launch()
        world.see(*[runs(f"{job.key}.1") for job in jobs])
        with CaptureQueriesContext(connection) as captured:
            assert len(world.see(*[ended(f"{job.key}.1") for job in jobs]).ended) == number
        return len(captured)

    assert queries(1) == queries(12)


def test_an_end_of_an_attempt_that_has_ended_is_nothing(world: World) -> None:
    job, attempt = started(world)
    endings = [Ending(attempt.pk, "completed", 0)]  # type: ignore[arg-type]
    world.launch()
    world.see(ended(attempt))
    assert end_attempts(cluster=world.cluster, endings=endings, now=timezone.now(), chance=lambda: 0.5) == []
    assert state_of(job) == "succeeded"


# --- Cards that the node picks -------------------------------------------------------------------------------------


def picked(attempt: str, *cards: str) -> AttemptReport:
    replica = ReplicaReport(0, "main", 0, "n1", Phase.RUNNING, 1.0, gpus=cards)
    return AttemptReport(attempt, Phase.RUNNING, 1.0, started=1.0, replicas=(replica,))


def test_provisional_allocations_are_confirmed_and_swapped() -> None:
    world = make_world(node("n1", gpus=4), chooses_gpu=False)
    first, second = world.submit(gpus=2), world.submit(gpus=2)
    live = world.take_over()
    assert len(world.cycle(live).started) == 2
    assert not Allocation.objects.filter(gpu__isnull=False).exists()
    assert not Gpu.objects.filter(whole=True).exists()
    world.launch()
    # The node has given the first the cards that were planned for the second, and the other way round.
    world.see(picked(f"{first.key}.1", "GPU-n1-2", "GPU-n1-3"))
    assert cards_of(first) == ["GPU-n1-2", "GPU-n1-3"]
    slots = Allocation.objects.filter(attempt__job=second).order_by("slot")
    assert [(row.slot, row.gpu) for row in slots] == [(0, None), (1, None)]
    catch_up(live, timezone.now())
    assert view(live) == view(world.take_over())
    world.see(picked(f"{second.key}.1", "GPU-n1-1", "GPU-n1-0"))
    assert cards_of(second) == ["GPU-n1-0", "GPU-n1-1"]
    assert Gpu.objects.filter(whole=True).count() == 4
    # A node that changes its mind is believed, and nothing is held twice for a moment.
    world.see(picked(f"{second.key}.1", "GPU-n1-1", "GPU-n1-2"), picked(f"{first.key}.1", "GPU-n1-0", "GPU-n1-3"))
    assert (cards_of(first), cards_of(second)) == (["GPU-n1-0", "GPU-n1-3"], ["GPU-n1-1", "GPU-n1-2"])
    world.see(ended(f"{first.key}.1"), ended(f"{second.key}.1"))
    assert not Gpu.objects.filter(allocated_mib__gt=0).exists()
    fresh = world.take_over()
    assert fresh.roster.ledger.free == [0b1111]


def test_a_card_that_is_not_known_is_not_confirmed() -> None:
    world = make_world(node("n1", gpus=2), chooses_gpu=False)
    job = world.submit(gpus=1)
    world.cycle(world.take_over())
    world.launch()
    world.see(picked(f"{job.key}.1", "GPU-of-somebody-else"))
    assert cards_of(job) == []
    assert state_of(job) == "running"


def cards_of(job: Job) -> list[str]:
    rows = Allocation.objects.filter(attempt__job=job, released_at=None, gpu__isnull=False)
    return sorted(rows.values_list("gpu__uuid", flat=True))


# --- Hardware ------------------------------------------------------------------------------------------------------


def test_a_report_that_says_nothing_new_writes_nothing(world: World) -> None:
    with CaptureQueriesContext(connection) as captured:
        changed = take_in_nodes(cluster=world.cluster, reports=world.nodes, complete=True, now=timezone.now())
    assert changed == frozenset()
    assert not [each["sql"] for each in captured if each["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]


def test_nodes_come_change_and_go(world: World) -> None:
    def look(*nodes: object, complete: bool = True) -> frozenset[str]:
        return take_in_nodes(cluster=world.cluster, reports=nodes, complete=complete, now=timezone.now())  # type: ignore[arg-type]

    n1, n2 = node("n1", gpus=4), node("n2", gpus=4)
    assert look(node("n2", gpus=4, ready=False, note="no contact"), complete=False) == {"n2"}
    row = Node.objects.get(name="n2")
    assert (row.state, row.note, row.last_seen is not None) == ("down", "no contact", True)
    assert look(n1, node("n2", gpus=4, labels={"zone": "b"}, rack="r2"), node("n3", gpus=0, model="")) == {"n2", "n3"}
    assert Node.objects.get(name="n3").pool is None
    assert look(n1) == {"n2", "n3"}
    assert Node.objects.filter(removed_at=None).count() == 1
    assert look(n1, n2) == {"n2"}
    job = world.submit(gpus=4)
    live = world.take_over()
    world.cycle(live)
    place = Allocation.objects.filter(attempt__job=job)[0].node.name
    kept = n2 if place == "n1" else n1
    assert look(kept) == {place}
    gone = Node.objects.get(name=place)
    assert (gone.removed_at, gone.state) == (None, "down")  # it still holds a job
    catch_up(live, timezone.now())
    assert view(live) == view(world.take_over())


def test_cards_are_known_by_their_uuid() -> None:
    cards = tuple(CardReport(f"U{index}", index, 81_920) for index in range(4))
    world = make_world(node("n1", cards=cards))
    job = world.submit(gpus=4)
    live = world.take_over()
    world.cycle(live)
    renumbered = tuple(CardReport(f"U{3 - index}", index, 81_920) for index in range(3))  # U0 is lost
    world.nodes = (node("n1", cards=renumbered),)
    world.see(complete=True)
    rows = Gpu.objects.order_by("index").values_list("uuid", "index", "missing_since")
    assert [(uuid, index) for uuid, index, _ in rows] == [("U3", 0), ("U2", 1), ("U1", 2), ("U0", 3)]
    assert [missing is not None for *_, missing in rows] == [False, False, False, True]
    catch_up(live, timezone.now())
    fresh = world.take_over()
    assert view(live) == view(fresh)
    live = fresh
    assert live.roster.running(job.key) is not None
    world.launch()
    world.see(ended(f"{job.key}.1"))
    catch_up(live, timezone.now())
    assert live.roster.ledger.free == [0b0111]  # a lost card takes no work
    world.nodes = (node("n1", cards=cards),)
    world.see(complete=True)
    catch_up(live, timezone.now())
    assert live.roster.ledger.free == [0b1111]


def test_a_card_that_shrinks_is_shown_as_over_committed() -> None:
    world = make_world(node("n1", gpus=1, gpu_mib=20_480))
    job = world.submit(share=True, vram_gib=15)
    world.cycle(world.take_over())
    gpu = Gpu.objects.get()
    assert (gpu.usable_mib, gpu.capacity_mib, gpu.allocated_mib, gpu.whole) == (19_456, 19_456, 15_360, False)
    world.nodes = (node("n1", gpus=1, gpu_mib=10_240),)
    world.see(complete=True)
    gpu.refresh_from_db()
    assert (gpu.usable_mib, gpu.capacity_mib, gpu.allocated_mib, gpu.free_mib) == (9_216, 15_360, 15_360, 0)
    world.launch()
    world.see(ended(f"{job.key}.1"), complete=True)
    world.see(complete=True)
    gpu.refresh_from_db()
    assert (gpu.usable_mib, gpu.capacity_mib, gpu.allocated_mib, gpu.free_mib) == (9_216, 9_216, 0, 9_216)


def test_cordons_belong_to_whoever_made_them(world: World) -> None:
    machine = Node.objects.get(name="n1")
    with pytest.raises(Forbidden):
        cordon(node=machine, actor=Actor.ADMIN, user=world.lead, why="x")
    by_health = cordon(node=machine, actor=Actor.HEALTH, why="Xid 79")
    assert (by_health.state, by_health.cordon_actor, by_health.cordon_why) == ("cordoned", "health", "Xid 79")
    assert uncordon(node=machine, actor=Actor.HEALTH).state == "ready"
    by_person = cordon(node=machine, actor=Actor.ADMIN, user=world.admin, why="new fan", drain=True)
    assert (by_person.state, by_person.cordon_by) == ("draining", world.admin)
    assert cordon(node=machine, actor=Actor.HEALTH, why="Xid 79").cordon_why == "new fan"
    with pytest.raises(Conflict, match="n1 was cordoned by admin: new fan"):
        uncordon(node=machine, actor=Actor.HEALTH)
    assert uncordon(node=machine, actor=Actor.ADMIN, user=world.admin).state == "ready"
