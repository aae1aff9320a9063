"""Quotas over the API: seen by the team, set by admins, and never over somebody else's change."""

from __future__ import annotations

import json

import pytest

from tests.api.asking import Asker, asker, fresh_world
from tests.integration.world import World
from tests.services import Services

WINDOW = {"days": ["mon", "fri"], "from": "22:00", "to": "06:00", "model": "H100", "guaranteed": 4, "limit": "75%"}
NUMBERS = {"quotas": [{"model": "H100", "guaranteed": "25%", "limit": 6}], "windows": [WINDOW], "why": "the plan"}


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


@pytest.fixture
def root(world: World) -> Asker:
    return asker(world.admin)


def test_numbers_are_replaced_as_a_whole_and_only_as_seen(world: World, root: Asker) -> None:
    path = f"/quotas/{world.cluster.slug}/{world.team.slug}/"
    first = root.ask("GET", path)
    assert json.loads(first.content)["quotas"] == []
    assert root.refused("PUT", path, NUMBERS) == (428, "precondition_required")
    changed = root.ask("PUT", path, NUMBERS, If_Match=first.headers["ETag"])
    document = json.loads(changed.content)
    assert changed.status_code == 200
    assert document["quotas"] == [{"model": "H100", "guaranteed": "25%", "limit": 6, "lend_limit": None}]
    assert document["windows"] == [WINDOW | {"reclaim_lead": 0.0}]
    assert root.refused("PUT", path, NUMBERS, If_Match=first.headers["ETag"]) == (412, "precondition_failed")
    assert root.ask("GET", path, If_None_Match=changed.headers["ETag"]).status_code == 304
    assert asker(world.ann).get(path) == document
    assert asker(world.lead).refused("PUT", path, NUMBERS, If_Match="*") == (403, "admin_only")
    gone = root.ask("PUT", path, {"quotas": [], "why": "over"}, If_Match="*")
    assert json.loads(gone.content)["quotas"] == json.loads(gone.content)["windows"] == []


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"quotas": [{"model": "H100", "guaranteed": -1}]}, "quotas[0].guaranteed"),
        ({"quotas": [{"model": "H100", "guaranteed": 5, "limit": 4}]}, "quotas[0].guaranteed"),
        ({"quotas": [{"model": "H100"}, {"model": "H100"}]}, "quotas[1].model"),
        ({"quotas": [{"guaranteed": 1}]}, "quotas[0].model"),
        ({"quotas": [{"model": "B200"}]}, "model"),
        ({"windows": [{**WINDOW, "to": "22:00"}]}, "windows[0].to"),
        ({"windows": [{**WINDOW, "days": ["noday"]}]}, "windows[0].days[0]"),
        ({"why": " "}, "why"),
        ({"quota": []}, "quota"),
    ],
)
def test_what_is_wrong_is_named(world: World, root: Asker, body: dict[str, object], path: str) -> None:
    answer = root.ask("PUT", f"/quotas/{world.cluster.slug}/{world.team.slug}/", NUMBERS | body, If_Match="*")
    assert answer.status_code == 400
    assert json.loads(answer.content)["errors"][0]["path"] == path


def test_children_are_not_promised_more_than_there_is(world: World, root: Asker) -> None:
    root.post("/teams/", {"name": "Below", "parent": world.team.slug}, status=201)
    for team, cards, status in ((world.team.slug, 2, 200), ("below", 3, 409), ("below", 2, 200)):
        body = {"quotas": [{"model": "H100", "guaranteed": cards}], "why": "x"}
        assert root.ask("PUT", f"/quotas/{world.cluster.slug}/{team}/", body, If_Match="*").status_code == status
    rows = root.get("/quotas/")["results"]
    assert {row["team"]: row["quotas"][0]["guaranteed"] for row in rows} == {world.team.slug: 2, "below": 2}
    assert [row["team"] for row in root.get("/quotas/?team=below")["results"]] == ["below"]
    assert root.refused("GET", f"/quotas/{world.cluster.slug}/nobody/") == (404, "team_not_found")
    assert root.refused("GET", "/quotas/nowhere/below/") == (404, "cluster_not_found")
