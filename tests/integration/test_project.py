"""The project around the parts: health, request ids, headers, accounts, Celery's rules, bootstrap."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.core.cache import cache
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from rota import checks, probes
from rota.env import read, socket_broker
from teams.models import User
from tests.services import Services

RIGHT, WRONG = "correct horse battery", "wrong horse battery"


@pytest.fixture
def person(db: None, services: Services) -> User:
    cache.clear()  # rate limits of other tests
    return User.objects.create_user("ada", email="ada@example.org", password=RIGHT)


def sign_in(client: Client, password: str) -> Any:
    return client.post("/accounts/login/", {"login": "ada", "password": password})


# --- health ---


def test_alive_needs_nothing_not_even_an_allowed_host(client: Client) -> None:
    answer = client.get("/healthz", headers={"host": "10.1.2.3"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_ready_means_that_database_and_broker_answer(client: Client, services: Services) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "database": "ok", "broker": "ok"})


def test_unready_names_what_is_missing_in_one_line_each(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(settings, "BROKER", socket_broker(tmp_path / "none.sock"))
    monkeypatch.setitem(settings.DATABASES["default"], "HOST", str(tmp_path))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    body = answer.json()
    assert body["status"] == "unready"
    assert "none.sock" in body["broker"]
    assert "connection" in body["database"]
    assert "\n" not in body["broker"] + body["database"]
    assert answer.headers["Cache-Control"] == "no-store"


# --- headers ---


@pytest.mark.parametrize(("given", "kept"), [("abc-123", True), ("a b\n", False), ("x" * 200, False), ("", False)])
def test_each_answer_carries_a_request_id(client: Client, given: str, kept: bool) -> None:
    identifier = client.get("/healthz", headers={"x-request-id": given}).headers["X-Request-ID"]
    assert (identifier == given) == kept
    assert re.fullmatch(r"[0-9a-f]{32}|abc-123", identifier)


@pytest.mark.django_db
def test_pages_allow_no_inline_script_and_no_stranger(client: Client, services: Services) -> None:
    answer = client.get("/accounts/login/")
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    for directive in ("default-src 'self'", "object-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert directive in policy
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"


# --- accounts ---


def test_nobody_signs_himself_up(client: Client, person: User) -> None:
    form = {"username": "eve", "password1": RIGHT, "password2": RIGHT}
    client.post("/accounts/signup/", form)
    assert not User.objects.filter(username="eve").exists()


def test_guessing_passwords_is_slowed_down(client: Client, person: User) -> None:
    for _ in range(6):
        assert sign_in(client, WRONG).status_code in (200, 429)
    assert sign_in(client, RIGHT).status_code != 302
    cache.clear()
    assert sign_in(client, RIGHT).status_code == 302


def test_a_one_time_password_leads_nowhere_but_to_its_change(client: Client, person: User) -> None:
    User.objects.filter(pk=person.pk).update(must_change_password=True)
    client.force_login(person, backend="allauth.account.auth_backends.AuthenticationBackend")
    assert client.get("/accounts/email/").headers["Location"] == "/accounts/password/change/"
    new = {"oldpassword": RIGHT, "password1": "a brand new horse", "password2": "a brand new horse"}
    assert client.post("/accounts/password/change/", new).status_code == 302
    person.refresh_from_db()
    assert not person.must_change_password
    assert client.get("/accounts/email/").status_code == 200


# --- bootstrap ---


def bootstrap(*arguments: str) -> dict[str, str]:
    out = StringIO()
    call_command("bootstrap", *arguments, "--no-migrate", stdout=out)
    told: dict[str, str] = json.loads(out.getvalue().splitlines()[-1])
    return told


@pytest.mark.django_db
def test_bootstrap_makes_one_admin_once() -> None:
    told = bootstrap()
    admin = User.objects.get(is_superuser=True)
    assert told["admin_username"] == admin.username
    assert admin.check_password(told["admin_password"])
    assert admin.must_change_password
    assert "admin_password" not in bootstrap()
    assert User.objects.filter(is_superuser=True).count() == 1


@pytest.mark.django_db
def test_a_lost_password_can_be_replaced_on_the_machine_itself(person: User) -> None:
    told = bootstrap("--new-password", "ada")
    person.refresh_from_db()
    assert person.check_password(told["admin_password"])
    assert person.must_change_password
    with pytest.raises(CommandError, match="there is no user 'bob'"):
        bootstrap("--new-password", "bob")


# --- Celery ---


def test_names_reach_our_broker_and_only_json_is_taken() -> None:
    assert current_app.main == "rota"
    conf = current_app.conf
    assert (conf.accept_content, conf.task_serializer, conf.task_ignore_result) == (["json"], "json", True)
    assert conf.broker_url == settings.BROKER.celery_url


def test_only_ticks_go_to_a_tick_queue_and_no_wake_up_piles_up() -> None:
    router = current_app.amqp.router
    for name, queue in {"scheduler.tasks.tick": "tick-main", "scheduler.tasks.dispatch": "dispatch",
                        "scheduler.tasks.observe": "observe", "monitoring.tasks.ingest": "ingest",
                        "anything.else": "default"}.items():  # fmt: skip
        assert router.route({}, name)["queue"].name == queue
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        options: Any = entry.get("options", {})
        assert options.get("expires"), f"beat's entry {name} would pile up while nobody works"
        is_tick = str(entry["task"]) == "scheduler.tasks.tick"
        assert str(options.get("queue", "")).startswith("tick-") <= is_tick, name


# --- rota check ---


def check_ids(monkeypatch: pytest.MonkeyPatch, **variables: str) -> set[str | None]:
    stores = {"DATABASE_URL": "postgresql://db/rota", "REDIS_URL": "redis://kv", "ROTA_SECRET_KEY": "0123456789" * 4}
    env = read(stores | {"ROTA_URL": "https://rota.example.org", "ROTA_PROXIES": "1"} | variables)
    monkeypatch.setattr(settings, "ENV", env)
    monkeypatch.setattr(settings, "SECRET_KEY", env.secret_key)
    return {message.id for message in (*checks.check_secret(), *checks.check_exposure(), *checks.check_local_user())}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, set()),
        ({"ROTA_SECRET_KEY": "short"}, {"rota.E001"}),
        ({"ROTA_SECRET_KEY": "a" * 50}, {"rota.E001"}),
        ({"ROTA_DEBUG": "1", "ROTA_BIND": "0.0.0.0"}, {"rota.E002"}),
        ({"ROTA_ALLOWED_HOSTS": "*"}, {"rota.W001"}),
        ({"ROTA_URL": "http://rota.example.org"}, {"rota.W002"}),
        ({"ROTA_PROXIES": "0"}, {"rota.W003"}),
    ],
)
def test_weak_settings_are_found(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: set[str]) -> None:
    assert check_ids(monkeypatch, **variables) == found


@pytest.mark.parametrize(("seconds", "identifier"), [(0.5, None), (5, "rota.W040"), (-60, "rota.E040")])
def test_a_wrong_clock_is_found(seconds: float, identifier: str | None) -> None:
    assert [message.id for message in probes.clock("the database", seconds)] == ([identifier] if identifier else [])
