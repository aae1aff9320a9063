"""The sweep: what is overdue, expired, contradictory or a demo's past, and the timings of every process."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from jobs.models import Attempt, Job
from jobs.services import cancel
from scheduler.inventory.models import Allocation
from scheduler.sweeping import (
    expire,
    kill_overdue,
    sweep_cluster,
    throw_away_demo_jobs,
)
from scheduler.timings import Timings, published
from tests.integration.loop_world import Play, held, make_stage, state

START = datetime.fromisoformat("2026-03-02T09:00:00+00:00")


@pytest.fixture
def clock() -> Any:
    with time_machine.travel(START, tick=False) as clock:
        yield clock


@pytest.mark.django_db
def test_what_does_not_end_in_time_is_killed(clock: Any) -> None:
    stage = make_stage()
    stage.backend.real.stop_delay = 10_000.0
    job = stage.world.submit(gpus=1, checkpoint={"grace": "100s"})
    stage.backend.plays[job.key] = Play(None)
    stage.all_three()
    cancel(user=stage.world.ann, job=job)
    stage.dispatch()
    Attempt.objects.filter(job=job).update(stop_grace_s=5_000.0)
    clock.shift(timedelta(seconds=120))
    assert kill_overdue(stage.world.cluster, stage.backend, timezone.now()) == 0
    Attempt.objects.filter(job=job).update(stop_grace_s=None)
    clock.shift(timedelta(seconds=60))
    assert kill_overdue(stage.world.cluster, stage.backend, timezone.now()) == 1
    stage.observe()
    assert (state(job), held(stage)) == ("cancelled", 0)


@pytest.mark.django_db
def test_a_job_that_finds_no_cards_again_in_its_window_has_failed(clock: Any) -> None:
    stage = make_stage(nodes=1, gpus=2)
    job = stage.world.submit(gpus=2, retry_window="5m")
    stage.backend.plays[job.key] = Play(1.0, code=1)
    stage.all_three()
    clock.shift(timedelta(seconds=5))
    stage.observe()
    assert state(job) == "queued"
    stage.world.submit(gpus=2, priority="high")
    stage.tick()
    for minutes, ended in ((4, 0), (3, 1), (1, 0)):
        clock.shift(timedelta(minutes=minutes))
        assert expire(stage.world.cluster, timezone.now()) == ended
    job.refresh_from_db()
    assert (job.state, job.state_why) == ("failed", "it found no cards again for 300 s")


@pytest.mark.django_db
def test_only_a_demo_throws_its_history_away(clock: Any) -> None:
    stage = make_stage()
    job, other = stage.world.submit(gpus=1), stage.world.submit(gpus=1, after=[])
    for _ in range(3):
        stage.all_three()
        clock.shift(timedelta(seconds=30))
    assert state(job) == state(other) == "succeeded"
    clock.shift(timedelta(hours=13))
    cluster = stage.world.cluster
    assert throw_away_demo_jobs(cluster, timezone.now()) == 0
    waiting = stage.world.submit(gpus=1)
    cluster.config = {"demo": True}
    assert throw_away_demo_jobs(cluster, timezone.now()) == 2
    assert list(Job.objects.filter(cluster=cluster)) == [waiting]
    assert not Allocation.objects.filter(node__cluster=cluster).exists()


@pytest.mark.django_db
def test_a_step_of_the_sweep_that_fails_does_not_keep_the_others_from_being_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = make_stage()

    def broken(*_: Any) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("scheduler.sweeping.expire", broken)
    found = sweep_cluster(stage.world.cluster, stage.backend, timezone.now())
    assert found == dict.fromkeys(("expired", "holds", "thrown_away", "contradictions", "killed", "forgotten"), 0)


@pytest.mark.django_db
def test_timings_of_every_process_are_there_for_the_metrics() -> None:
    timings = Timings()
    timings.note("cycle", "c", 0.02)
    timings.note("cycle", "c", 20.0)
    timings.count("starts", "c", 3)
    timings.publish()
    (mine,) = [each for each in published().values() if each["counts"].get("starts") == {"c": 3}]
    assert (mine["steps"]["cycle"]["c"]["count"], sum(mine["steps"]["cycle"]["c"]["buckets"])) == (2, 2)


# --- for real at the same time ---
