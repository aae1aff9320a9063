"""Teams over the API: the tree, its members, and the end of a team that has jobs."""

from __future__ import annotations

import json

import pytest

from jobs.models import Job
from jobs.services import finish_drains
from teams.models import Team
from teams.services import create_team
from tests.api.asking import Asker, asker, fresh_world
from tests.integration.world import World, ended
from tests.services import Services

HELLO = {"name": "hello", "gpus": 4, "command": ["true"]}


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


@pytest.fixture
def root(world: World) -> Asker:
    return asker(world.admin)


def test_a_team_with_jobs_is_not_deleted_but_can_run_dry(world: World, root: Asker) -> None:
    slug, ann = world.team.slug, asker(world.ann)
    keys = [ann.post("/jobs/", HELLO | {"name": f"j{number}"}, status=201)["key"] for number in range(5)]
    live = world.take_over()
    world.cycle(live)
    answer = root.ask("DELETE", f"/teams/{slug}/")
    problem = json.loads(answer.content)
    assert (answer.status_code, problem["code"]) == (409, "team_has_jobs")
    assert problem["facts"] == {"running": 2, "pending": 3}
    assert root.refused("DELETE", f"/teams/{slug}/?mode=at-once") == (400, "invalid")

    draining = root.ask("DELETE", f"/teams/{slug}/?mode=drain&why=over")
    assert draining.status_code == 202
    assert json.loads(draining.content)["state"] == "draining"
    states = [job["state"] for job in root.get("/jobs/")["results"]]
    assert sorted(states) == ["cancelled"] * 3 + ["starting"] * 2
    assert ann.refused("POST", "/jobs/", HELLO) == (409, "team_closed")

    for attempt in world.launch():
        world.see(ended(attempt))
    finish_drains()
    assert root.refused("GET", f"/teams/{slug}/") == (404, "team_not_found")
    (archived,) = root.get("/teams/?archived=true")["results"]
    assert (archived["id"], archived["state"]) == (world.team.pk, "archived")

    again = root.post("/teams/", {"name": "Anew", "slug": slug}, status=201)
    assert again["id"] != world.team.pk
    assert (again["running"], again["pending"]) == (0, 0)
    assert not Job.objects.filter(team=again["id"]).exists()
    assert root.get(f"/jobs/{keys[0]}/")["state"] == "succeeded"
    assert len(root.get(f"/jobs/?team={slug}")["results"]) == 5


def test_a_team_with_teams_below_it_stays(world: World, root: Asker) -> None:
    create_team(author=world.admin, name="Below", slug="below", parent=world.team)
    for query in ("", "?mode=drain"):
        assert root.refused("DELETE", f"/teams/{world.team.slug}/{query}") == (409, "team_has_children")
    assert root.ask("DELETE", "/teams/below/").status_code == 204
    assert root.ask("DELETE", f"/teams/{world.team.slug}/").status_code == 204
    assert Team.objects.filter(archived_at=None).count() == 0


def test_teams_are_made_renamed_and_shown_as_a_tree(world: World, root: Asker) -> None:
    made = root.post("/teams/", {"name": "Vision Lab", "parent": world.team.slug, "weight": 2}, status=201)
    assert (made["slug"], made["parent"], made["weight"]) == ("vision-lab", world.team.slug, 2.0)
    assert root.refused("POST", "/teams/", {"name": "Vision Lab"}) == (409, "taken")
    assert root.refused("POST", "/teams/", {"name": "X", "slug": "No Slug"}) == (400, "invalid")
    assert root.refused("POST", "/teams/", {"name": "X", "parent": "nobody"}) == (404, "team_not_found")
    assert root.refused("POST", "/teams/", {"name": "X", "color": 1}) == (400, "invalid")
    shown = root.ask("GET", "/teams/vision-lab/")
    etag = shown.headers["ETag"]
    renamed = root.ask("PATCH", "/teams/vision-lab/", {"name": "Seeing"}, If_Match=etag)
    assert json.loads(renamed.content)["name"] == "Seeing"
    assert root.refused("PATCH", "/teams/vision-lab/", {"weight": 3}, If_Match=etag) == (412, "precondition_failed")
    assert root.ask("PATCH", "/teams/vision-lab/", {"weight": 3}, If_Match=renamed.headers["ETag"]).status_code == 200
    (top,) = root.get("/teams/_tree/")
    assert (top["slug"], [below["slug"] for below in top["teams"]]) == (world.team.slug, ["vision-lab"])
    assert asker(world.ann).get("/teams/_tree/")[0]["teams"] == []


def test_leads_look_after_their_members(world: World, root: Asker) -> None:
    lead, path = asker(world.lead), f"/teams/{world.team.slug}/members/"
    names = [member["user"] for member in lead.get(path)["results"]]
    assert names == sorted([world.ann.username, world.bob.username, world.lead.username])
    assert lead.post(path, {"user": world.ann.username, "role": "lead"})["role"] == "lead"
    assert lead.refused("POST", path, {"user": "nobody"}) == (404, "user_not_found")
    assert lead.refused("POST", path, {"user": world.ann.username, "role": "king"}) == (400, "invalid")
    assert lead.refused("POST", path, {"user": world.ann.username, "until": "2020-01-01T00:00:00Z"})[0] == 400
    assert asker(world.bob).refused("POST", path, {"user": world.bob.username, "role": "lead"}) == (403, "lead_only")
    assert asker(world.bob).refused("DELETE", f"{path}{world.ann.username}/") == (403, "lead_only")
    assert lead.ask("DELETE", f"{path}{world.ann.username}/").status_code == 204
    assert asker(world.bob).ask("DELETE", f"{path}{world.bob.username}/").status_code == 204
    assert lead.get(path)["count"] == 1
