"""One job for one key, however often and however many at once ask for it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from jobs.models import Job
from tests.api.asking import Asker, asker, fresh_world
from tests.integration.world import World
from tests.services import Services

BODY = {"name": "once", "gpus": 1, "command": ["true"], "labels": {"a": "1", "b": "2"}}
AT_ONCE = 20


@pytest.mark.django_db(transaction=True)
def test_twenty_at_once_make_one_job(services: Services) -> None:
    """C61, as all of this file."""
    world = fresh_world()
    token, gate = asker(world.ann).token, threading.Barrier(AT_ONCE)

    def post(_: int) -> tuple[int, str]:
        gate.wait(20)
        try:
            answer = Asker(token).ask("POST", "/jobs/", BODY, Idempotency_Key="k")
            return answer.status_code, json.loads(answer.content).get("key", "")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(post, range(AT_ONCE)))
    assert sorted(status for status, _ in answers) == [200] * (AT_ONCE - 1) + [201]
    assert len({key for _, key in answers}) == 1
    assert Job.objects.count() == 1


@pytest.fixture
def world(db: None, services: Services) -> World:
    return fresh_world()


def test_the_same_key_is_the_same_job(world: World) -> None:
    ann = asker(world.ann)
    first = ann.post("/jobs/", BODY, status=201, Idempotency_Key="k")
    shuffled = dict(reversed(list(BODY.items()))) | {"labels": {"b": "2", "a": "1"}}
    again = ann.ask("POST", "/jobs/", shuffled | {"team": world.team.slug}, Idempotency_Key="k")
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
    assert json.loads(again.content)["key"] == first["key"]
    assert ann.refused("POST", "/jobs/", BODY | {"gpus": 2}, Idempotency_Key="k") == (409, "idempotency_key_reused")
    other = asker(world.bob).post("/jobs/", BODY, status=201, Idempotency_Key="k")
    assert other["key"] != first["key"]
    assert ann.post("/jobs/", BODY, status=201)["key"] != first["key"]
    assert Job.objects.count() == 3


def test_a_refusal_does_not_use_a_key_up(world: World) -> None:
    ann = asker(world.ann)
    assert ann.refused("POST", "/jobs/", BODY | {"gpus": 0}, Idempotency_Key="k") == (400, "invalid")
    assert ann.post("/jobs/", BODY, status=201, Idempotency_Key="k")["state"] == "queued"


def test_trying_again_can_be_repeated_too(world: World) -> None:
    ann = asker(world.ann)
    key = ann.post("/jobs/", BODY, status=201)["key"]
    ann.post(f"/jobs/{key}/cancel/")
    first = ann.post(f"/jobs/{key}/retry/", status=201, Idempotency_Key="r")
    assert ann.post(f"/jobs/{key}/retry/", Idempotency_Key="r")["key"] == first["key"]


@pytest.mark.parametrize("key", ["", "x" * 256, "ä"])
def test_a_key_that_is_none_is_refused(world: World, key: str) -> None:
    assert asker(world.ann).refused("POST", "/jobs/", BODY, Idempotency_Key=key) == (400, "idempotency_key_invalid")
