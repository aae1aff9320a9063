"""Several at once, on real connections: submitters with one key, two loops, and a cancel that meets a plan."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction
from django.utils import timezone

from jobs.models import Attempt, Job, JobEvent
from jobs.services import archive_team, cancel
from jobs.submission import submit
from scheduler.apply import Applied, NotApplied, apply
from scheduler.backends.base import Observation
from scheduler.engine.cycle import decide
from scheduler.inventory.models import Allocation, Gpu
from scheduler.load import Superseded, catch_up
from scheduler.observing import take_in
from scheduler.reconcile import begin_launch
from scheduler.targets import target_for
from teams.problems import Conflict, Problem
from tests.integration.world import World, ended, make_world, node, runs, view

pytestmark = pytest.mark.django_db(transaction=True)
T = TypeVar("T")


def together(*acts: Callable[[], T]) -> list[T]:
    """Run all at the same moment, each with a connection of its own."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        try:
            with connection.cursor():
                barrier.wait(20)
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return [future.result(30) for future in [pool.submit(run, act) for act in acts]]


def outcome(act: Callable[[], T]) -> Callable[[], T | Exception]:
    def run() -> T | Exception:
        try:
            return act()
        except (Problem, NotApplied, Superseded) as error:
            return error

    return run


def plan_for(world: World, live: Any) -> Any:
    now = timezone.now()
    return decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())


def test_twenty_submissions_with_one_key_make_one_job() -> None:
    world = make_world()
    target = target_for(user=world.ann, team=world.team)

    def post() -> Any:
        body = {"name": "once", "command": ["true"]}
        return submit(user=world.ann, team=world.team, target=target, body=body, idempotency_key="k")

    found = together(*[post] * 20)
    assert len({each.job.pk for each in found}) == 1
    assert sum(each.created for each in found) == 1
    assert (Job.objects.count(), JobEvent.objects.count()) == (1, 1)


def test_twenty_different_submissions_with_one_key_make_one_job_and_nineteen_refusals() -> None:
    world = make_world()
    target = target_for(user=world.ann, team=world.team)

    def post(number: int) -> Callable[[], Any]:
        body = {"name": f"job-{number}", "command": ["true"]}
        return outcome(lambda: submit(user=world.ann, team=world.team, target=target, body=body, idempotency_key="k"))

    found = together(*(post(number) for number in range(20)))
    refusals = [each for each in found if isinstance(each, Conflict)]
    assert (len(refusals), {each.code for each in refusals}) == (19, {"idempotency_key_reused"})
    assert Job.objects.count() == 1


def test_a_limit_of_waiting_jobs_holds_for_a_crowd() -> None:
    world = make_world()
    target = target_for(user=world.ann, team=world.team)
    target = type(target)(target.cluster_id, target.slug, target.tick_group, max_pending_per_team=5)

    def post(number: int) -> Callable[[], Any]:
        body = {"name": f"job-{number}", "command": ["true"]}
        return lambda: submit(user=world.ann, team=world.team, target=target, body=body)

    together(*(post(number) for number in range(12)))
    assert Job.objects.filter(state="queued").count() == 5
    rejected = Job.objects.filter(state="rejected")
    assert rejected.count() == 7
    assert rejected[0].state_why == f"jobs of {world.team.slug} waiting: 5, the limit is 5"


@pytest.mark.parametrize("again", range(5))
def test_a_team_is_not_archived_under_a_submission(again: int) -> None:
    world = make_world()
    target = target_for(user=world.ann, team=world.team)
    body = {"name": "late", "command": ["true"]}
    together(
        outcome(lambda: archive_team(author=world.admin, team=world.team)),
        outcome(lambda: submit(user=world.ann, team=world.team, target=target, body=body)),
    )
    world.team.refresh_from_db()
    waiting = Job.objects.filter(team=world.team, state="queued").count()
    assert waiting == (0 if world.team.archived_at else 1)


def test_two_appliers_of_one_plan_start_each_job_once() -> None:
    world = make_world(node("n1"), node("n2"))
    for _ in range(16):
        world.submit(gpus=1)
    live = world.take_over()
    plan = plan_for(world, live)
    found = together(*[outcome(lambda: apply(live, plan, timezone.now()))] * 2)  # the second finds the rows changed
    started = [key for each in found if not isinstance(each, Exception) for key in each.started]
    assert len(started) == len(set(started)) == 16
    assert Attempt.objects.filter(ended_at=None).count() == 16
    assert Allocation.objects.filter(released_at=None).values("gpu").distinct().count() == 16


