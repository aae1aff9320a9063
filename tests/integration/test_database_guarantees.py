"""What the database itself refuses, asked with plain SQL and with the ORM, past all services."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from jobs.models import Attempt, Job, JobEvent
from quotas.models import QuotaWindow, TeamQuota
from scheduler.inventory.models import Allocation, Cluster, Gpu, Node, Pool
from scheduler.models import LaneHold, PolicyVersion
from teams.models import Membership, Revision, Team
from tests.integration.world import World, make_world, node

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return make_world(node("n1", gpus=2))


def attempt_of(world: World, **values: object) -> Attempt:
    job = world.submit()
    return Attempt.objects.create(job=job, number=1, key=f"{job.key}.1", **values)


def hold(attempt: Attempt, gpu: Gpu, mib: int = 0) -> Allocation:
    return Allocation.objects.create(
        attempt=attempt, node=gpu.node, gpu=gpu, group="main", replica=0, slot=gpu.index, mib=mib
    )


def refused(act: Callable[[], object], by: str) -> None:
    with pytest.raises(DatabaseError, match=by), transaction.atomic():
        act()


def sql(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_a_whole_gpu_has_one_live_allocation(world: World) -> None:
    gpu = Gpu.objects.filter(cluster=world.cluster).first()
    assert gpu is not None
    first, second = attempt_of(world), attempt_of(world)
    held = hold(first, gpu)
    refused(lambda: hold(second, gpu), "allocation_whole_gpu_once|gpu_not_over_committed")
    refused(lambda: hold(second, gpu, mib=1), "gpu_not_over_committed")
    Allocation.objects.filter(pk=held.pk).update(released_at=timezone.now())
    hold(second, gpu)
    refused(lambda: sql("UPDATE inventory_allocation SET released_at = NULL WHERE id = %s", held.pk), "once|over_comm")


def test_the_books_of_a_gpu_follow_its_allocations(world: World) -> None:
    gpu = Gpu.objects.filter(cluster=world.cluster).first()
    assert gpu is not None

    def books() -> tuple[int, bool]:
        gpu.refresh_from_db()
        return gpu.allocated_mib, gpu.whole

    first, second = attempt_of(world), attempt_of(world)
    slice_one, slice_two = hold(first, gpu, mib=10_000), hold(second, gpu, mib=gpu.capacity_mib - 10_000)
    assert books() == (gpu.capacity_mib, False)
    refused(lambda: hold(attempt_of(world), gpu, mib=1), "gpu_not_over_committed")
    refused(lambda: hold(attempt_of(world), gpu), "gpu_not_over_committed")
    slice_one.delete()
    assert books() == (gpu.capacity_mib - 10_000, False)
    refused(lambda: hold(attempt_of(world), gpu), "gpu_not_over_committed")
    Allocation.objects.filter(pk=slice_two.pk).update(released_at=timezone.now())
    assert books() == (0, False)
    Allocation.objects.filter(pk=slice_two.pk).update(released_at=timezone.now())  # again: nothing happens
    assert books() == (0, False)
    whole = hold(first, gpu)
    assert books() == (gpu.capacity_mib, True)
    other = Gpu.objects.filter(cluster=world.cluster).exclude(pk=gpu.pk).get()
    Allocation.objects.filter(pk=whole.pk).update(gpu=other, slot=other.index)
    other.refresh_from_db()
    assert (books(), other.whole) == ((0, False), True)


def test_promised_memory_stays_within_the_card(world: World) -> None:
    gpu = Gpu.objects.filter(cluster=world.cluster).first()
    assert gpu is not None
    for values in (
        {"allocated_mib": gpu.capacity_mib + 1},
        {"allocated_mib": -1},
        {"whole": True},
        {"capacity_mib": 0},
    ):
        refused(partial(Gpu.objects.filter(pk=gpu.pk).update, **values), "gpu_")
    hold(attempt_of(world), gpu, mib=5_000)
    refused(lambda: Gpu.objects.filter(pk=gpu.pk).update(capacity_mib=4_000), "gpu_not_over_committed")


def test_a_provisional_slot_is_given_once(world: World) -> None:
    machine = Node.objects.get(cluster=world.cluster)
    rows = {"node": machine, "group": "main", "replica": 0, "slot": 1}
    Allocation.objects.create(attempt=attempt_of(world), **rows)
    other = attempt_of(world)
    refused(lambda: Allocation.objects.create(attempt=other, **rows), "allocation_whole_slot_once")


def test_a_job_has_one_live_attempt(world: World) -> None:
    attempt = attempt_of(world)
    again = {"job": attempt.job, "number": 2, "key": f"{attempt.job.key}.2"}
    refused(lambda: Attempt.objects.create(**again), "attempt_one_live")
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=timezone.now(), end="lost")
    Attempt.objects.create(**again)
    refused(lambda: Attempt.objects.filter(pk=attempt.pk).update(ended_at=None, end=""), "attempt_one_live")
    refused(lambda: Attempt.objects.filter(pk=attempt.pk).update(number=2), "attempt_number_once")
    refused(lambda: Attempt.objects.filter(pk=attempt.pk).update(end=""), "attempt_end_says_how")
    early = timezone.now() - timedelta(days=1)
    refused(lambda: Attempt.objects.filter(pk=attempt.pk).update(ended_at=early), "attempt_ends_after_start")
    refused(lambda: Attempt.objects.filter(pk=attempt.pk).update(stop_at=early), "attempt_stop_says_why")


@pytest.mark.parametrize("to", ["succeeded", "running", "stopping", "rejected"])
def test_the_state_machine_is_kept_by_the_database(world: World, to: str) -> None:
    job = world.submit()
    refused(lambda: sql("UPDATE jobs_job SET state = %s, finished_at = now() WHERE id = %s", to, job.pk), "transition")
    refused(lambda: sql("UPDATE jobs_job SET state = %s WHERE id = %s", to, job.pk), "transition|terminal")


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
def test_a_terminal_state_never_changes(world: World, end: str) -> None:
    job = world.submit()
    sql("UPDATE jobs_job SET state = 'starting' WHERE id = %s", job.pk)
    sql("UPDATE jobs_job SET state = %s, finished_at = now() WHERE id = %s", end, job.pk)
    for to in ("queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "held", "rejected"):
        if to != end:
            refused(partial(sql, "UPDATE jobs_job SET state = %s WHERE id = %s", to, job.pk), "transition|terminal")


def test_jobs_say_what_their_state_demands(world: World) -> None:
    job = world.submit()
    for values, by in (
        ({"state": "held"}, "job_held_says_why"),
        ({"held_why": "because"}, "job_held_says_why"),
        ({"finished_at": timezone.now()}, "job_finished_when_terminal"),
        ({"name": ""}, "job_named"),
        ({"priority": 1001}, "job_priority_bounded"),
    ):
        refused(partial(Job.objects.filter(pk=job.pk).update, **values), by)
    other = world.submit()
    Job.objects.filter(pk=job.pk).update(idempotency_key="k")
    refused(lambda: Job.objects.filter(pk=other.pk).update(idempotency_key="k"), "job_idempotency_key_once")


def test_events_are_only_ever_added(world: World) -> None:
    job = world.submit()
    event = JobEvent.objects.get(job=job)
    refused(lambda: sql("UPDATE jobs_jobevent SET reason = 'x' WHERE id = %s", event.pk), "append_only")
    refused(lambda: sql("DELETE FROM jobs_jobevent WHERE id = %s", event.pk), "append_only")
    refused(event.delete, "append_only")
    history = Team.pgh_event_model.objects.filter(pgh_obj=world.team).first()  # type: ignore[attr-defined]
    refused(lambda: type(history).objects.filter(pk=history.pk).update(slug="other"), "append_only")


def test_live_teams_have_names_of_their_own(world: World) -> None:
    slug = world.team.slug
    refused(lambda: Team.objects.create(slug=slug, name="Other"), "team_live_slug")
    refused(lambda: Team.objects.create(slug="other", name=world.team.name), "team_live_name")
    refused(lambda: Team.objects.create(slug="Not A Slug", name="Other"), "team_slug_form")
    refused(lambda: Team.objects.filter(pk=world.team.pk).update(parent=world.team), "team_not_its_own_parent")
    for weight in (0, -1, float("inf"), float("nan")):
        refused(partial(Team.objects.filter(pk=world.team.pk).update, weight=weight), "team_weight")
    Team.objects.filter(pk=world.team.pk).update(archived_at=timezone.now())
    Team.objects.create(slug=slug, name=world.team.name)
    refused(lambda: Membership.objects.create(team=world.team, user=world.ann), "membership_once")
    refused(lambda: Membership.objects.filter(user=world.ann).update(role="king"), "membership_role_known")
    refused(lambda: Revision.objects.create(id=2), "revision_is_one_row")


@pytest.mark.parametrize(
    ("values", "by"),
    [
        ({"guaranteed": -1}, "guaranteed_sensible"),
        ({"guaranteed": 101, "guaranteed_percent": True}, "guaranteed_sensible"),
        ({"limit": float("inf")}, "limit_sensible"),
        ({"limit": float("nan")}, "limit_sensible"),
        ({"lend_limit": -0.5}, "lend_limit_sensible"),
    ],
)
def test_quotas_are_sensible_numbers(world: World, values: dict[str, float | bool], by: str) -> None:
    TeamQuota.objects.create(team=world.team, cluster=world.cluster, model="H100", limit=250)
    refused(lambda: TeamQuota.objects.filter(team=world.team).update(**values), by)
    refused(lambda: TeamQuota.objects.create(team=world.team, cluster=world.cluster, model="H100"), "quota_once")


def test_windows_have_length_and_days(world: World) -> None:
    rows = {"team": world.team, "cluster": world.cluster, "start": "22:00", "end": "06:00"}
    QuotaWindow.objects.create(**rows, days=[0, 4])
    for values, by in (
        ({"end": "22:00"}, "has_length"),
        ({"days": [7]}, "window_days"),
        ({"days": []}, "window_days"),
        ({"reclaim_lead_s": -1}, "window_lead"),
    ):
        refused(partial(QuotaWindow.objects.filter(team=world.team).update, **values), by)


def test_clusters_nodes_and_cards_are_told_apart(world: World) -> None:
    machine = Node.objects.get(cluster=world.cluster)
    for act, by in (
        (lambda: Cluster.objects.create(slug="x", name="X", backend="local", is_default=True), "cluster_one_default"),
        (lambda: Cluster.objects.create(slug="x", name="X", backend="magic"), "cluster_backend_known"),
        (lambda: Node.objects.create(cluster=world.cluster, name="n1"), "node_name_once"),
        (lambda: Node.objects.filter(pk=machine.pk).update(cordon="cordoned"), "node_cordon_says_who_and_why"),
        (lambda: Node.objects.filter(pk=machine.pk).update(contact="odd"), "node_contact_known"),
        (lambda: Gpu.objects.filter(node=machine).update(index=0), "gpu_index_once"),
        (lambda: Gpu.objects.filter(node=machine).update(uuid="same"), "gpu_uuid_once"),
        (lambda: Gpu.objects.filter(node=machine).update(state="odd"), "gpu_state_known"),
        (lambda: Pool.objects.create(cluster=world.cluster, model="*"), "pool_model_named"),
        (
            lambda: LaneHold.objects.create(cluster=world.cluster, lane="l", code="odd", since=timezone.now()),
            "code_known",
        ),
        (
            lambda: PolicyVersion.objects.create(cluster=world.cluster, number=1, policy={}, reason=""),
            "policy_says_why",
        ),
    ):
        refused(act, by)


def test_the_state_of_a_node_follows_from_what_is_known(world: World) -> None:
    rows = Node.objects.filter(cluster=world.cluster)
    who = {"cordon_actor": "admin", "cordon_why": "fan", "cordon_at": timezone.now()}
    for values, state in (
        ({"contact": "syncing"}, "syncing"),
        ({"contact": "ready", "cordon": "cordoned", **who}, "cordoned"),
        ({"cordon": "draining"}, "draining"),
        ({"contact": "down"}, "down"),
        ({"contact": "ready"}, "draining"),
    ):
        rows.update(**values)
        assert rows.get().state == state


def test_a_team_with_jobs_cannot_be_deleted(world: World) -> None:
    world.submit()
    with pytest.raises(IntegrityError), transaction.atomic():
        sql("SET CONSTRAINTS ALL IMMEDIATE; DELETE FROM teams_team WHERE id = %s", world.team.pk)
