"""Nobody who has not signed in learns anything: every address of the whole project is asked, by every method."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

from rota.urls import websocket_urlpatterns
from tests.services import Services

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PUBLIC = {
    # They tell what this program is, not what it holds.
    "/api/schema/", "/api/docs/", "/api/v1/version/", "/api/v1/health/",
    # Signing in, and what belongs to it.
    "/accounts/login/", "/accounts/signup/", "/accounts/inactive/", "/accounts/logout/", "/accounts/confirm-email/",
    "/accounts/confirm-email/000000000000/", "/accounts/password/reset/", "/accounts/password/reset/done/",
    "/accounts/password/reset/key/a-000000000000/", "/accounts/password/reset/key/done/",
    "/accounts/3rdparty/login/cancelled/", "/accounts/3rdparty/login/error/", "/accounts/3rdparty/signup/",
    "/accounts/2fa/authenticate/", "/accounts/oidc/a/login/", "/accounts/oidc/a/login/callback/",
    # Former addresses of some of these.
    "/accounts/social/connections/", "/accounts/social/login/cancelled/", "/accounts/social/login/error/",
    "/accounts/social/signup/",
    # The reader's language, kept in a cookie.
    "/i18n/setlang/",
}  # fmt: skip
SIGN_IN = "/accounts/login/"
SAMPLES = {"slug": "a", "key": "0" * 12, "cluster": "a", "name": "a", "team": "a", "username": "a"}


def addresses(resolver: Any = None, before: str = "/") -> Iterator[str]:
    """Every address that leads to a view, with something in the place of each of its parts."""
    for entry in (resolver or get_resolver()).url_patterns:
        part = _filled(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from addresses(entry, before + part)
        elif isinstance(entry, URLPattern):
            yield re.sub(r"/+", "/", before + part)


def _filled(pattern: Any) -> str:
    if isinstance(pattern, RoutePattern):
        text = re.sub(r"<(?:(\w+):)?(\w+)>", lambda m: "1" if m[1] == "int" else SAMPLES.get(m[2], "a"), str(pattern))
    else:
        text = re.sub(r"\(\?P<\w+>(\w+)(?:\|\w+)+\)", r"\1", str(pattern))  # one of several words: the first
        text = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", lambda m: SAMPLES.get(m[1], "a"), text)
        text = re.sub(r"\\Z|[\^$?]", "", text).replace("\\", "")
    return text


def test_the_list_is_of_the_whole_project() -> None:
    found = set(addresses())
    assert {"/api/v1/jobs/", "/api/v1/jobs/000000000000/logs/", "/api/v1/nodes/a/a/drain/", SIGN_IN, "/"} <= found
    assert len(found) > 60
    assert not any(set(address) & set("()<>[]*+^$\\") for address in found)


@pytest.mark.django_db
def test_every_address_asks_the_anonymous_to_sign_in(services: Services) -> None:
    cache.clear()
    open_ones: dict[str, list[str]] = {}
    for address in sorted(set(addresses()) - PUBLIC):
        for method in METHODS:
            cache.clear()
            answer = Client(raise_request_exception=False).generic(method, address)
            said = f"{method} {answer.status_code}"
            if address.startswith("/api/"):
                shut = answer.status_code == 401 or (answer.status_code == 405 and address.startswith("/api/v1/"))
            else:
                sent = answer.headers.get("Location", "").startswith(SIGN_IN)
                shut = answer.status_code in (401, 403, 405) or (answer.status_code == 302 and sent)
            if not shut:
                open_ones.setdefault(address, []).append(said)
    assert not open_ones, "\n" + "\n".join(f"{address}: {said}" for address, said in open_ones.items())


@pytest.mark.django_db
def test_what_is_public_is_there_and_tells_nothing(services: Services) -> None:
    cache.clear()
    for address in ("/api/schema/", "/api/docs/", "/api/v1/version/", "/api/v1/health/"):
        assert Client().get(address).status_code == 200, address
    stale = PUBLIC - set(addresses())
    assert not stale, sorted(stale)


def test_there_is_no_socket_without_a_test_of_its_own() -> None:
    # What a socket says to the anonymous is tested where the sockets are: this only makes sure that a new one is.
    assert {str(each.pattern) for each in websocket_urlpatterns} == {"live"}
