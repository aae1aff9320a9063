"""Fixtures of the browser tests; what they are made of is imported late, because it needs Django set up."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

HARNESS = "tests.browser.harness"


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest, django_db_blocker: Any, services: Any) -> Iterator[None]:
    """The test database, which the server asks too: so nothing here is rolled back, and no test is marked for it."""
    if any(item.get_closest_marker("django_db") for item in request.session.items):
        request.getfixturevalue("django_db_setup")
        yield
        return
    runner = importlib.import_module("django.test.utils")
    with django_db_blocker.unblock():
        made = runner.setup_databases(verbosity=0, interactive=False, aliases={"default"})
        yield
        runner.teardown_databases(made, verbosity=0)


@pytest.fixture(scope="session")
def site(database: None, django_db_blocker: Any) -> Iterator[Any]:
    """A running server with a lively hour in it (tests.browser.harness.Site)."""
    with importlib.import_module(HARNESS).serve(django_db_blocker) as served:
        yield served


@pytest.fixture(scope="module")
def browser(site: Any) -> Iterator[Any]:
    """Chromium. No longer than a module: while it runs, so does its event loop, and Django wants none around."""
    with importlib.import_module(HARNESS).chromium() as chromium:
        yield chromium


@pytest.fixture
def visit(site: Any, browser: Any) -> Iterator[Any]:
    """Return a function that opens somebody's window: visit(user, language=…, theme=…, size=…)."""
    with importlib.import_module(HARNESS).windows(site, browser) as open_window:
        yield open_window
