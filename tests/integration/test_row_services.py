"""What people do: teams, members, quotas, jobs; and what is refused, in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time, timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from jobs.models import Job, JobEvent
from jobs.permissions import acts_as, may_see_job
from jobs.selectors import job_for, spec_of, visible_to
from jobs.services import archive_team, cancel, finish_drains, hold, release, requeue
from jobs.states import Actor
from jobs.submission import RESERVED_ENV, RESERVED_ENV_PREFIX, retry, submit, team_for
from quotas.limits import Amount, Quota, Window
from quotas.models import TeamQuota
from quotas.selectors import quota_tree
from quotas.services import remove_quota, set_quota, set_windows
from scheduler.backends import base
from scheduler.inventory.selectors import capacity_of, clusters_for
from scheduler.inventory.services import close_to, create_cluster, open_to
from scheduler.policies import policy_of, set_policy
from scheduler.reconcile import end_unlaunched
from scheduler.targets import target_for
from teams.models import Membership, Role, Team, User
from teams.problems import Conflict, Forbidden, Invalid, NotFound, Problem
from teams.selectors import Standing, revision, standing_of, teams_of
from teams.services import add_member, change_team, create_team, remove_member
from tests.integration.world import World, ended, make_world, node, runs

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return make_world(node("n1", gpus=8))


def refused(kind: type[Problem], code: str, act: Callable[[], object]) -> Problem:
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.code == code
    return caught.value


# --- Teams ---------------------------------------------------------------------------------------------------------


def test_names_of_teams(world: World) -> None:
    admin = world.admin
    team = create_team(author=admin, name="Vision Lab", parent=world.team, weight=2.0)
    assert (team.slug, team.parent, team.weight) == ("vision-lab", world.team, 2.0)
    assert str(refused(Conflict, "taken", lambda: create_team(author=admin, name="Vision Lab"))) == (
        "slug: there is already a team vision-lab"
    )
    refused(Conflict, "taken", lambda: create_team(author=admin, name="Vision Lab", slug="other"))
    refused(Invalid, "invalid", lambda: create_team(author=admin, name=""))
    refused(Invalid, "invalid", lambda: create_team(author=admin, name="x", slug="Has Space"))
    refused(Invalid, "invalid", lambda: create_team(author=admin, name="x", weight=0))
    refused(Forbidden, "admin_only", lambda: create_team(author=world.lead, name="x"))
    change_team(author=admin, team=team, name="Seeing", slug="seeing", weight=0.5)
    assert Team.objects.get(pk=team.pk).slug == "seeing"
    history = Team.pgh_event_model.objects.filter(pgh_obj=team).order_by("pgh_id")  # type: ignore[attr-defined]
    assert [(row.pgh_label, row.slug) for row in history] == [("insert", "vision-lab"), ("update", "seeing")]
    assert history[1].pgh_context.metadata["user"] == admin.pk


def test_every_change_of_numbers_is_a_new_revision(world: World) -> None:
    before = revision()
    create_team(author=world.admin, name="a")
    assert revision() == before + 1
    give(world, guaranteed=1)
    assert revision() == before + 2
    with pytest.raises(Conflict):
        create_team(author=world.admin, name="a")
    assert revision() == before + 2


def test_a_lead_leads_what_lies_below_and_nothing_else(world: World) -> None:
    below = create_team(author=world.admin, name="below", parent=world.team)
    deep = create_team(author=world.admin, name="deep", parent=below)
    beside = create_team(author=world.admin, name="beside")
    add_member(author=world.lead, team=deep, user=world.bob)
    refused(Forbidden, "lead_only", lambda: add_member(author=world.lead, team=beside, user=world.bob))
    refused(Forbidden, "lead_only", lambda: add_member(author=world.ann, team=world.team, user=world.bob))
    assert {team.slug for team in teams_of(world.lead)} == {world.team.slug, "below", "deep"}
    assert {team.slug for team in teams_of(world.bob)} == {world.team.slug, "deep"}
    assert teams_of(world.admin).count() == 4


def test_memberships_end_by_themselves(world: World) -> None:
    guest = User.objects.create_user("guest")
    add_member(author=world.lead, team=world.team, user=guest, until=timezone.now() + timedelta(hours=1))
    assert teams_of(guest).exists()
    assert standing_of(guest, timezone.now() + timedelta(hours=2)).member == frozenset()
    Membership.objects.filter(user=guest).update(until=timezone.now())
    refused(NotFound, "team_not_found", lambda: world.submit(user=guest))
    world.ann.is_active = False
    assert standing_of(world.ann) == Standing()


def test_archiving_a_team(world: World) -> None:
    """C63."""
    jobs = [world.submit(gpus=3) for _ in range(5)]
    live = world.take_over()
    world.cycle(live)
    world.launch()
    running = Job.objects.filter(state="starting")
    assert running.count() == 2
    world.see(*[runs(f"{job.key}.1") for job in running])

    def archive(drain: bool = False) -> Team:
        return archive_team(author=world.admin, team=world.team, drain=drain)

    problem = refused(Conflict, "team_has_jobs", archive)
    assert problem.facts == {"running": 2, "pending": 3}
    child = create_team(author=world.admin, name="child", parent=world.team)
    assert refused(Conflict, "team_has_children", lambda: archive(drain=True)).facts == {"children": ["child"]}
    archive_team(author=world.admin, team=child)
    assert archive(drain=True).archived_at is None
    assert Job.objects.filter(state="cancelled").count() == 3
    refused(Conflict, "team_closed", world.submit)
    refused(Conflict, "team_draining", lambda: add_member(author=world.admin, team=world.team, user=world.admin))
    assert finish_drains() == 0
    world.see(*[ended(f"{job.key}.1") for job in running.model.objects.filter(state="running")])
    assert finish_drains() == 1
    world.team.refresh_from_db()
    assert world.team.archived_at is not None
    assert {job.state for job in Job.objects.filter(pk__in=[job.pk for job in jobs])} == {"succeeded", "cancelled"}
    new = create_team(author=world.admin, name=world.team.name, slug=world.team.slug)
    assert (new.pk != world.team.pk, new.jobs.count(), world.team.jobs.count()) == (True, 0, 5)
    assert visible_to(world.ann).count() == 5  # history stays readable
    refused(NotFound, "team_not_found", lambda: team_for(world.ann, new.slug))


# --- Submitting ----------------------------------------------------------------------------------------------------


def test_which_team_a_job_is_for(world: World) -> None:
    """C03."""
    other = create_team(author=world.admin, name="Other", slug="other")
    assert team_for(world.ann, None) == world.team
    add_member(author=world.admin, team=other, user=world.ann)
    problem = refused(Invalid, "team_required", lambda: team_for(world.ann, None))
    assert problem.facts["teams"] == sorted(["other", world.team.slug])
    refused(NotFound, "team_not_found", lambda: team_for(world.bob, "other"))
    refused(NotFound, "team_not_found", lambda: team_for(world.bob, "nowhere"))
    job = world.submit(team=other)
    remove_member(author=world.admin, team=other, user=world.ann)
    refused(NotFound, "job_not_found", lambda: job_for(world.ann, job.key))
    refused(Forbidden, "job_not_yours", lambda: cancel(user=world.ann, job=job))
    assert Job.objects.get(pk=job.pk).team == other
    assert cancel(user=world.admin, job=job).state == "cancelled"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"gpus": -1}, "gpus: must be at least 1"),
        ({"nmae": "x"}, "nmae: is not a known key, did you mean name?"),
        ({"team": "else"}, "team: must be "),
        ({"user": "root"}, "user: must be "),
        ({"env": {"LD_PRELOAD": "x"}}, "env.LD_PRELOAD: is not a job's to set"),
        ({"env": {"ROTA_X": "x"}}, "env.ROTA_X: is not a job's to set"),
        ({"cwd": "../etc"}, 'cwd: must be an absolute path, not "../etc"'),
        ({"after": ["nobody"]}, "after[0]: the team "),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(world: World, body: dict[str, Any], message: str) -> None:
    target = target_for(user=world.ann, team=world.team)
    body = {"name": "x"} | body
    problem = refused(Invalid, "invalid", lambda: submit(user=world.ann, team=world.team, target=target, body=body))
    assert str(problem).startswith(message)
    assert str(problem).startswith(str(problem.facts["field"]))
    assert not Job.objects.exists()


def test_reserved_variables_are_those_of_the_backends() -> None:
    assert (RESERVED_ENV, RESERVED_ENV_PREFIX) == (base.RESERVED_ENV, base.RESERVED_ENV_PREFIX)


def test_one_key_one_job(world: World) -> None:
    target = target_for(user=world.ann, team=world.team)

    def post(user: User = world.ann, **more: Any) -> Any:
        body = {"name": "once", **more}
        return submit(user=user, team=world.team, target=target, body=body, idempotency_key="k")

    first = post()
    assert (first.created, post().created, post().job) == (True, False, first.job)
    assert refused(Conflict, "idempotency_key_reused", lambda: post(gpus=2)).facts == {"job": first.job.key}
    assert post(user=world.bob).job != first.job
    cancel(user=world.ann, job=first.job)
    assert post().job.state == "cancelled"


def test_jobs_that_wait_for_others(world: World) -> None:
    first = world.submit(name="train")
    second = world.submit(name="test", after=["train"])
    third = world.submit(name="ship", after=[second.key])
    live = world.take_over()
    assert world.cycle(live).started == (first.key,)
    assert live.roster.waiting(second.key).waits_for == ("train is queued",)  # type: ignore[union-attr]
    world.cycle(live)
    assert live.roster.waiting(second.key).waits_for == ("train is starting",)  # type: ignore[union-attr]
    world.launch()
    world.see(ended(f"{first.key}.1"))
    assert world.cycle(live).started == (second.key,)
    cancel(user=world.ann, job=second)
    world.cycle(live)
    assert live.roster.waiting(third.key).waits_for == ("test is stopping",)  # type: ignore[union-attr]
    end_unlaunched(world.cluster.pk, now=timezone.now(), chance=lambda: 0.5)
    world.cycle(live)
    assert live.roster.waiting(third.key).waits_for == ("test is cancelled",)  # type: ignore[union-attr]


def test_a_limit_of_waiting_jobs(world: World) -> None:
    set_policy(
        author=world.admin, cluster=world.cluster, policy={"backpressure": {"max_pending_per_team": 2}}, reason="t"
    )
    jobs = [world.submit() for _ in range(3)]
    assert [job.state for job in jobs] == ["queued", "queued", "rejected"]
    assert JobEvent.objects.get(job=jobs[2]).reason == f"jobs of {world.team.slug} waiting: 2, the limit is 2"


def test_a_broker_that_is_away_loses_nothing(world: World, django_capture_on_commit_callbacks: Any) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        django_capture_on_commit_callbacks(execute=True) as calls,
    ):
        patch.setattr(current_app, "send_task", _refuse)
        job = world.submit()
    assert len(calls) == 1
    assert Job.objects.get(pk=job.pk).state == "queued"


def _refuse(*_: Any, **__: Any) -> None:
    raise ConnectionError("nobody listens")


# --- Changing jobs -------------------------------------------------------------------------------------------------


def test_who_may_change_whose_job(world: World) -> None:
    job = world.submit(user=world.ann)
    outsider = User.objects.create_user("outsider")
    refused(Forbidden, "job_not_yours", lambda: cancel(user=world.bob, job=job))
    refused(Forbidden, "job_not_yours", lambda: cancel(user=outsider, job=job))
    assert job_for(world.bob, job.key) == job
    refused(NotFound, "job_not_found", lambda: job_for(outsider, job.key))
    hold(user=world.lead, job=job, why="budget")
    release(user=world.ann, job=job)
    cancel(user=world.admin, job=job)
    who = JobEvent.objects.filter(job=job).order_by("id").values_list("kind", "actor", "user_id")
    assert list(who) == [
        ("submit", "user", world.ann.pk),
        ("hold", "lead", world.lead.pk),
        ("release", "user", world.ann.pk),
        ("cancel", "admin", world.admin.pk),
    ]


@pytest.mark.parametrize(
    ("standing", "owner", "role", "sees"),
    [
        (Standing(), True, None, False),
        (Standing(member=frozenset({1})), True, Actor.USER, True),
        (Standing(member=frozenset({1})), False, None, True),
        (Standing(member=frozenset({2})), True, None, False),
        (Standing(lead=frozenset({1})), False, Actor.LEAD, True),
        (Standing(lead=frozenset({2})), False, None, False),
        (Standing(admin=True), False, Actor.ADMIN, True),
        (Standing(admin=True), True, Actor.USER, True),
    ],
)
def test_roles_are_a_table(standing: Standing, owner: bool, role: Actor | None, sees: bool) -> None:
    assert acts_as(standing, 7, team_id=1, owner_id=7 if owner else 8) is role
    assert may_see_job(standing, 1) is sees


def test_holding_and_releasing(world: World) -> None:
    job = world.submit()
    refused(Invalid, "invalid", lambda: hold(user=world.ann, job=job, why=" "))
    assert hold(user=world.ann, job=job, why="later").held_why == "later"
    refused(Conflict, "not_now", lambda: hold(user=world.ann, job=job, why="again"))
    live = world.take_over()
    assert world.cycle(live).started == ()
    released = release(user=world.ann, job=job)
    assert (released.state, released.held_why, released.submitted_at) == ("queued", "", job.submitted_at)
    assert world.cycle(live).started == (job.key,)


def test_a_requeued_job_keeps_its_place_in_the_line(world: World) -> None:
    job = world.submit(gpus=8)
    live = world.take_over()
    world.cycle(live)
    later = world.submit(gpus=8)
    refused(Forbidden, "admin_only", lambda: requeue(user=world.ann, job=job, why="x"))
    requeue(user=world.admin, job=job, why="maintenance")
    world.launch()
    assert world.see(complete=True).ended == ()
    assert [each.state for each in end_unlaunched(world.cluster.pk, now=timezone.now(), chance=lambda: 0.5)] == [
        "queued"
    ]
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.submitted_at, fresh.infrastructure_in_a_row) == (job.submitted_at, 1)
    assert world.cycle(live).started == (job.key,)
    assert live.roster.waiting(later.key) is not None


def test_what_has_ended_is_tried_again_as_a_new_job(world: World) -> None:
    job = world.submit(gpus=2, labels={"a": "b"})
    target = target_for(user=world.ann, team=world.team)
    refused(Conflict, "job_not_ended", lambda: retry(user=world.ann, job=job, target=target))
    cancel(user=world.ann, job=job)
    refused(Conflict, "job_ended", lambda: release(user=world.ann, job=job))
    again = retry(user=world.ann, job=job, target=target).job
    assert (again.retry_of, again.spec, again.state, Job.objects.get(pk=job.pk).state) == (
        job, job.spec, "queued", "cancelled",
    )  # fmt: skip
    assert spec_of(again).groups[0].gpus == 2


# --- Quotas, policies, clusters ------------------------------------------------------------------------------------


def give(world: World, team: Team | None = None, model: str = "H100", **numbers: Any) -> TeamQuota:
    amounts: dict[str, Any] = {
        name: value if isinstance(value, Amount | None) else Amount(value) for name, value in numbers.items()
    }
    return set_quota(
        author=world.admin, team=team or world.team, cluster_id=world.cluster.pk, quota=Quota(model, **amounts),
        capacity=capacity_of(world.cluster.pk), reason="test",
    )  # fmt: skip


def test_quotas_are_kept_and_read_as_a_tree(world: World) -> None:
    child = create_team(author=world.admin, name="child", parent=world.team, weight=3)
    give(world, guaranteed=6, limit=8, lend_limit=2)
    give(world, team=child, guaranteed=Amount(50, percent=True))
    refused(Conflict, "promise_broken", lambda: give(world, team=child, guaranteed=7))
    refused(Conflict, "promise_broken", lambda: give(world, guaranteed=3))
    refused(Invalid, "model_unknown", lambda: give(world, model="A100", guaranteed=1))
    refused(Invalid, "invalid", lambda: give(world, guaranteed=3, limit=2))
    refused(Invalid, "invalid", lambda: give(world, guaranteed=-1))
    refused(Invalid, "invalid", lambda: give(world, guaranteed=float("nan")))
    tree = quota_tree(world.cluster.pk)
    branch = tree.teams[tree.index["child"]]
    assert (branch.parent, branch.weight) == (world.team.slug, 3.0)
    assert branch.quotas == (Quota("H100", Amount(50, percent=True)),)
    assert tree.teams[tree.index[world.team.slug]].quotas == (Quota("H100", Amount(6), Amount(8), Amount(2)),)
    remove_quota(
        author=world.admin, team=child, cluster_id=world.cluster.pk, model="H100", capacity={"H100": 8}, reason="t"
    )
    assert quota_tree(world.cluster.pk).teams[tree.index["child"]].quotas == ()


def test_windows_are_checked_as_quotas_are(world: World) -> None:
    child = create_team(author=world.admin, name="child", parent=world.team)
    give(world, guaranteed=4)
    night = Window(frozenset(range(5)), time(22), time(6), "H100", Amount(4), reclaim_lead=600)

    def put(*windows: Window) -> Any:
        return set_windows(
            author=world.admin,
            team=child,
            cluster_id=world.cluster.pk,
            windows=windows,
            capacity={"H100": 8},
            reason="t",
        )

    put(night)
    tree = quota_tree(world.cluster.pk)
    assert tree.teams[tree.index["child"]].windows == (night,)
    too_much = Window(night.days, night.start, night.end, "H100", Amount(5))
    refused(Conflict, "promise_broken", lambda: put(too_much))
    refused(Invalid, "invalid", lambda: put(Window(night.days, time(6), time(6), "H100")))
    refused(Invalid, "invalid", lambda: put(Window(frozenset(), time(6), time(7), "H100")))
    put()
    assert not quota_tree(world.cluster.pk).has_windows


def test_policies_are_versions(world: World) -> None:
    one = set_policy(author=world.admin, cluster=world.cluster, policy={"retry": {"max": 1}}, reason="less")
    two = set_policy(author=world.admin, cluster=world.cluster, policy={}, reason="as before")
    world.cluster.refresh_from_db()
    assert (one.number, two.number, world.cluster.policy_id) == (1, 2, two.pk)
    assert policy_of(world.cluster).retry.max == 3
    problem = refused(
        Invalid,
        "invalid",
        lambda: set_policy(author=world.admin, cluster=world.cluster, policy={"retry": {"max": -1}}, reason="x"),
    )
    assert str(problem) == "retry.max: must be at least 0"
    refused(Forbidden, "admin_only", lambda: set_policy(author=world.ann, cluster=world.cluster, policy={}, reason="x"))


def test_a_cluster_is_open_to_those_it_was_opened_to(world: World) -> None:
    local = create_cluster(slug="local", name="This machine", backend="local")
    refused(Forbidden, "cluster_closed", lambda: target_for(user=world.ann, team=world.team, cluster="local"))
    refused(NotFound, "cluster_not_found", lambda: target_for(user=world.ann, team=world.team, cluster="nowhere"))
    assert target_for(user=world.admin, team=world.team, cluster="local").cluster_id == local.pk
    assert target_for(user=world.ann, team=world.team).cluster_id == world.cluster.pk
    child = create_team(author=world.admin, name="child", parent=world.team)
    open_to(author=world.admin, cluster=local, team=world.team, default=True)
    assert target_for(user=world.lead, team=child).cluster_id == local.pk
    assert set(clusters_for(world.ann, world.team)) == {local, world.cluster}
    close_to(author=world.admin, cluster=local, team=world.team)
    assert target_for(user=world.lead, team=child).cluster_id == world.cluster.pk
    refused(Forbidden, "admin_only", lambda: open_to(author=world.lead, cluster=local, team=world.team))


def test_roles_of_members(world: World) -> None:
    refused(
        Invalid, "role_unknown", lambda: add_member(author=world.lead, team=world.team, user=world.ann, role="king")
    )
    add_member(author=world.lead, team=world.team, user=world.ann, role=Role.LEAD)
    assert world.ann.has_perm("teams.manage_members", world.team)
    assert not world.bob.has_perm("teams.manage_members", world.team)
    assert world.bob.has_perm("jobs.see", world.submit(user=world.ann))
