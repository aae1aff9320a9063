"""From a submission to its end, through rows alone: load, decide, apply, reconcile."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.models import Attempt, Change, Job, JobEvent
from jobs.services import cancel
from scheduler.inventory.models import Allocation, Gpu
from scheduler.reconcile import begin_launch, end_unlaunched
from scheduler.selectors import pending_by_reason, why_waiting
from tests.integration.world import ended, make_world, node, runs

pytestmark = pytest.mark.django_db


def test_a_job_runs_from_submission_to_its_end() -> None:
    world = make_world(node("n1", gpus=4))
    first, second = world.submit(gpus=3, name="first"), world.submit(gpus=3, name="second")
    live = world.take_over()
    assert world.cycle(live).started == (first.key,)
    first.refresh_from_db()
    assert (first.state, first.attempt_count) == ("starting", 1)
    assert Gpu.objects.filter(cluster=world.cluster, whole=True).count() == 3
    why = why_waiting(Job.objects.select_related("cluster").filter(pk=second.pk), timezone.now())[second.pk]
    assert (why.hold.reason.value, why.hold.message) == ("gpus", "needs 3 GPUs, 1 of 4 free")
    assert pending_by_reason(world.cluster.pk, timezone.now()) == {"gpus": 1}

    assert world.launch() == [f"{first.key}.1"]
    assert world.launch() == []
    world.see(runs(f"{first.key}.1"))
    first.refresh_from_db()
    assert first.state == "running"
    world.see(ended(f"{first.key}.1"))
    first.refresh_from_db()
    assert (first.state, first.exit_code) == ("succeeded", 0)
    assert not Gpu.objects.filter(cluster=world.cluster, allocated_mib__gt=0).exists()

    assert world.cycle(live).started == (second.key,)
    assert pending_by_reason(world.cluster.pk, timezone.now()) == {}
    kinds = JobEvent.objects.filter(job=first).order_by("id").values_list("kind", "origin", "to", "actor")
    assert list(kinds) == [
        ("submit", "", "queued", "user"),
        ("place", "queued", "starting", "engine"),
        ("run", "starting", "running", "backend"),
        ("succeed", "running", "succeeded", "backend"),
    ]


def test_no_pass_before_a_complete_first_look_and_lost_jobs_come_back_after_it() -> None:
    """C67."""
    world = make_world(node("n1", gpus=4))
    kept, gone = world.submit(gpus=1), world.submit(gpus=1)
    live = world.take_over()
    world.cycle(live)
    world.launch()
    world.see(runs(f"{kept.key}.1"), runs(f"{gone.key}.1"))
    waiting = world.submit(gpus=1)
    world.cluster.synced = False
    world.cluster.save(update_fields=["synced"])
    live = world.take_over()
    assert world.cycle(live).started == ()
    fresh = Job.objects.select_related("cluster").get(pk=waiting.pk)
    assert why_waiting([fresh], timezone.now())[fresh.pk].hold.reason.value == "syncing"
    found = world.see(runs(f"{kept.key}.1"), complete=True)
    assert [(each.job, each.end.value, each.state.value) for each in found.ended] == [(gone.key, "lost", "queued")]
    assert set(world.cycle(live).started) == {gone.key, waiting.key}
    gone.refresh_from_db()
    assert (gone.attempt_count, gone.infrastructure_in_a_row, gone.own_failures) == (2, 1, 0)


def test_usage_is_counted_from_rows_over_retries_and_reused_names() -> None:
    """C05."""
    world = make_world(node("n1", gpus=8))
    job = world.submit(gpus=6, name="r")
    live = world.take_over()
    for number in range(1, 5):
        Job.objects.filter(pk=job.pk).update(backoff_until=None)
        Change.objects.create(cluster=world.cluster, subject="job", ref=job.pk)
        assert world.cycle(live).started == (job.key,)
        assert held_gpus(world.cluster.pk) == 6
        world.launch()
        world.see(ended(f"{job.key}.{number}", 1))
        assert held_gpus(world.cluster.pk) == 0
    job.refresh_from_db()
    assert (job.state, job.own_failures) == ("failed", 4)  # the first failure and the policy's three retries
    again = world.submit(gpus=6, name="r")
    assert world.cycle(live).started == (again.key,)
    assert held_gpus(world.cluster.pk) == 6
    rebuilt = world.take_over()
    assert rebuilt.roster.ledger.free == live.roster.ledger.free


def test_late_and_repeated_observations_change_nothing() -> None:
    """C69."""
    world = make_world(node("n1", gpus=2))
    job = world.submit(gpus=2)
    live = world.take_over()
    world.cycle(live)
    world.launch()
    key = f"{job.key}.1"
    world.see(runs(key))
    world.see(ended(key, 0))
    before = rows_of(job)
    for report in (ended(key, 1), runs(key), ended(key, 0)):
        found = world.see(report)
        assert found.ended == ()
        assert rows_of(job) == before
    assert world.see(runs(key)).orphans == (key,)  # what runs without a live attempt is to be stopped
    other = world.submit(gpus=2)
    assert world.cycle(live).started == (other.key,)
    world.see(ended(key, 1))
    assert held_gpus(world.cluster.pk) == 2


def test_cancelled_before_the_launch_nothing_is_launched() -> None:
    """C65 (a)."""
    world = make_world()
    job = world.submit()
    live = world.take_over()
    world.cycle(live)
    assert cancel(user=world.ann, job=job).state == "stopping"
    assert not begin_launch(f"{job.key}.1", timezone.now())
    assert world.launch() == []
    ended_now = end_unlaunched(world.cluster.pk, now=timezone.now(), chance=lambda: 0.5)
    assert [each.state.value for each in ended_now] == ["cancelled"]
    assert held_gpus(world.cluster.pk) == 0


def rows_of(job: Job) -> tuple[object, ...]:
    job.refresh_from_db()
    return (
        job.state, job.version, job.finished_at, Attempt.objects.filter(job=job).values_list().last(),
        list(Allocation.objects.filter(attempt__job=job).values_list()), JobEvent.objects.filter(job=job).count(),
    )  # fmt: skip


def held_gpus(cluster_id: int) -> int:
    held = Allocation.objects.filter(node__cluster=cluster_id, released_at=None).count()
    assert Gpu.objects.filter(cluster_id=cluster_id, whole=True).count() == held
    return held
