"""Adding a person on the page of teams: for admins, and the one-time password is shown once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from teams.models import User
from tests.integration.world import World, make_world

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(services: Any) -> Iterator[World]:
    cache.clear()
    yield make_world()
    cache.clear()


def client_of(user: User, language: str = "en") -> Client:
    client = Client(headers={"accept-language": language})
    client.force_login(user)
    return client


def test_an_admin_adds_a_person_and_sees_the_password_once(world: World) -> None:
    client = client_of(world.admin)
    answer = client.post("/teams/", {"username": " ada ", "full_name": "Ada L.", "email": "ada@example.org"})
    assert answer.headers["Cache-Control"] == "private, no-store"
    found = re.search(r'id="one-time-password" value="([a-z2-9-]{24})"', answer.content.decode())
    assert found
    user = User.objects.get(username="ada")
    assert (user.check_password(found[1]), user.must_change_password, user.is_superuser) == (True, True, False)
    assert (user.get_full_name(), user.email) == ("Ada L.", "ada@example.org")
    assert found[1] not in client.get("/teams/").content.decode()
    client.post("/teams/", {"username": "grace", "admin": "on"})
    assert User.objects.get(username="grace").is_superuser


@pytest.mark.parametrize(
    ("language", "said"),
    [("en", "username: there is already a user ADA"), ("zh-hans", "username: 已有用户 ADA")],
)
def test_a_refusal_is_said_and_shows_no_password(world: World, language: str, said: str) -> None:
    client = client_of(world.admin, language)
    client.post("/teams/", {"username": "ada"})
    text = client.post("/teams/", {"username": "ADA"}).content.decode()
    assert said in text
    assert "one-time-password" not in text


def test_only_admins_add_people(world: World) -> None:
    for user in (world.lead, world.ann):
        client = client_of(user)
        assert "person-username" not in client.get("/teams/").content.decode()
        assert "one-time-password" not in client.post("/teams/", {"username": "ada"}).content.decode()
    assert not User.objects.filter(username="ada").exists()
    assert "person-username" in client_of(world.admin).get("/teams/").content.decode()
