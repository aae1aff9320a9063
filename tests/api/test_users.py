"""Accounts over the API: made with a one-time password, given a new one, shut out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from api.scopes import Scope
from teams.models import User
from teams.problems import Conflict, Forbidden
from teams.services import create_user, set_active
from tests.api.asking import Asker, asker, fresh_world, token_text
from tests.integration.world import World
from tests.services import Services


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


@pytest.fixture
def root(world: World) -> Asker:
    return asker(world.admin)


def signs_in(username: str, password: str) -> bool:
    """Whether the page to sign in takes these."""
    client = Client()
    client.post("/accounts/login/", {"login": username, "password": password})
    return "_auth_user_id" in client.session


def test_a_new_user_signs_in_once_with_what_was_shown_once(root: Asker) -> None:
    answer = root.ask("POST", "/users/", {"username": "ada", "name": "Ada L.", "email": "ada@example.org"})
    made = json.loads(answer.content)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    password = made.pop("one_time_password")
    assert made | {"date_joined": ""} == {
        "username": "ada", "name": "Ada L.", "email": "ada@example.org", "admin": False, "active": True,
        "must_change_password": True, "date_joined": "", "last_login": None,
    }  # fmt: skip
    (listed,) = [user for user in root.get("/users/")["results"] if user["username"] == "ada"]
    assert listed == made
    assert password not in User.objects.get(username="ada").password
    assert signs_in("ada", password)
    assert signs_in("ada@example.org", password)
    client = Client()
    client.force_login(User.objects.get(username="ada"))
    assert client.get("/").headers["Location"] == "/accounts/password/change/"


def test_an_admin_makes_an_admin(root: Asker) -> None:
    root.post("/users/", {"username": "grace", "admin": True}, status=201)
    assert asker(User.objects.get(username="grace")).get("/users/")["count"] > 1


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        ({}, 400, "username"),
        ({"username": ""}, 400, "username"),
        ({"username": "a b"}, 400, "username"),
        ({"username": "a/b"}, 400, "username"),
        ({"username": ".."}, 400, "username"),
        ({"username": "x" * 151}, 400, "username"),
        ({"username": "ADA"}, 409, "username"),
        ({"username": "x", "email": "no address"}, 400, "email"),
        ({"username": "x", "email": "ADA@example.org"}, 409, "email"),
        ({"username": "x", "name": "a\nb"}, 400, "name"),
        ({"username": "x", "admin": "maybe"}, 400, "admin"),
        ({"username": "x", "password": "mine"}, 400, "password"),
    ],
)
def test_what_is_wrong_is_named(world: World, root: Asker, body: dict[str, Any], status: int, path: str) -> None:
    create_user(author=world.admin, username="ada", email="ada@example.org")
    before = User.objects.count()
    answer = root.ask("POST", "/users/", body)
    problem = json.loads(answer.content)
    assert (answer.status_code, problem["detail"].partition(":")[0]) == (status, path)
    assert User.objects.count() == before


def test_a_new_password_ends_the_old_one_and_its_sessions(world: World, root: Asker) -> None:
    _, old = create_user(author=world.admin, username="ada")
    browser, token = Client(), token_text(User.objects.get(username="ada"))
    browser.post("/accounts/login/", {"login": "ada", "password": old})
    assert browser.get("/").headers["Location"] == "/accounts/password/change/"
    User.objects.filter(username="ada").update(must_change_password=False)
    answer = root.ask("POST", "/users/ada/reset-password/")
    made = json.loads(answer.content)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert made["must_change_password"] is True
    assert browser.get("/").headers["Location"].startswith("/accounts/login/")
    assert not signs_in("ada", old)
    assert signs_in("ada", made["one_time_password"])
    assert Asker(token).get("/me/")["username"] == "ada"


def test_who_is_shut_out_is_out_at_once_and_can_come_back(world: World, root: Asker) -> None:
    ann, browser = asker(world.ann), Client()
    browser.force_login(world.ann)
    path = f"/users/{world.ann.username}"
    assert root.post(f"{path}/deactivate/")["active"] is False
    assert root.post(f"{path}/deactivate/")["active"] is False
    assert ann.refused("GET", "/me/") == (401, "token_invalid")
    assert browser.get("/").headers["Location"].startswith("/accounts/login/")
    assert root.post(f"{path}/activate/")["active"] is True
    assert ann.get("/me/")["username"] == world.ann.username


def test_an_administrator_is_always_left(world: World, root: Asker) -> None:
    assert root.refused("POST", f"/users/{world.admin.username}/deactivate/") == (409, "own_account")
    other, _ = create_user(author=world.admin, username="other", admin=True)
    set_active(author=other, user=world.admin, active=False)
    # Whoever was shut out meanwhile shuts out nobody, though the object still says otherwise.
    assert world.admin.is_active
    with pytest.raises(Forbidden):
        set_active(author=world.admin, user=other, active=False)
    with pytest.raises(Conflict):
        set_active(author=other, user=other, active=False)
    assert User.objects.get(username="other").is_active


def test_accounts_need_the_scope_admin_to_be_changed(world: World) -> None:
    asking = asker(world.admin, Scope.MANAGE)
    assert asking.get("/users/")["count"] == User.objects.count()
    assert asking.refused("POST", "/users/", {"username": "x"}) == (403, "scope_missing")
    assert asking.refused("POST", f"/users/{world.ann.username}/deactivate/") == (403, "scope_missing")
    assert asking.refused("POST", f"/users/{world.ann.username}/reset-password/") == (403, "scope_missing")


def test_the_list_goes_by_pages_in_a_constant_number_of_queries(world: World, root: Asker) -> None:
    def queries() -> int:
        root.get("/users/")
        with CaptureQueriesContext(connection) as found:
            root.get("/users/")
        return len(found)

    few = queries()
    User.objects.bulk_create(User(username=f"user-{number:02}") for number in range(30))
    assert queries() == few
    page = root.get("/users/?limit=10&offset=5")
    assert (len(page["results"]), page["count"]) == (10, User.objects.count())
    names = [user["username"] for user in root.get("/users/?limit=500")["results"]]
    assert names == list(User.objects.order_by("username").values_list("username", flat=True))
