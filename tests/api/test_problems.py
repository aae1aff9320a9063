"""Whatever goes wrong below /api/ has one shape, wherever it goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from api import jobs as job_views
from api.errors import CODES
from tests.api.asking import Asker, asker, check_problem, fresh_world
from tests.integration.world import World
from tests.services import Services


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing/", 404),
        ("GET", "/jobs/not-a-key/", 404),
        ("GET", "/jobs/000000000000/", 404),
        ("GET", "/nodes/c/a%00b/", 404),
        ("PUT", "/jobs/", 405),
        ("DELETE", "/jobs/000000000000/", 405),
        ("GET", "/me/?format=xml", 404),
    ],
)
def test_what_is_not_there_is_a_problem(world: World, method: str, path: str, status: int) -> None:
    answer = asker(world.ann).ask(method, path)
    assert answer.status_code == status
    assert status != 405 or answer.headers["Allow"]


def raw(asking: Asker, body: bytes | str, kind: str = "application/json", **headers: str) -> tuple[int, str]:
    named = {"Authorization": f"Bearer {asking.token}"} | headers
    answer = asking.client.generic("POST", "/api/v1/jobs/", body, content_type=kind, headers=named)
    check_problem(answer)
    return answer.status_code, json.loads(answer.content)["code"]


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b"{", (400, "malformed")),
        (b"\xff\xfe", (400, "malformed")),
        (b"[]", (400, "invalid")),
        (b'"name"', (400, "invalid")),
        (b"null", (400, "invalid")),
        (b'{"name": NaN}', (400, "malformed")),
        (b'{"name": ' + b"9" * 5000 + b"}", (400, "malformed")),
        (b"[" * 200_000, (400, "malformed")),
        (b'{"name": "a\\u0000b"}', (400, "malformed")),
        (b'{"name": "x", "labels": {"a\\u0000": "b"}}', (400, "malformed")),
        (b'{"name": "\\ud800"}', (400, "malformed")),
        (b'{"name": "' + b"x" * (1 << 20) + b'"}', (413, "too_large")),
        (b'{"name": "' + b"x" * (3 << 20) + b'"}', (413, "too_large")),  # more than Django itself would read
    ],
)
def test_a_body_that_makes_no_sense_is_a_problem(world: World, body: bytes, refusal: tuple[int, str]) -> None:
    assert raw(asker(world.ann), body) == refusal


def test_text_that_only_speaks_of_nul_is_fine(world: World) -> None:
    job = asker(world.ann).post("/jobs/", {"name": "x", "command": ["echo", "\\u0000"]}, status=201)
    assert job["spec"]["command"] == ["echo", "\\u0000"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_only_json_is_read(world: World, kind: str) -> None:
    assert raw(asker(world.ann), "name=x", kind) == (415, "unsupported_media_type")


def test_only_what_there_is_can_be_had(world: World) -> None:
    assert asker(world.ann).refused("GET", "/me/", Accept="image/png") == (406, "not_acceptable")


def test_an_error_of_ours_is_a_problem_without_its_inside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("the secret is swordfish")

    monkeypatch.setattr(job_views, "visible_to", fails)
    answer = asker(world.ann).ask("GET", "/jobs/")
    assert (answer.status_code, json.loads(answer.content)["code"]) == (500, "internal_error")
    assert b"swordfish" not in answer.content


def test_a_database_that_is_away_is_worth_another_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(job_views, "visible_to", away)
    answer = asker(world.ann).ask("GET", "/jobs/")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "2"


def test_a_host_that_is_not_ours_is_a_problem(db: None, services: Services) -> None:
    answer = Client().get("/api/v1/version/", headers={"Host": "elsewhere.example"})
    assert answer.status_code == 400
    check_problem(answer)


def test_the_reader_s_language_changes_nothing_for_programs(world: World) -> None:
    asking = asker(world.ann)
    english = asking.ask("POST", "/tokens/", {"name": "x"})
    chinese = asking.ask("POST", "/tokens/", {"name": "x"}, Accept_Language="zh-hans")
    assert json.loads(english.content)["errors"] == json.loads(chinese.content)["errors"]


def test_each_status_has_a_code() -> None:
    assert {400, 401, 403, 404, 405, 406, 412, 413, 415, 428, 429, 500, 503} == set(CODES)


def test_pages_keep_their_own_errors(db: None, services: Services) -> None:
    assert not Client().get("/no-such-page/").headers["Content-Type"].startswith("application/problem")


def test_the_answer_carries_the_caller_s_request_id(world: World) -> None:
    answer = asker(world.ann).ask("GET", "/nothing/", X_Request_ID="mine-1")
    assert answer.headers["X-Request-ID"] == "mine-1"
    assert json.loads(answer.content)["request_id"] == "mine-1"
