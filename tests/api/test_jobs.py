"""Jobs over the API: submitted, seen, changed, explained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from api.scopes import Scope
from jobs.models import Job
from teams.services import add_member, create_team
from tests.api.asking import Asker, asker, fresh_world
from tests.integration.world import World, ended, node, runs
from tests.services import Services

HELLO = {"name": "hello", "gpus": 1, "command": ["true"]}


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


@pytest.fixture
def ann(world: World) -> Asker:
    return asker(world.ann)


def test_a_job_is_taken_in_with_what_was_asked_for(world: World, ann: Asker) -> None:
    body = HELLO | {"priority": "high", "labels": {"a": "b"}, "time_limit": "2h", "env": {"K": "V"}}
    answer = ann.ask("POST", "/jobs/", body)
    job = json.loads(answer.content)
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['key']}/"
    assert (job["state"], job["priority"], job["gpus"], job["time_limit_s"]) == ("queued", 900, 1, 7200.0)
    assert (job["team"], job["user"], job["cluster"]) == (world.team.slug, world.ann.username, world.cluster.slug)
    assert job["labels"] == {"a": "b"}
    assert job["spec"] == body
    assert job["submitted_at"].endswith("Z")
    assert job["reason"]["code"] == "turn"
    assert ann.get(f"/jobs/{job['key']}/") == job


def test_both_spellings_of_an_address_are_one(ann: Asker) -> None:
    key = ann.post("/jobs", HELLO, status=201)["key"]
    assert ann.get(f"/jobs/{key}")["key"] == ann.get(f"/jobs/{key}/")["key"] == key


@pytest.mark.parametrize(("letters", "status"), [(1, 201), (63, 201), (64, 201), (200, 201), (201, 400)])
def test_names_of_up_to_200_letters_are_taken(ann: Asker, letters: int, status: int) -> None:
    """C59."""
    said = ann.post("/jobs/", HELLO | {"name": "n" * letters}, status=status)
    if status == 400:
        assert said["code"] == "invalid"
        assert said["errors"] == [{"path": "name", "message": "must not be longer than 200 characters"}]
        assert not Job.objects.exists()
    else:
        assert said["name"] == "n" * letters


def test_names_that_only_differ_late_are_two_jobs(ann: Asker) -> None:
    first, second = (ann.post("/jobs/", HELLO | {"name": "n" * 63 + end}, status=201) for end in ("a", "b"))
    assert first["key"] != second["key"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"gpus": 0}, "gpus"),
        ({"gpus": "many"}, "gpus"),
        ({"groups": [{"name": "a"}, {"name": "b", "vram_gib": -1}]}, "groups[1].vram_gib"),
        ({"colour": "red"}, "colour"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env.CUDA_VISIBLE_DEVICES"),
        ({"env": {"LD_PRELOAD": "x.so"}}, "env.LD_PRELOAD"),
        ({"user": "somebody"}, "user"),
        ({"team": 7}, "team"),
        ({"cluster": ""}, "cluster"),
        ({"after": ["nobody"]}, "after[0]"),
        ({"name": "\n"}, "name"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(ann: Asker, body: dict[str, Any], path: str) -> None:
    problem = ann.post("/jobs/", HELLO | body, status=400)
    assert [error["path"] for error in problem["errors"]] == [path]
    assert problem["detail"].startswith(path)
    assert not Job.objects.exists()


def test_whoever_is_in_two_teams_says_which(world: World, ann: Asker) -> None:
    other = create_team(author=world.admin, name="Another", slug="another")
    add_member(author=world.admin, team=other, user=world.ann)
    problem = ann.post("/jobs/", HELLO, status=400)
    assert problem["code"] == "team_required"
    assert problem["facts"]["teams"] == ["another", world.team.slug]
    assert problem["errors"][0]["path"] == "team"
    assert ann.post("/jobs/", HELLO | {"team": "another"}, status=201)["team"] == "another"
    nobody = asker(world.admin).post("/tokens/", {"name": "x", "scopes": ["read"]}, status=201)
    assert nobody["scopes"] == ["read"]


def test_after_leaving_a_team_its_jobs_are_out_of_sight(world: World, ann: Asker) -> None:
    key = ann.post("/jobs/", HELLO, status=201)["key"]
    world.team.memberships.filter(user=world.ann).delete()
    assert ann.refused("GET", f"/jobs/{key}/") == (404, "job_not_found")
    assert ann.refused("POST", f"/jobs/{key}/cancel/") == (404, "job_not_found")
    assert asker(world.lead).post(f"/jobs/{key}/cancel/")["state"] == "cancelled"


@pytest.mark.parametrize(
    ("slug", "refusal"), [("nowhere", (404, "team_not_found")), ("closed", (404, "team_not_found"))]
)
def test_other_teams_are_as_good_as_none(world: World, ann: Asker, slug: str, refusal: tuple[int, str]) -> None:
    create_team(author=world.admin, name="Closed", slug="closed")
    assert ann.refused("POST", "/jobs/", HELLO | {"team": slug}) == refusal


def test_verbs_move_a_job_and_say_who_did_it(world: World, ann: Asker) -> None:
    key = ann.post("/jobs/", HELLO, status=201)["key"]
    assert ann.refused("POST", f"/jobs/{key}/hold/", {}) == (400, "invalid")
    held = ann.post(f"/jobs/{key}/hold/", {"why": "not yet"})
    assert (held["state"], held["reason"]["code"]) == ("held", "held")
    assert "not yet" in held["reason"]["message"]
    assert ann.post(f"/jobs/{key}/release/")["state"] == "queued"
    assert ann.refused("POST", f"/jobs/{key}/requeue/", {"why": "x"})[0] == 403
    assert ann.refused("POST", f"/jobs/{key}/retry/") == (409, "job_not_ended")
    assert ann.post(f"/jobs/{key}/cancel/", {"why": "no more"})["state"] == "cancelled"
    assert ann.post(f"/jobs/{key}/cancel/")["state"] == "cancelled"
    assert ann.refused("POST", f"/jobs/{key}/hold/", {"why": "x"}) == (409, "job_ended")
    again = ann.post(f"/jobs/{key}/retry/", status=201)
    assert (again["retry_of"], again["state"], again["name"]) == (key, "queued", "hello")
    events = ann.get(f"/jobs/{key}/events/")["results"]
    assert [event["kind"] for event in events] == ["cancel", "release", "hold", "submit"]
    assert {event["user"] for event in events} == {world.ann.username}
    assert events[0]["reason"] == "no more"
    assert len(ann.get("/events/?kind=submit")["results"]) == 2
    assert ann.get(f"/events/?job={key}&kind=hold")["results"][0]["data"] == {}


def test_the_life_of_a_job_can_be_read(world: World, ann: Asker) -> None:
    key = ann.post("/jobs/", HELLO | {"gpus": 3}, status=201)["key"]
    live = world.take_over()
    world.cycle(live)
    second = ann.post("/jobs/", HELLO | {"gpus": 8}, status=201)["key"]
    world.cycle(live)
    why = ann.get(f"/jobs/{second}/why/")
    assert (why["state"], why["code"]) == ("queued", "gpus")
    assert "free" in why["message"]
    assert why["facts"]["free"] == 5
    listed = {job["key"]: job for job in ann.get("/jobs/")["results"]}
    assert listed[second]["reason"]["message"] == why["message"]
    assert listed[key]["reason"] is None
    (launched,) = world.launch()
    world.see(runs(launched))
    (attempt,) = ann.get(f"/jobs/{key}/attempts/")
    assert (attempt["number"], attempt["end"], len(attempt["allocations"])) == (1, "", 3)
    assert {held["node"] for held in attempt["allocations"]} == {"n1"}
    assert {held["gpu"] for held in attempt["allocations"]} == {0, 1, 2}
    node = ann.get(f"/nodes/{world.cluster.slug}/n1/")
    assert [job["key"] for job in node["jobs"]] == [key]
    assert sum(gpu["whole"] for gpu in node["gpus"]) == 3
    (pool,) = ann.get(f"/clusters/{world.cluster.slug}/")["pools"]
    assert pool == {"model": "H100", "nodes": 1, "nodes_ready": 1, "gpus": 8, "gpus_held": 3}
    (row,) = asker(world.admin).get("/quotas/")["results"]
    assert row["used"] == {"H100": 3.0}
    world.see(ended(launched, 3))
    done = ann.get(f"/jobs/{key}/")
    assert (done["state"], done["exit_code"]) in {("queued", None), ("queued", 3)}
    assert ann.get(f"/jobs/{key}/why/")["code"] == "backoff"


def test_a_list_is_narrowed_down_and_leads_on(world: World, ann: Asker) -> None:
    keys = [ann.post("/jobs/", HELLO | {"name": f"j{number}"}, status=201)["key"] for number in range(7)][::-1]
    bob = asker(world.bob)
    bob.post("/jobs/", HELLO | {"name": "bob's"}, status=201)
    ann.post(f"/jobs/{keys[0]}/cancel/")

    def listed(query: str) -> list[str]:
        return [job["name"] for job in ann.get(f"/jobs/?{query}")["results"]]

    assert listed("state=cancelled") == ["j6"]
    assert len(listed("state=cancelled&state=queued")) == 8
    assert listed(f"user={world.bob.username}") == ["bob's"]
    assert listed("name=j3") == ["j3"]
    assert listed("team=nobody") == []
    assert len(listed(f"cluster={world.cluster.slug}&team={world.team.slug}")) == 8
    middle = ann.get(f"/jobs/{keys[3]}/")["submitted_at"]
    assert listed(f"since={middle}&user={world.ann.username}") == ["j6", "j5", "j4", "j3"]
    assert ann.refused("GET", "/jobs/?state=asleep") == (400, "invalid")
    assert ann.refused("GET", "/jobs/?since=soon") == (400, "invalid")

    page = ann.get(f"/jobs/?limit=3&user={world.ann.username}")
    assert page["previous"] is None
    seen, pages = [], [page]
    while page["next"]:
        assert page["next"].startswith("http://testserver/api/v1/jobs/?")
        page = ann.get(page["next"].removeprefix("http://testserver/api/v1"))
        pages.append(page)
    seen = [[job["key"] for job in each["results"]] for each in pages]
    assert seen == [keys[0:3], keys[3:6], keys[6:7]]
    back = ann.get(page["previous"].removeprefix("http://testserver/api/v1"))
    assert [job["key"] for job in back["results"]] == seen[1]
    first = ann.get(back["previous"].removeprefix("http://testserver/api/v1"))
    assert [job["key"] for job in first["results"]] == seen[0]
    assert first["previous"] is None
    assert [job["key"] for job in ann.get(first["next"].removeprefix("http://testserver/api/v1"))["results"]] == seen[1]


def test_a_cursor_that_is_none_is_refused(ann: Asker) -> None:
    for path in ("/jobs/", "/events/"):
        for cursor in ("x", "WzBd", "bm9uc2Vuc2U", "WzAsIjIwMjYiLDFd", "WzUsMSwyXQ", "%00", "W1tbW1tb"):
            assert ann.refused("GET", f"{path}?cursor={cursor}") == (400, "cursor_invalid")


def test_a_page_has_a_sensible_size(ann: Asker) -> None:
    for path in ("/jobs/", "/events/", "/nodes/", "/teams/", "/clusters/", "/tokens/", "/quotas/"):
        for limit in ("0", "501", "x", "-1", "1e3", "9" * 20):
            assert ann.refused("GET", f"{path}?limit={limit}") == (400, "invalid")


def test_lists_cost_the_same_however_much_there_is(world: World, ann: Asker) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            ann.get(path)
        return len(seen)

    paths = ["/jobs/", "/events/", "/nodes/", "/teams/", "/clusters/", "/tokens/", "/quotas/", "/teams/_tree/",
             f"/teams/{world.team.slug}/members/"]  # fmt: skip
    ann.post("/jobs/", HELLO, status=201)
    before = {path: queries(path) for path in paths}
    add = world.admin
    for number in range(5):
        team = create_team(author=add, name=f"T{number}", slug=f"t{number}", parent=world.team)
        add_member(author=add, team=team, user=world.ann)
        add_member(author=add, team=world.team, user=type(add).objects.create_user(f"u{number}"))
        asker(world.ann)
        for more in range(4):
            ann.post("/jobs/", HELLO | {"gpus": 1 + more, "team": team.slug}, status=201)
    world.see(complete=True, nodes=[*world.nodes, *(node(f"x{number}") for number in range(4))])
    assert {path: queries(path) for path in paths} == before


def test_etags_tell_whether_anything_has_changed(world: World, ann: Asker) -> None:
    key = ann.post("/jobs/", HELLO, status=201)["key"]
    first = ann.ask("GET", f"/jobs/{key}/")
    etag = first.headers["ETag"]
    assert ann.ask("GET", f"/jobs/{key}/", If_None_Match=etag).status_code == 304
    assert ann.ask("GET", f"/jobs/{key}/", If_None_Match=f'"x", W/{etag}').status_code == 304
    assert ann.ask("GET", f"/jobs/{key}/", If_None_Match='"x"').status_code == 200
    ann.post(f"/jobs/{key}/hold/", {"why": "x"})
    assert ann.ask("GET", f"/jobs/{key}/", If_None_Match=etag).status_code == 200


def test_scopes_of_a_token_are_kept(world: World) -> None:
    reader = asker(world.ann, Scope.READ)
    assert reader.refused("POST", "/jobs/", HELLO) == (403, "scope_missing")
    assert asker(world.ann, Scope.SUBMIT).post("/jobs/", HELLO, status=201)["state"] == "queued"


def test_a_wait_is_explained_in_full(world: World, ann: Asker) -> None:
    live = world.take_over()
    ann.post("/jobs/", HELLO | {"gpus": 3, "time_limit": "1h"}, status=201)
    waits = ann.post("/jobs/", HELLO | {"gpus": 8, "replicas": 2}, status=201)["key"]
    world.cycle(live)
    told = ann.get(f"/jobs/{waits}/explanation/")
    assert told["funnel"][0]["steps"][0]["gate"] == "model"
    assert told["ahead"]["jobs"] == 0
    assert told["remedies"]
    if told["estimate"]["high"] is None:
        assert told["estimate"]["why"]["message"]
    running = Job.objects.exclude(key=waits).get()
    assert ann.ask("GET", f"/jobs/{running.key}/explanation/").status_code == 204
