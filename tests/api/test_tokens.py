"""Tokens: what they allow, for how long, and that nobody learns them."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from api import bootstrap, tokens
from api.models import ApiToken
from api.scopes import Scope
from rota.embedded.layout import layout
from teams.models import User
from tests.api.asking import Asker, asker, fresh_world, token_text
from tests.integration.world import World
from tests.services import Services


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


def test_a_token_is_shown_once_and_kept_as_a_digest(world: World) -> None:
    root = asker(world.admin)
    made = root.post("/tokens/", {"name": "ci", "scopes": ["submit"], "expires_in_days": 7}, status=201)
    assert made["token"].startswith(f"rota_{made['key']}.")
    secret = made["token"].partition(".")[2]
    row = ApiToken.objects.get(key=made["key"])
    assert secret not in json.dumps([str(value) for value in vars(row).values()])
    assert row.expires_at - row.created_at < timedelta(days=7, seconds=5)
    listed = root.get("/tokens/")["results"]
    assert made["key"] in {token["key"] for token in listed}
    assert not any("token" in token or "digest" in token for token in listed)
    assert Asker(made["token"]).get("/me/")["token"]["key"] == made["key"]


@pytest.mark.parametrize("change", ["secret", "key", "short", "expired", "revoked", "inactive", "empty", "other"])
def test_a_token_that_is_not_good_is_worth_nothing(world: World, change: str) -> None:
    text = token_text(world.ann)
    token = ApiToken.objects.get(key=tokens.key_of(text))
    now = timezone.now()
    match change:
        case "secret":
            text = text[:-1] + ("A" if text[-1] != "A" else "B")
        case "key":
            text = text.replace(token.key, "0" * 12)
        case "short":
            text = text[:-1]
        case "expired":
            ApiToken.objects.update(created_at=now - timedelta(days=2), expires_at=now - timedelta(seconds=1))
        case "revoked":
            tokens.revoke(author=world.ann, token=token)
        case "inactive":
            User.objects.filter(pk=world.ann.pk).update(is_active=False)
        case "empty":
            text = " "
        case "other":
            text = text.replace("rota_", "rote_")
    answer = Asker(text).ask("GET", "/me/")
    assert (answer.status_code, json.loads(answer.content)["code"]) == (401, "token_invalid")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="rota"'


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        (Scope.READ, {"read"}),
        (Scope.SUBMIT, {"read", "submit"}),
        (Scope.MANAGE, {"read", "submit", "manage"}),
        (Scope.ADMIN, {"read", "submit", "manage", "admin"}),
    ],
)
def test_each_scope_includes_the_ones_below(world: World, scope: Scope, allowed: set[str]) -> None:
    asking = asker(world.admin, scope)
    tries = {
        "read": ("GET", "/jobs/", None),
        "submit": ("POST", "/jobs/", {"name": "j", "team": world.team.slug}),
        "manage": ("POST", "/teams/", {"name": "New"}),
        "admin": ("POST", f"/nodes/{world.cluster.slug}/n1/cordon/", {"why": "x"}),
    }
    answers = {name: asking.ask(*each) for name, each in tries.items()}
    assert {name for name, answer in answers.items() if answer.status_code < 400} == allowed
    refused = [json.loads(answer.content)["code"] for answer in answers.values() if answer.status_code >= 400]
    assert set(refused) <= {"scope_missing"}


def test_a_token_makes_none_that_is_stronger_and_revokes_none_but_itself(world: World) -> None:
    submit = asker(world.ann, Scope.SUBMIT)
    assert submit.refused("POST", "/tokens/", {"name": "x", "scopes": ["read"]}) == (403, "scope_missing")
    own = tokens.key_of(submit.token)
    other = tokens.key_of(token_text(world.ann))
    assert submit.refused("DELETE", f"/tokens/{other}/") == (403, "scope_missing")
    assert submit.ask("DELETE", f"/tokens/{own}/").status_code == 204
    assert submit.refused("GET", "/me/") == (401, "token_invalid")


def test_tokens_of_others_are_for_admins(world: World) -> None:
    ann, root = asker(world.ann), asker(world.admin)
    body = {"name": "ci", "scopes": ["submit"], "user": world.ann.username}
    assert asker(world.bob).refused("POST", "/tokens/", body) == (403, "admin_only")
    made = root.post("/tokens/", body, status=201)
    assert Asker(made["token"]).get("/me/")["username"] == world.ann.username
    assert asker(world.bob).refused("DELETE", f"/tokens/{made['key']}/") == (404, "token_not_found")
    assert {token["user"] for token in ann.get("/tokens/")["results"]} == {world.ann.username}
    wrong: list[dict[str, object]] = [
        {"scopes": []}, {"scopes": ["all"]}, {"expires_in_days": 0}, {"expires_in_days": 400}, {"name": ""}
    ]  # fmt: skip
    for bad in wrong:
        assert root.refused("POST", "/tokens/", {"name": "x", "scopes": ["read"]} | bad) == (400, "invalid")


def test_use_is_noted_once_a_minute(world: World) -> None:
    asking = asker(world.ann)
    asking.get("/me/")
    first = ApiToken.objects.get().last_used_at
    asking.get("/me/")
    assert first is not None
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=first - timedelta(minutes=2))
    asking.get("/me/")
    again = ApiToken.objects.get().last_used_at
    assert again is not None
    assert again > first - timedelta(minutes=1)


def test_the_history_of_a_token_knows_no_secret_and_no_use(world: World) -> None:
    asking = asker(world.ann)
    asking.get("/me/")
    tokens.revoke(author=world.ann, token=ApiToken.objects.get())
    history = apps.get_model("api", "ApiTokenEvent")
    assert [row.pgh_label for row in history.objects.order_by("pgh_id")] == ["insert", "update"]
    names = {field.name for field in history._meta.get_fields()}
    assert {"scopes", "revoked_at"} <= names
    assert names.isdisjoint({"digest", "last_used_at"})


def test_guessing_is_slowed_down(world: World) -> None:
    text = token_text(world.ann)
    wrong = text[:-2] + ("AA" if not text.endswith("AA") else "BB")
    answers = [Asker(wrong).refused("GET", "/me/") for _ in range(12)]
    assert answers[:10] == [(401, "token_invalid")] * 10
    assert answers[10:] == [(429, "throttled")] * 2
    answer = Asker(text).ask("GET", "/me/")
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert asker(world.bob).get("/me/")["username"] == world.bob.username


def test_too_many_requests_are_refused(world: World, settings: object) -> None:
    settings.ROTA_API_RATES = {"user": 3, "anonymous": 2, "token_guess": 10, "token_guesses": 60}  # type: ignore[attr-defined]
    ann = asker(world.ann)
    assert [ann.ask("GET", "/me/").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert asker(world.bob).ask("GET", "/me/").status_code == 200
    assert [Asker().ask("GET", "/version/").status_code for _ in range(3)] == [200, 200, 429]


def test_without_a_cache_nobody_is_kept_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(cache, "add", away)
    monkeypatch.setattr(cache, "get", away)
    assert asker(world.ann).get("/me/")["username"] == world.ann.username


def test_no_log_line_holds_a_secret(
    world: World, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = asker(world.admin)
    made = asking.post("/tokens/", {"name": "x", "scopes": ["read"]}, status=201)["token"]
    monkeypatch.setattr(tokens, "visible_to", lambda _: 1 / 0)
    assert asking.refused("GET", "/tokens/") == (500, "internal_error")
    said = caplog.text + "".join(capsys.readouterr())
    assert "ZeroDivisionError" in said
    for text in (asking.token, made):
        assert text.partition(".")[2] not in said


def test_a_browser_needs_the_form_token_and_a_password_of_its_own(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.ann, backend="allauth.account.auth_backends.AuthenticationBackend")
    browser = Asker(client=client)
    assert browser.get("/me/") | {"memberships": []} == {
        "username": world.ann.username, "admin": False, "memberships": [], "token": None
    }  # fmt: skip
    assert browser.refused("POST", "/jobs/", {"name": "j"}) == (403, "csrf_failed")
    assert browser.refused("POST", "/tokens/", {"name": "x", "scopes": ["read"]}) == (403, "csrf_failed")
    assert client.get("/api/docs/?script").status_code == 200  # the page to try things out on
    form = client.cookies["csrftoken"].value
    assert browser.post("/jobs/", {"name": "j"}, status=201, X_CSRFToken=form)["state"] == "queued"
    User.objects.filter(pk=world.ann.pk).update(must_change_password=True)
    assert browser.refused("GET", "/me/") == (403, "password_change_required")


# --- the token of this machine ---


def test_bootstrap_gives_this_machine_a_token_and_renews_it_in_time(
    db: None, services: Services, settings: object, tmp_path: Path
) -> None:
    home = layout(tmp_path, 0)
    settings.LAYOUT = home  # type: ignore[attr-defined]

    def told() -> dict[str, str]:
        out = StringIO()
        call_command("bootstrap", "--no-migrate", stdout=out)
        found: dict[str, str] = json.loads(out.getvalue().splitlines()[-1])
        return found

    first = told()["cli_token"]
    home.cli.write_text(json.dumps({"url": "http://127.0.0.1:1", "token": first}))
    assert Asker(first).get("/me/")["token"]["scopes"] == ["admin"]
    assert "cli_token" not in told()
    ApiToken.objects.update(expires_at=timezone.now() + bootstrap.RENEW_BEFORE - timedelta(days=1))
    second = told()["cli_token"]
    assert Asker(first).refused("GET", "/me/") == (401, "token_invalid")
    assert Asker(second).get("/me/")["admin"] is True
    home.cli.write_text("not JSON")
    assert told()["cli_token"] != second
    assert ApiToken.objects.filter(local=True, revoked_at=None).count() == 1
