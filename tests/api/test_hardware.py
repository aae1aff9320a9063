"""Clusters and nodes over the API: seen by those they are open to, changed by admins."""

from __future__ import annotations

import pytest

from scheduler.inventory.models import Cluster
from teams.services import create_team
from tests.api.asking import Asker, asker, fresh_world
from tests.integration.world import World
from tests.services import Services


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


@pytest.fixture
def root(world: World) -> Asker:
    return asker(world.admin)


def test_nodes_are_cordoned_drained_and_taken_back_by_admins(world: World, root: Asker) -> None:
    path, ann = f"/nodes/{world.cluster.slug}/n1/", asker(world.ann)
    node = ann.get(path)
    assert (node["state"], node["model"], len(node["gpus"])) == ("ready", "H100", 8)
    assert node["gpus"][0]["uuid"] == "GPU-n1-0"
    for asking in (ann, asker(world.lead)):
        assert asking.refused("POST", f"{path}cordon/", {"why": "x"}) == (403, "admin_only")
        assert asking.refused("POST", f"{path}uncordon/") == (403, "admin_only")
    assert root.refused("POST", f"{path}cordon/", {}) == (400, "invalid")
    assert root.refused("POST", f"{path}cordon/", {"why": "  "}) == (400, "invalid")
    cordoned = root.post(f"{path}cordon/", {"why": "fan"})
    assert (cordoned["state"], cordoned["cordon_why"], cordoned["cordon_by"]) == (
        "cordoned", "fan", world.admin.username,
    )  # fmt: skip
    assert root.post(f"{path}drain/", {"why": "replace it"})["state"] == "draining"
    assert [each["name"] for each in root.get("/nodes/?state=draining")["results"]] == ["n1"]
    assert root.post(f"{path}uncordon/")["state"] == "ready"
    assert root.get("/nodes/?state=draining")["results"] == []
    assert root.refused("GET", f"/nodes/{world.cluster.slug}/n2/") == (404, "node_not_found")


def test_a_cluster_is_seen_and_used_by_those_it_is_open_to(world: World, root: Asker) -> None:
    Cluster.objects.update(open_to_all=False, is_default=False)
    ann, slug = asker(world.ann), world.cluster.slug
    body = {"name": "j", "cluster": slug}
    assert ann.get("/clusters/")["results"] == ann.get("/nodes/")["results"] == []
    assert ann.refused("GET", f"/clusters/{slug}/") == (404, "cluster_not_found")
    assert ann.refused("GET", f"/nodes/{slug}/n1/") == (404, "node_not_found")
    assert ann.refused("POST", "/jobs/", body)[0] in (403, 404)

    above = create_team(author=world.admin, name="Above", slug="above")
    world.team.parent = above
    world.team.save()
    opened = root.post(f"/clusters/{slug}/access/", {"team": "above", "is_default": True})
    assert (opened["team"], opened["is_default"], opened["granted_by"]) == ("above", True, world.admin.username)
    assert [cluster["slug"] for cluster in ann.get("/clusters/")["results"]] == [slug]
    assert ann.post("/jobs/", {"name": "j"}, status=201)["cluster"] == slug
    for method, more in (("GET", ""), ("POST", ""), ("DELETE", "above/")):
        assert ann.refused(method, f"/clusters/{slug}/access/{more}", {"team": "above"}) == (403, "admin_only")
    assert [row["team"] for row in root.get(f"/clusters/{slug}/access/")["results"]] == ["above"]
    assert root.refused("POST", f"/clusters/{slug}/access/", {"team": "nobody"}) == (404, "team_not_found")
    assert root.ask("DELETE", f"/clusters/{slug}/access/above/").status_code == 204
    assert ann.get("/clusters/")["results"] == []
