"""Each page for each kind of person: who gets in, what is shown, what may be done, how many queries it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend.urls import urlpatterns
from jobs.models import Job
from jobs.services import cancel
from scheduler.connect import user_of_jobs
from scheduler.inventory.models import Cluster, Node
from scheduler.inventory.services import create_cluster
from teams.models import Role, User
from teams.services import add_member, create_team
from tests.integration.world import World, ended, live_attempt, make_world, node, runs

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

Get = Callable[..., Any]


@pytest.fixture
def world(services: Any) -> Iterator[World]:
    cache.clear()
    yield make_world(node("n1", 4), node("n2", 4))
    cache.clear()


def client_of(user: User, language: str = "en") -> Client:
    client = Client(headers={"accept-language": language})
    client.force_login(user)
    return client


def addresses(world: World, job: Job) -> dict[str, str]:
    """One address of every page."""
    cluster, key = world.cluster.slug, job.key
    return {
        "dashboard": "/", "jobs": "/jobs/", "queue": "/queue/", "submit": "/submit/", "job": f"/jobs/{key}/",
        "job_log": f"/jobs/{key}/log", "job_log_file": f"/jobs/{key}/log.txt", "clusters": "/clusters/",
        "cluster": f"/clusters/{cluster}/", "node": f"/clusters/{cluster}/nodes/n1/", "nodes": "/nodes/",
        "teams": "/teams/", "team": f"/teams/{world.team.slug}/", "events": "/events/", "profile": "/profile/",
        "tokens": "/tokens/", "help": "/help/",
    }  # fmt: skip


ACTIONS = {
    "cancel_many": "/jobs/cancel", "convert": "/submit/convert", "job_retry": "/jobs/x/retry",
    "job_action": "/jobs/x/cancel", "cluster_access": "/clusters/x/access",
    "node_action": "/clusters/x/nodes/y/cordon", "team_create": "/teams/new", "member": "/teams/x/member",
}  # fmt: skip


def test_this_module_knows_every_address(world: World) -> None:
    names = {pattern.name for pattern in urlpatterns}
    assert names == {*addresses(world, world.submit()), *ACTIONS}


def test_strangers_are_sent_to_the_sign_in(world: World) -> None:
    for name, address in (addresses(world, world.submit()) | ACTIONS).items():
        for method in (Client().get, Client().post):
            answer = method(address)
            assert (name, answer.status_code) == (name, 302)
            assert answer.headers["Location"].startswith("/accounts/login/?next=")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("who", ["admin", "lead", "ann"])
def test_every_page_opens(world: World, who: str, language: str) -> None:
    client = client_of(getattr(world, who), language)
    for address in addresses(world, world.submit(gpus=2)).values():
        answer = client.get(address)
        assert answer.status_code == 200, address
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        if answer.headers["Content-Type"].startswith("text/html"):
            assert f'<html lang="{language}"' in answer.content.decode()


def test_a_live_part_is_the_page_without_its_frame(world: World) -> None:
    client = client_of(world.ann)
    part = client.get("/jobs/", headers={"x-rota-live": "1"}).content.decode()
    assert 'id="live"' in part
    assert "<html" not in part


def test_a_post_without_the_token_is_refused_in_words(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.ann)
    answer = client.post("/submit/", {"name": "x"})
    assert answer.status_code == 403
    assert "That took too long" in answer.content.decode()


def test_what_is_not_there_or_not_ones_own_is_not_found(world: World) -> None:
    outsider = User.objects.create_user("outsider")
    job = world.submit()
    for address in ("/nothing", f"/jobs/{job.key}/", f"/jobs/{job.key}/log", f"/teams/{world.team.slug}/",
                    "/clusters/none/", f"/clusters/{world.cluster.slug}/nodes/none/"):  # fmt: skip
        assert client_of(outsider).get(address).status_code == 404, address
    assert client_of(outsider).post(f"/jobs/{job.key}/cancel").status_code == 404
    assert "job-" not in client_of(outsider).get("/jobs/").content.decode()
    assert job.name not in client_of(outsider).get("/events/").content.decode()


@pytest.mark.parametrize("address", ["/jobs/?text=%00", "/nodes/?text=a%00", "/events/?team=%00", "/queue/?%00=1"])
def test_what_is_no_text_is_refused_in_words(world: World, address: str) -> None:
    answer = client_of(world.ann).get(address)
    assert (answer.status_code, "Not understood" in answer.content.decode()) == (400, True)
    assert client_of(world.admin).post("/teams/new", {"name": "a\0b"}).status_code == 400


def test_an_endless_number_in_an_address_is_no_number(world: World) -> None:
    for address in ("/queue/", "/nodes/", f"/clusters/{world.cluster.slug}/nodes/"):
        assert client_of(world.ann).get(address, {"from": "9" * 5000}).status_code in (200, 404), address


# --- queries ---


@pytest.mark.parametrize(
    "name", ["dashboard", "jobs", "queue", "job", "cluster", "node", "nodes", "teams", "team", "events"]
)
def test_queries_do_not_grow_with_what_there_is(world: World, name: str) -> None:
    job = world.submit(gpus=1)
    address, client = addresses(world, job)[name], client_of(world.lead)

    def count() -> int:
        cache.clear()
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        return len(queries)

    client.get(address)
    before = count()
    for number in range(7):
        world.submit(gpus=1 + number % 3, user=(world.ann, world.bob)[number % 2])
    create_team(author=world.admin, name=f"Another {name}", parent=world.team)
    live = world.take_over()
    world.cycle(live)
    for key in world.launch():
        world.see(runs(key))
    after = count()
    assert after <= before + 3, "a few more for what only something that runs has, none for each row"
    for _ in range(6):
        world.submit(gpus=1)
    world.cycle(live)
    assert count() == after
    assert after <= 24


def test_pages_of_jobs_follow_on_from_another(world: World) -> None:
    moment = timezone.now()
    for number in range(120):
        job = world.submit()
        Job.objects.filter(pk=job.pk).update(submitted_at=moment - timedelta(seconds=number // 3), name=f"n{number:03}")
    client, seen, address = client_of(world.ann), [], "/jobs/"
    while address:
        page = client.get(address).context["page"]
        seen += [job.name for job in page.jobs]
        address = f"/jobs/?before={page.older}" if page.older else ""
    assert len(seen) == len(set(seen)) == 120
    second = client.get(f"/jobs/?before={client.get('/jobs/').context['page'].older}").context["page"]
    back = client.get(f"/jobs/?after={second.newer}").context["page"]
    assert [job.name for job in back.jobs] == seen[:50]


def test_filters_and_chips(world: World) -> None:
    mine, other = world.submit(name="alpha-one"), world.submit(world.bob, name="beta")
    cancel(user=world.ann, job=mine)
    client = client_of(world.lead)

    def names(query: str) -> list[str]:
        return [row["job"].name for row in client.get(f"/jobs/?{query}").context["rows"]]

    assert names("text=alpha") == ["alpha-one"]
    assert names(f"text={other.key}") == ["beta"]
    assert names(f"user={world.bob.username}") == ["beta"]
    assert names("state=cancelled") == ["alpha-one"]
    assert names("state=ended&team=none") == []
    assert names("state=nonsense") == ["beta", "alpha-one"]
    chips = {chip["state"]: chip["count"] for chip in client.get("/jobs/").context["chips"]}
    assert chips == {"queued": 1, "cancelled": 1}


# --- a job ---


def test_a_waiting_job_says_why_in_both_languages(world: World) -> None:
    live = world.take_over()
    first = world.submit(gpus=3)
    second = world.submit(gpus=8, replicas=1, name="big")
    world.cycle(live)
    assert first.pk
    page = client_of(world.ann).get(f"/jobs/{second.key}/")
    assert page.context["story"].sentence == f"Waiting: {page.context['story'].wait.sentence}"
    assert "8" in page.context["story"].wait.sentence
    chinese = client_of(world.ann, "zh-hans").get(f"/jobs/{second.key}/").context["story"]
    assert chinese.sentence.startswith("等待中：")


def test_the_life_of_a_job_is_told(world: World) -> None:
    live, job, client = world.take_over(), world.submit(gpus=2, retries=0), client_of(world.ann)

    def sentence() -> str:
        return str(client.get(f"/jobs/{job.key}/").context["story"].sentence)

    world.cycle(live)
    assert sentence() == "Starting on n1"
    world.launch()
    world.see(runs(live_attempt(job)))
    assert sentence() == "Running on n1"
    world.see(ended(live_attempt(job), 3, note="out of memory"))
    assert sentence() == "Failed with exit code 3: it failed, and no retry is left (limit 0): out of memory"
    page = client.get(f"/jobs/{job.key}/")
    kinds = [event.kind for event in page.context["story"].events]
    assert kinds == ["fail", "run", "place", "submit"]
    assert page.context["may"] == {"cancel": False, "hold": False, "release": False, "requeue": False, "retry": True}


def test_what_people_may_do_with_a_job(world: World) -> None:
    job, client = world.submit(), client_of(world.ann)
    client.post(f"/jobs/{job.key}/hold", {"why": ""})
    job.refresh_from_db()
    assert job.state == "queued", "a hold without a why does nothing"
    client.post(f"/jobs/{job.key}/hold", {"why": "data is missing"})
    job.refresh_from_db()
    assert (job.state, job.held_why) == ("held", "data is missing")
    client_of(world.bob).post(f"/jobs/{job.key}/release")
    job.refresh_from_db()
    assert job.state == "held", "another member may not"
    client_of(world.lead).post(f"/jobs/{job.key}/release")
    job.refresh_from_db()
    assert job.state == "queued"
    client.post(f"/jobs/{job.key}/cancel")
    job.refresh_from_db()
    assert job.state == "cancelled"
    answer = client.post(f"/jobs/{job.key}/retry")
    assert Job.objects.get(key=answer.headers["Location"].split("/")[-2]).retry_of == job


def test_many_are_cancelled_and_each_that_may_not_be_is_named(world: World) -> None:
    mine, others = [world.submit() for _ in range(3)], world.submit(world.bob)
    answer = client_of(world.ann).post("/jobs/cancel", {"job": [job.key for job in [*mine, others]]}, follow=True)
    said = [str(message) for message in answer.context["messages"]]
    assert said == [f"{others.name}: the job {others.key} is not yours to change", "3 jobs are being cancelled."]
    assert Job.objects.filter(state="cancelled").count() == 3


def test_an_action_returns_to_our_own_pages_only(world: World) -> None:
    client = client_of(world.ann)
    for wanted, given in (("/queue/", "/queue/"), ("https://elsewhere.example/", "/jobs/"), ("//elsewhere", "/jobs/")):
        assert client.post("/jobs/cancel", {"next": wanted}).headers["Location"] == given


# --- submitting ---


FIELDS = {
    "name": "from-form",
    "command": "python3 -c 'print(1)'",
    "gpus": "2",
    "priority": "high",
    "has_preemptible": "1",
}


def test_the_form_submits_once_however_often_it_is_sent(world: World) -> None:
    client = client_of(world.ann)
    sent = FIELDS | {"token": client.get("/submit/").context["token"], "team": world.team.slug}
    first, second = client.post("/submit/", sent), client.post("/submit/", sent)
    job = Job.objects.get(name="from-form")
    assert first.headers["Location"] == second.headers["Location"] == f"/jobs/{job.key}/"
    assert job.spec["command"] == ["python3", "-c", "print(1)"]
    assert (job.gpus, job.priority, job.preemptible) == (2, 900, False)


@pytest.mark.parametrize(
    ("changes", "field", "en", "zh"),
    [
        ({"gpus": "0"}, "gpus", "must be at least 1", "不能小于 1"),
        ({"gpus": "two"}, "gpus", 'must be a whole number, not "two"', '必须是整数，而不是 "two"'),
        ({"name": ""}, "name", "is missing", "缺少此项"),
        ({"env": "CUDA_VISIBLE_DEVICES=0"}, "env", "is not a job's to set", "作业不能设置此项"),
        ({"time_limit": "soon"}, "time_limit", "must be a duration", "必须是时长"),
        ({"command": "echo 'a"}, "command", "a quotation mark is not closed", "引号没有闭合"),
        ({"team": "nobody"}, "team", 'there is no team "nobody"', '没有团队 "nobody"'),
        ({"after": "ghost"}, "after", "has no job", "没有作业"),
        ({"priority": "urgent"}, "priority", "must be one of", "必须是"),
    ],
)  # fmt: skip
def test_an_error_stands_at_its_field(world: World, changes: dict[str, str], field: str, en: str, zh: str) -> None:
    for language, said in (("en", en), ("zh-hans", zh)):
        answer = client_of(world.ann, language).post("/submit/", FIELDS | {"team": world.team.slug} | changes)
        assert answer.status_code == 422
        assert said in answer.context["errors"][field], answer.context["errors"]
        assert f'id="e-{field}"' in answer.content.decode()
        assert not Job.objects.exists()


def test_yaml_submits_too_and_a_copy_fills_the_form(world: World) -> None:
    client = client_of(world.ann)
    text = f"name: by-yaml\nteam: {world.team.slug}\ngpus: 1\ncommand: [echo, 'a b']\nlabels: {{x: y}}\n"
    client.post("/submit/", {"mode": "yaml", "yaml": text})
    job = Job.objects.get(name="by-yaml")
    fields = client.get(f"/submit/?copy={job.key}").context["fields"]
    assert (fields["command"], fields["labels"], fields["team"]) == ("echo 'a b'", "x=y", world.team.slug)
    both = client.post("/submit/convert", {"mode": "yaml", "yaml": text}).json()["fields"]
    assert both["command"] == "echo 'a b'"
    assert "by-yaml" in client.post("/submit/convert", both).json()["yaml"]
    assert client.post("/submit/convert", {"mode": "yaml", "yaml": "["}).status_code == 422


# --- hardware, teams ---


def test_only_admins_cordon_and_always_with_a_reason(world: World) -> None:
    address = f"/clusters/{world.cluster.slug}/nodes/n1"
    client_of(world.lead).post(f"{address}/cordon", {"why": "mine"})
    client_of(world.admin).post(f"{address}/cordon", {"why": ""})
    assert Node.objects.get(name="n1").state == "ready"
    client_of(world.admin).post(f"{address}/cordon", {"why": "fans"})
    found = Node.objects.get(name="n1")
    assert (found.state, found.cordon_why, found.cordon_by) == ("cordoned", "fans", world.admin)
    assert "fans" in client_of(world.ann).get(f"{address}/").content.decode()
    client_of(world.admin).post(f"{address}/uncordon")
    assert Node.objects.get(name="n1").state == "ready"


def test_the_local_cluster_says_who_may_use_it(world: World) -> None:
    create_cluster(slug="local", name="This machine", backend="local")
    client = client_of(world.admin)
    assert f"as its user {user_of_jobs()}," in client.get("/clusters/local/").content.decode()
    assert user_of_jobs() != "root"
    client_of(world.ann).post("/clusters/local/access", {"team": world.team.slug})
    assert not Cluster.objects.get(slug="local").access.exists()
    client.post("/clusters/local/access", {"team": world.team.slug, "default": "on"})
    assert Cluster.objects.get(slug="local").access.get().is_default
    client.post("/clusters/local/access", {"team": world.team.slug, "close": "1"})
    assert not Cluster.objects.get(slug="local").access.exists()


def test_a_job_of_another_team_is_not_named_on_its_node(world: World) -> None:
    other = create_team(author=world.admin, name="Others")
    user = User.objects.create_user("other")
    add_member(author=world.admin, team=other, user=user)
    job, live = world.submit(gpus=4, name="secret-project"), world.take_over()
    world.cycle(live)
    assert job.pk
    page = f"/clusters/{world.cluster.slug}/nodes/n1/"
    assert "secret-project" in client_of(world.ann).get(page).content.decode()
    text = client_of(user).get(page).content.decode()
    assert "secret-project" not in text
    assert text.count("a job of another team") == 4


def test_leads_look_after_members(world: World) -> None:
    new = User.objects.create_user("newcomer")
    address = f"/teams/{world.team.slug}/member"
    client_of(world.ann).post(address, {"user": "newcomer"})
    assert not new.memberships.exists()
    client_of(world.lead).post(address, {"user": "newcomer", "role": Role.LEAD, "until": "2099-12-31"})
    membership = new.memberships.get()
    assert (membership.role, membership.until is not None and membership.until.year) == ("lead", 2099)
    answer = client_of(world.lead).post(address, {"user": "nobody-here"}, follow=True)
    assert [str(message) for message in answer.context["messages"]] == ["user: there is no user nobody-here"]
    client_of(world.lead).post(address, {"user": "newcomer", "remove": "1"})
    assert not new.memberships.exists()


def test_the_dashboard_counts(world: World) -> None:
    live = world.take_over()
    for gpus in (3, 3, 1, 4):
        world.submit(gpus=gpus)
    world.cycle(live)
    page = client_of(world.admin).get("/").context
    assert (page["running"], page["waiting"]) == (3, 1)
    assert page["whole"]["cards"]["held"] == 7.0
    assert [(row["code"], row["jobs"]) for row in page["reasons"]] == [("gpus", 1)]


def test_a_one_time_password_leads_to_its_change_and_nowhere_else(world: World) -> None:
    user = User.objects.create_user("fresh", password="given out once 1", must_change_password=True)
    client = client_of(user)
    assert client.get("/").headers["Location"] == "/accounts/password/change/"
    page = client.get("/accounts/password/change/").content.decode()
    assert "You signed in with a one-time password" in page
    assert "password/reset" not in page, "who has just been given a password is not asked whether it is forgotten"
    new = {"oldpassword": "given out once 1", "password1": "my very own 2", "password2": "my very own 2"}
    assert client.post("/accounts/password/change/", new).headers["Location"] == "/"
    assert client.get("/").status_code == 200
