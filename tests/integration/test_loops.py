"""The loops one by one: what wakes them, what they skip, what they survive."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import time_machine
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Attempt, Job, JobEvent
from jobs.services import cancel
from scheduler import tasks
from scheduler.backends.base import Launch, PermanentError, TransientError
from scheduler.inventory.models import Allocation, Cluster, Gpu
from scheduler.loop import Loop
from scheduler.rounds import SILENT_S, Rounds
from scheduler.sweeping import (
    find_contradictions,
)
from scheduler.timings import Timings
from tests.integration.loop_world import Play, Stage, held, make_stage, reason, state
from tests.integration.world import live_attempt, make_world, node

START = datetime.fromisoformat("2026-03-02T09:00:00+00:00")


@pytest.fixture
def clock() -> Any:
    with time_machine.travel(START, tick=False) as clock:
        yield clock


# --- tick ---


@pytest.mark.django_db
def test_a_cycle_with_nothing_new_is_skipped_cheaply_and_comes_when_something_is_due(clock: Any) -> None:
    stage = make_stage()
    later = stage.world.submit(gpus=1, not_before="30s")
    assert stage.tick() is not None
    with CaptureQueriesContext(connection) as captured:
        assert stage.tick() is None
    assert len(captured) <= 8
    assert reason(later) == "not_before"
    clock.shift(timedelta(seconds=31))
    turn = stage.tick()
    assert turn is not None
    assert turn.applied.started == (later.key,)


@pytest.mark.django_db
def test_a_wake_up_that_a_later_cycle_has_answered_costs_nothing(clock: Any) -> None:
    stage = make_stage()
    stage.tick()
    asked = timezone.now().timestamp() - 0.5
    stage.world.submit(gpus=1)
    with CaptureQueriesContext(connection) as captured:
        assert stage.loop().tick(stage.world.cluster.pk, asked_at=asked) is None
    assert len(captured) == 0
    assert stage.loop().tick(stage.world.cluster.pk, asked_at=asked + 1) is not None


@pytest.mark.django_db
def test_a_start_that_could_not_be_carried_out_is_tried_again_although_no_row_has_changed(
    monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    stage = make_stage()
    job = stage.world.submit(gpus=1)
    monkeypatch.setattr("scheduler.apply._on_working_hardware", lambda *_: set())
    turn = stage.tick()
    assert turn.applied.left_out == (job.key,)
    monkeypatch.undo()
    assert stage.tick() is None
    clock.shift(timedelta(seconds=1))
    assert stage.tick().applied.started == (job.key,)


@pytest.mark.django_db
def test_an_error_drops_the_roster_and_the_next_cycle_reads_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make_stage()
    stage.tick()
    job = stage.world.submit(gpus=1)

    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("scheduler.loop.decide", broken)
    with pytest.raises(RuntimeError):
        stage.tick()
    assert stage.loop().live(stage.world.cluster.pk) is None
    monkeypatch.undo()
    turn = stage.tick()
    assert (turn.all_read, turn.applied.started) == (True, (job.key,))


@pytest.mark.django_db
def test_one_broken_cluster_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, fine = make_world(), make_world()
    job = fine.submit(gpus=1)
    ticked = Loop.tick

    def tick(self: Loop, cluster_id: int, **more: Any) -> Any:
        if cluster_id == broken.cluster.pk:
            raise RuntimeError("a bug")
        return ticked(self, cluster_id, **more)

    monkeypatch.setattr(Loop, "tick", tick)
    monkeypatch.setattr(tasks, "LOOP", Loop(timings=Timings()))
    tasks.tick(group="main")
    assert state(job) == "starting"


@pytest.mark.django_db
def test_a_job_that_cannot_be_read_any_more_waits_for_a_person_and_nobody_waits_for_it() -> None:
    stage = make_stage()
    running, broken, fine = (stage.world.submit(gpus=1, labels={"n": str(number)}) for number in range(3))
    Job.objects.filter(pk=fine.pk).update(lane="another", priority=100)
    Job.objects.exclude(pk=running.pk).filter(cluster=stage.world.cluster).update(held_why="", priority=100)
    Job.objects.filter(pk=broken.pk).update(spec={"name": "x", "gone": 1}, lane="broken")
    assert set(stage.tick().applied.started) == {running.key, fine.key}
    Job.objects.filter(pk=running.pk).update(spec={"name": "x", "gone": 1}, lane="broken")
    stage.loops.clear()
    stage.tick()  # it still holds its card
    assert held(stage) == 2
    done = stage.dispatch()
    assert (done.launched, done.refused) == ((f"{fine.key}.1",), (f"{running.key}.1",))
    running.refresh_from_db()
    assert (running.state, "cannot be read" in running.state_why) == ("failed", True)


# --- dispatch ---


@pytest.mark.django_db
def test_a_launch_that_fails_for_now_is_tried_again_in_growing_pauses(clock: Any) -> None:
    stage = make_stage()
    job = stage.world.submit(gpus=1)
    stage.tick()
    tries = []
    for second in range(120):
        stage.backend.refuse = TransientError("busy")
        if stage.dispatch().again:
            tries.append(second)
        clock.shift(timedelta(seconds=1))
    pauses = [after - before for before, after in pairwise(tries)]
    assert tries[0] == 0
    assert pauses == sorted(pauses)
    assert 4 <= len(tries) <= 15
    assert live_attempt(job).launch_problem == "busy"
    stage.backend.refuse = None
    clock.shift(timedelta(seconds=61))
    assert stage.dispatch().launched == (f"{job.key}.1",)
    assert live_attempt(job).launch_problem == ""


@pytest.mark.django_db
def test_a_launch_that_is_refused_ends_the_whole_gang_and_frees_all_its_cards() -> None:
    """C19."""
    stage = make_stage(nodes=3, gpus=2)
    gang = stage.world.submit(gpus=2, replicas=3)
    stage.tick()
    assert held(stage) == 6
    stage.backend.refuse = PermanentError("rank 2: no such node")
    assert stage.dispatch().refused == (f"{gang.key}.1",)
    stage.backend.refuse = None
    gang.refresh_from_db()
    assert (gang.state, gang.state_why.endswith("no such node"), held(stage)) == ("failed", True, 0)
    other = stage.world.submit(gpus=2, replicas=3)
    assert stage.tick().applied.started == (other.key,)
    assert find_contradictions(stage.world.cluster) == 0


@pytest.mark.django_db
def test_a_bug_in_one_launch_does_not_keep_the_others_from_being_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make_stage()
    first, second = stage.world.submit(gpus=1), stage.world.submit(gpus=1)
    stage.tick()
    launch = stage.backend.launch

    def sometimes(order: Launch) -> None:
        if order.job == first.key:
            raise ZeroDivisionError
        launch(order)

    monkeypatch.setattr(stage.backend, "launch", sometimes)
    done = stage.dispatch()
    assert (done.launched, done.again) == ((f"{second.key}.1",), (f"{first.key}.1",))


@pytest.mark.django_db
@pytest.mark.parametrize("moment", ["during", "after"])
def test_cancelled_while_it_is_being_launched_it_ends_cancelled_and_nothing_is_left(
    moment: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C65 (b) during the call, (c) after it and before it was seen to run."""
    stage = make_stage()
    job = stage.world.submit(gpus=2)
    stage.backend.plays[job.key] = Play(None)
    stage.tick()
    launch = stage.backend.launch

    def launching(order: Launch) -> None:
        if moment == "during":
            cancel(user=stage.world.ann, job=job)
        launch(order)

    monkeypatch.setattr(stage.backend, "launch", launching)
    stage.dispatch()
    if moment == "after":
        cancel(user=stage.world.ann, job=job)
    assert state(job) == "stopping"
    for _ in range(4):
        stage.dispatch()
        clock.shift(timedelta(seconds=2))
        stage.observe()
    assert (state(job), held(stage), stage.backend.alive()) == ("cancelled", 0, set())
    kinds = list(JobEvent.objects.filter(job=job).order_by("id").values_list("to", flat=True))
    assert kinds[-1] == "cancelled"
    assert "succeeded" not in kinds


