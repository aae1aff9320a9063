"""Asking the API as a program does: with a token, in JSON, over Django's own test client."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from api import tokens
from api.scopes import Scope
from teams.models import User
from tests.integration.world import World, make_world

PROBLEM = "application/problem+json"
KEYS = {"type", "title", "status", "code", "detail", "errors", "facts", "request_id"}


def token_text(user: User, *scopes: Scope, days: float = 1) -> str:
    """A new token of a user; without scopes one that allows everything."""
    expires = timezone.now() + timedelta(days=days)
    return tokens.issue(author=user, user=user, name="t", scopes=scopes or [Scope.ADMIN], expires_at=expires)[1]


@dataclass
class Asker:
    """Somebody who asks; `token` empty: anonymous."""

    token: str = ""
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        """Ask below /api/v1/; header names with `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            named["Authorization"] = f"Bearer {self.token}"
        data = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = self.client.generic(method, f"/api/v1{path}", headers=named, **data)  # type: ignore[arg-type]
        assert answer.headers["X-Request-ID"]
        if answer.status_code >= 400:
            check_problem(answer)
        return answer  # type: ignore[return-value]

    def get(self, path: str, **headers: str) -> Any:
        """The values of a resource that has to be there."""
        answer = self.ask("GET", path, **headers)
        assert answer.status_code == 200, answer.content
        return json.loads(answer.content)

    def post(self, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
        """Post something, and get what is answered with this status."""
        answer = self.ask("POST", path, {} if body is None else body, **headers)
        assert answer.status_code == status, answer.content
        return json.loads(answer.content)

    def refused(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and code of what has to be refused."""
        answer = self.ask(method, path, body, **headers)
        assert answer.status_code >= 400, answer.content
        return answer.status_code, json.loads(answer.content)["code"]


def check_problem(answer: Any) -> None:
    """Every error has the one shape."""
    assert answer.headers["Content-Type"] == PROBLEM
    problem = json.loads(answer.content)
    assert set(problem) == KEYS
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:rota:problem:{problem['code']}"
    assert problem["request_id"] == answer.headers["X-Request-ID"]
    assert problem["detail"]
    assert "\n" not in problem["detail"]
    assert all(set(error) == {"path", "message"} for error in problem["errors"])


def asker(user: User, *scopes: Scope) -> Asker:
    """Somebody with a new token."""
    return Asker(token_text(user, *scopes))


def fresh_world() -> World:
    """One cluster, one admin, one team with a lead and two members; and no rate limit that others have used up."""
    cache.clear()
    return make_world()
