"""Who may do what: each role asks for each thing, and the whole table is written down here."""

from __future__ import annotations

from typing import Any

import pytest

from teams.models import Role, User
from teams.services import add_member, create_team
from tests.api.asking import Asker, asker, fresh_world
from tests.integration.world import World
from tests.services import Services

ROLES = ("anonymous", "stranger", "member", "owner", "lead", "lead above", "admin")
WHY: dict[str, Any] = {"why": "x"}
# Rows: method, path, body; then what each of the roles above gets.
TABLE: list[tuple[str, str, Any, str]] = [
    ("GET", "/me/", None, "401 200 200 200 200 200 200"),
    ("GET", "/version/", None, "200 200 200 200 200 200 200"),
    ("GET", "/jobs/{job}/", None, "401 404 200 200 200 200 200"),
    ("GET", "/jobs/{job}/why/", None, "401 404 200 200 200 200 200"),
    ("GET", "/jobs/{job}/explanation/", None, "401 404 200 200 200 200 200"),
    ("GET", "/jobs/{job}/logs/", None, "401 404 200 200 200 200 200"),
    ("GET", "/jobs/{job}/events/", None, "401 404 200 200 200 200 200"),
    ("GET", "/jobs/{job}/attempts/", None, "401 404 200 200 200 200 200"),
    ("POST", "/jobs/", {"name": "j", "team": "{team}"}, "401 404 201 201 201 201 201"),
    ("POST", "/jobs/{job}/hold/", WHY, "401 404 403 200 200 200 200"),
    ("POST", "/jobs/{job}/release/", {}, "401 404 403 409 409 409 409"),
    ("POST", "/jobs/{job}/requeue/", WHY, "401 404 403 403 403 403 409"),
    ("POST", "/jobs/{job}/cancel/", {}, "401 404 403 200 200 200 200"),
    ("POST", "/jobs/{job}/retry/", {}, "401 404 409 409 409 409 409"),
    ("GET", "/teams/{team}/", None, "401 404 200 200 200 200 200"),
    ("GET", "/teams/{team}/members/", None, "401 404 200 200 200 200 200"),
    ("POST", "/teams/{team}/members/", {"user": "{guest}"}, "401 404 403 403 200 200 200"),
    ("DELETE", "/teams/{team}/members/{guest}/", None, "401 404 403 403 204 204 204"),
    ("PATCH", "/teams/{team}/", {"weight": 2}, "401 404 403 403 403 403 200"),
    ("DELETE", "/teams/{team}/", None, "401 404 409 409 409 409 409"),
    ("DELETE", "/teams/{team}/?mode=drain", None, "401 404 403 403 403 403 204"),
    ("POST", "/teams/", {"name": "New"}, "401 403 403 403 403 403 201"),
    ("GET", "/clusters/{cluster}/", None, "401 200 200 200 200 200 200"),
    ("GET", "/clusters/{cluster}/access/", None, "401 403 403 403 403 403 200"),
    ("POST", "/clusters/{cluster}/access/", {"team": "{team}"}, "401 403 403 403 403 403 200"),
    ("DELETE", "/clusters/{cluster}/access/{team}/", None, "401 403 403 403 403 403 204"),
    ("GET", "/nodes/{cluster}/n1/", None, "401 200 200 200 200 200 200"),
    ("POST", "/nodes/{cluster}/n1/cordon/", WHY, "401 403 403 403 403 403 200"),
    ("POST", "/nodes/{cluster}/n1/drain/", WHY, "401 403 403 403 403 403 200"),
    ("POST", "/nodes/{cluster}/n1/uncordon/", None, "401 403 403 403 403 403 200"),
    ("GET", "/quotas/{cluster}/{team}/", None, "401 404 200 200 200 200 200"),
    ("PUT", "/quotas/{cluster}/{team}/", {"quotas": []} | WHY, "401 404 403 403 403 403 200"),
    ("GET", "/tokens/", None, "401 200 200 200 200 200 200"),
    ("POST", "/tokens/", {"name": "t", "scopes": ["read"]}, "401 201 201 201 201 201 201"),
    ("POST", "/tokens/", {"name": "t", "scopes": ["read"], "user": "{guest}"}, "401 403 403 403 403 403 201"),
    ("GET", "/users/", None, "401 403 403 403 403 403 200"),
    ("POST", "/users/", {"username": "new"}, "401 403 403 403 403 403 201"),
    ("POST", "/users/{guest}/reset-password/", None, "401 403 403 403 403 403 200"),
    ("POST", "/users/nobody/reset-password/", None, "401 403 403 403 403 403 404"),
    ("POST", "/users/{guest}/deactivate/", None, "401 403 403 403 403 403 200"),
    ("POST", "/users/{guest}/activate/", None, "401 403 403 403 403 403 200"),
]


@pytest.mark.django_db
def test_each_role_gets_what_the_table_says(services: Services) -> None:
    world, names, asking = _cast()
    wrong = []
    for method, path, body, expected in TABLE:
        for role, status in zip(ROLES, expected.split(), strict=True):
            names["job"] = asking["owner"].post("/jobs/", {"name": "j", "team": names["team"]}, status=201)["key"]
            answer = asking[role].ask(method, path.format(**names), _filled(body, names), If_Match="*")
            if answer.status_code != int(status):
                wrong.append(f"{role}: {method} {path}: {answer.status_code} instead of {status}: {answer.content!r}")
            _restore(world, names)
    assert wrong == []


@pytest.mark.django_db
def test_lists_hold_only_what_one_may_see(services: Services) -> None:
    _, names, asking = _cast()
    asking["owner"].post("/jobs/", {"name": "j", "team": names["team"]}, status=201)
    asking["owner"].ask("POST", "/jobs/", {"name": "j", "team": names["team"]})
    for path, seen in (("/jobs/", "0 2 2 2 2 2"), ("/events/", "0 2 2 2 2 2"), ("/teams/", "0 1 1 1 2 2")):
        counts = [len(asking[role].get(path)["results"]) for role in ROLES[1:]]
        assert counts == [int(number) for number in seen.split()], path
    assert asking["stranger"].get("/teams/_tree/") == []
    assert asking["stranger"].get("/quotas/")["results"] == []


def _cast() -> tuple[World, dict[str, str], dict[str, Asker]]:
    """A world in which every role has somebody to play it."""
    world = fresh_world()
    above = create_team(author=world.admin, name="Above", slug="above")
    world.team.parent = above
    world.team.save()
    stranger, boss, guest = (User.objects.create_user(name) for name in ("stranger", "boss", "guest"))
    add_member(author=world.admin, team=above, user=boss, role=Role.LEAD)
    people = (stranger, world.bob, world.ann, world.lead, boss, world.admin)
    asking = {"anonymous": Asker()} | dict(zip(ROLES[1:], map(asker, people), strict=True))
    names = {"team": world.team.slug, "cluster": world.cluster.slug, "guest": guest.username, "job": ""}
    return world, names, asking


def _filled(body: Any, names: dict[str, str]) -> Any:
    if not isinstance(body, dict):
        return body
    return {key: value.format(**names) if isinstance(value, str) else value for key, value in body.items()}


def _restore(world: World, names: dict[str, str]) -> None:
    """What one has changed must not be what the next one finds."""
    live = type(world.team).objects
    if live.get(pk=world.team.pk).archived_at or live.get(pk=world.team.pk).state != "open":
        live.filter(pk=world.team.pk).update(archived_at=None, state="open")
    live.filter(name="New").update(archived_at=world.now, name="gone", slug=f"gone-{live.count()}")
    world.team.memberships.filter(user__username=names["guest"]).delete()