@pytest.mark.parametrize("again", range(3))
def test_of_two_loops_one_is_shut_out_as_a_whole(again: int) -> None:
    world = make_world(node("n1"))
    for _ in range(8):
        world.submit(gpus=1)
    old = world.take_over()
    plan = plan_for(world, old)

    def take_over_and_run() -> Any:
        live = world.take_over()
        return world.cycle(live)

    together(outcome(lambda: apply(old, plan, timezone.now())), outcome(take_over_and_run))
    live = Attempt.objects.filter(job__cluster=world.cluster, ended_at=None)
    assert live.count() == live.values("job").distinct().count() == 8
    assert Gpu.objects.filter(cluster=world.cluster, whole=True).count() == 8
    with pytest.raises(Superseded):
        catch_up(old, timezone.now())


@pytest.mark.parametrize("again", range(6))
def test_a_cancel_that_meets_a_plan(again: int) -> None:
    """C65: whoever comes first, the job ends cancelled and holds nothing."""
    world = make_world(node("n1"))
    job, other = world.submit(gpus=4), world.submit(gpus=4)
    live = world.take_over()
    plan = plan_for(world, live)
    acts: tuple[Callable[[], Job | Applied], ...] = (
        lambda: cancel(user=world.ann, job=job),
        lambda: apply(live, plan, timezone.now()),
    )
    _, applied = together(*acts)
    assert isinstance(applied, Applied)
    assert other.key in applied.started
    job.refresh_from_db()
    assert job.state == ("stopping" if job.attempt_count else "cancelled")
    catch_up(live, timezone.now())
    assert view(live) == view(world.take_over())


def test_a_job_that_is_locked_is_left_for_the_next_cycle() -> None:
    world = make_world(node("n1"))
    job, other = world.submit(gpus=1), world.submit(gpus=1)
    live = world.take_over()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)
        (applied,) = together(lambda: world.cycle(live))
    assert (applied.started, applied.left_out) == ((other.key,), (job.key,))
    assert world.cycle(live).started == (job.key,)


@pytest.mark.parametrize("again", range(6))
def test_a_cancel_that_meets_a_launch(again: int) -> None:
    """C65: either nothing is launched, or the backend is told to stop it."""
    world = make_world(node("n1"))
    job = world.submit()
    world.cycle(world.take_over())
    key = f"{job.key}.1"
    begun, _ = together(
        lambda: begin_launch(key, timezone.now()),
        lambda: cancel(user=world.ann, job=job).state == "stopping",
    )
    attempt = Attempt.objects.get(key=key)
    assert (attempt.launch_begun_at is not None) is begun
    assert attempt.stop_end == "cancelled"


def test_the_end_is_counted_once_however_many_tell_it() -> None:
    world = make_world(node("n1"))
    job = world.submit()
    world.cycle(world.take_over())
    world.launch()
    world.see(runs(f"{job.key}.1"))
    report = Observation(False, 1, (), (ended(f"{job.key}.1", 1),))

    def tell() -> Any:
        now = timezone.now()
        return take_in(world.cluster.pk, report, begun=now, now=now, chance=lambda: 0.5)

    found = together(*[tell] * 6)
    assert sum(len(each.ended) for each in found) == 1
    job.refresh_from_db()
    assert (job.state, job.own_failures, job.attempt_count) == ("queued", 1, 1)
    assert JobEvent.objects.filter(job=job, kind="requeue").count() == 1
    assert not Allocation.objects.filter(released_at=None).exists()


@pytest.mark.parametrize("again", range(4))
def test_evicted_cancelled_and_completed_at_once(again: int) -> None:
    world = make_world(node("n1"))
    job = world.submit()
    live = world.take_over()
    world.cycle(live)
    world.launch()
    world.see(runs(f"{job.key}.1"))
    together(
        outcome(lambda: cancel(user=world.ann, job=job)),
        outcome(lambda: world.see(ended(f"{job.key}.1", 0))),
    )
    world.see(ended(f"{job.key}.1", 0))
    job.refresh_from_db()
    cancelled_first = JobEvent.objects.filter(job=job, kind="cancel").exists()
    assert job.state == ("cancelled" if cancelled_first else "succeeded")
    assert not Gpu.objects.filter(cluster=world.cluster, allocated_mib__gt=0).exists()