@pytest.mark.django_db
def test_a_stop_that_found_nothing_is_sent_again_at_once_when_the_launch_has_come_through(clock: Any) -> None:
    stage = make_stage()
    job = stage.world.submit(gpus=1)
    stage.tick()
    now = timezone.now()
    Attempt.objects.filter(job=job).update(launch_begun_at=now)
    cancel(user=stage.world.ann, job=job)
    assert stage.dispatch().stopped == (f"{job.key}.1",)  # not there yet
    clock.shift(timedelta(seconds=1))
    Attempt.objects.filter(job=job).update(launched_at=timezone.now())
    assert stage.dispatch().stopped == (f"{job.key}.1",)
    assert stage.dispatch().stopped == ()


# --- observe ---


class Wired:
    """Connections that lead to the stage's backend."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def backend_of(self, cluster: Cluster) -> Any:
        return self.stage.backend


@pytest.mark.django_db
def test_nothing_starts_while_the_backend_has_not_been_looked_at_and_is_silent(clock: Any) -> None:
    """C67."""
    stage = make_stage()
    rounds = Rounds(connections=Wired(stage), timings=Timings())  # type: ignore[arg-type]
    cluster = stage.world.cluster
    Cluster.objects.filter(pk=cluster.pk).update(synced=False)
    stage.backend.silent = True
    job = stage.world.submit(gpus=1)
    rounds.observe(cluster.pk)
    stage.tick()
    cluster.refresh_from_db()
    assert (cluster.synced, cluster.sync_problem) == (False, "no route to the cluster")
    assert (state(job), reason(job)) == ("queued", "syncing")
    stage.backend.silent = False
    rounds.observe(cluster.pk)
    cluster.refresh_from_db()
    assert (cluster.synced, cluster.sync_problem) == (True, "")
    assert stage.tick().applied.started == (job.key,)


@pytest.mark.django_db
def test_a_short_silence_changes_nothing_and_a_long_one_stops_the_starts() -> None:
    with time_machine.travel(START, tick=False) as clock:
        stage = make_stage()
        rounds = Rounds(connections=Wired(stage), timings=Timings())  # type: ignore[arg-type]
        rounds.observe(stage.world.cluster.pk)
        stage.backend.silent = True
        for seconds, synced in ((SILENT_S / 2, True), (SILENT_S, False)):
            clock.shift(timedelta(seconds=seconds))
            rounds.observe(stage.world.cluster.pk)
            stage.world.cluster.refresh_from_db()
            assert stage.world.cluster.synced is synced


def test_who_comes_while_another_is_at_it_makes_it_be_done_once_more() -> None:
    rounds, began, go = Rounds(timings=Timings()), threading.Event(), threading.Event()
    done: list[int] = []

    def work() -> None:
        began.set()
        go.wait(5)
        done.append(1)

    thread = threading.Thread(target=lambda: rounds._turnstile.run("x", work))
    thread.start()
    began.wait(5)
    assert not rounds._turnstile.run("x", work)
    assert not rounds._turnstile.run("x", work)
    go.set()
    thread.join(5)
    assert len(done) == 2
    assert rounds._turnstile.run("x", work)


# --- sweep ---


@pytest.mark.django_db(transaction=True)
def test_two_tickers_and_submitters_at_the_same_time_promise_no_card_twice() -> None:
    world = make_world(*(node(f"n{number}", gpus=4) for number in range(1, 5)))
    stop, problems = threading.Event(), []

    def ticking() -> None:
        loop = Loop(timings=Timings())
        try:
            while not stop.is_set():
                loop.tick(world.cluster.pk)
        except Exception as error:
            problems.append(error)
        finally:
            connections.close_all()

    def submitting() -> None:
        try:
            for number in range(15):
                world.submit(gpus=1 + number % 3)
        except Exception as error:
            problems.append(error)
        finally:
            connections.close_all()

    tickers = [threading.Thread(target=ticking) for _ in range(2)]
    submitters = [threading.Thread(target=submitting) for _ in range(3)]
    for thread in (*tickers, *submitters):
        thread.start()
    for thread in submitters:
        thread.join(60)
    Loop(timings=Timings()).tick(world.cluster.pk)
    stop.set()
    for thread in tickers:
        thread.join(60)
    loop = Loop(timings=Timings())
    loop.tick(world.cluster.pk)
    assert problems == []
    assert Job.objects.filter(cluster=world.cluster).count() == 45
    assert find_contradictions(world.cluster) == 0
    live = Allocation.objects.filter(node__cluster=world.cluster, released_at=None)
    assert live.count() == live.values("gpu").distinct().count() == Gpu.objects.filter(whole=True).count() >= 14
