"""What is known of why a job waits, from rows."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Attempt
from jobs.services import hold
from scheduler import why
from scheduler.engine.report.runtimes import History
from scheduler.why import explain_job, look_of, runtimes_of
from tests.integration.world import make_world, node

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    why._LOOKS.clear()


def test_a_waiting_job_is_explained() -> None:
    world = make_world(node("n1", 4), node("n2", 4))
    live = world.take_over()
    running = world.submit(name="running", gpus=3, time_limit="1h")
    waits = world.submit(name="waits", gpus=4, replicas=2, time_limit="1h")
    last = world.submit(name="last", gpus=4, replicas=2)
    world.cycle(live)
    for job in (running, waits, last):
        job.refresh_from_db()
    assert explain_job(running, timezone.now()) is None
    now = timezone.now()
    told = explain_job(waits, now)
    assert told is not None
    assert told["as_of"] == now.isoformat()
    assert [(step["gate"], step["nodes"], step["cards"]) for step in told["funnel"][0]["steps"]][-1] == (
        "together",
        1,
        4,
    )
    assert [each["message"] for each in told["remedies"]] == ["with 2 GPUs a replica", "with 1 replicas"]
    assert told["ahead"]["jobs"] == 0
    started = Attempt.objects.get(job=running).started_at
    low, high = (told["estimate"][end] for end in ("low", "high"))
    assert now.isoformat() < low < high == (started + timedelta(hours=1)).isoformat()
    behind = explain_job(last, now)
    assert behind is not None
    assert [each["job"] for each in behind["ahead"]["first"]] == [waits.key]
    assert behind["estimate"]["low"] > low
    assert behind["estimate"]["high"] > high
    json.dumps([told, behind])


def test_a_held_job_says_so() -> None:
    world = make_world(node("n1", 4))
    job = world.submit(gpus=1)
    hold(user=world.ann, job=job, why="not yet")
    job.refresh_from_db()
    told = explain_job(job, timezone.now())
    assert told is not None
    assert told["estimate"]["low"] is told["estimate"]["high"] is None
    assert told["estimate"]["why"]["code"] == "held"
    assert [each["kind"] for each in told["remedies"]] == ["release"]


def test_a_job_that_came_after_the_last_look_is_looked_for() -> None:
    world = make_world(node("n1", 4))
    now = timezone.now()
    look_of(world.cluster.pk, now)
    told = explain_job(world.submit(gpus=1), now)
    assert told is not None
    assert told["estimate"]["low"] == told["estimate"]["high"] == now.isoformat()


def test_a_look_is_kept_for_a_moment() -> None:
    world = make_world(node("n1", 4))
    now = timezone.now()
    first = look_of(world.cluster.pk, now)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert look_of(world.cluster.pk, now + timedelta(seconds=4)) is first
    assert len(queries) == 1
    assert look_of(world.cluster.pk, now + timedelta(seconds=6)) is not first
    live = world.take_over()
    again = look_of(world.cluster.pk, now + timedelta(seconds=7))
    world.submit(gpus=1)
    world.cycle(live)
    assert look_of(world.cluster.pk, now + timedelta(seconds=8)) is not again, "the version has moved on"


def test_run_times_are_those_of_the_team() -> None:
    world = make_world(node("n1", 4))
    now = timezone.now()
    for number in range(why.LEAST_RUNS):
        assert runtimes_of(world.cluster.pk, now).teams == {}
        job = world.submit(gpus=1, time_limit="100s")
        Attempt.objects.create(
            job=job, number=1, key=f"{job.key}-1", end="completed", started_at=now - timedelta(minutes=5),
            running_at=now - timedelta(seconds=20 + number),
            ended_at=now - timedelta(seconds=number),
        )  # fmt: skip
    runs = (20.0,) * why.LEAST_RUNS
    assert runtimes_of(world.cluster.pk, now).teams == {
        world.team.slug: History(tuple(each / 100 for each in runs), runs)
    }
    assert runtimes_of(world.cluster.pk, now + timedelta(days=31)).teams == {}
