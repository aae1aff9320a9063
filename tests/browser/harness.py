"""A real server with a real database behind it, a lively hour of a cluster in it, and Chromium in front."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx
from django.conf import settings
from django.core.cache import cache
from django.db import connection, connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from rota.env import ROOT
from teams.models import User
from tests.browser.demo import Demo, make_demo
from tests.integration.running import free_port
from tests.needs import CHROMIUM
from tests.services import clean_environ

T = TypeVar("T")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@dataclass(frozen=True)
class Site:
    """A server that answers at ``url``, and what is in it."""

    url: str
    demo: Demo


@contextmanager
def serve(django_db_blocker: Any) -> Iterator[Site]:
    """Serve the demo to all tests of this folder; they change little of it, and nothing that others look at."""
    with django_db_blocker.unblock():
        cache.clear()
        demo = make_demo()
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "rota.serve"], stdin=subprocess.DEVNULL, env=_environ(port), cwd=ROOT
        )
        try:
            _wait(port, process)
            yield Site(f"http://127.0.0.1:{port}", demo)
        finally:
            process.terminate()
            process.wait(20)
            connections.close_all()


def _environ(port: int) -> dict[str, str]:
    """The server's environment: this process's own test database and number of Valkey."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    return clean_environ(
        PORT=str(port),
        DATABASE_URL=urlunsplit(database),
        REDIS_URL=os.environ["REDIS_URL"],
        ROTA_SECRET_KEY=settings.SECRET_KEY,
        ROTA_DB_POOL="0",
        ROTA_LOG_LEVEL="warning",
    )


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 40
    while True:
        assert process.poll() is None, "the server does not start"
        assert time.monotonic() < until, "the server does not answer"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)


def committed(action: Callable[..., T], *arguments: Any) -> T:
    """Do something on a connection of its own: a test's own changes are never committed, so the server sees none."""

    def apart() -> T:
        try:
            return action(*arguments)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(apart).result()


def session_of(username: str) -> str:
    """Sign somebody in and return the cookie that proves it."""
    client = Client()
    client.force_login(User.objects.get(username=username))
    return client.cookies["sessionid"].value


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, once for all."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """Somebody's browser window; notes everything that went wrong in it."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.context, self.site = context, site
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on(
            "response", lambda got: self.wrong.append(f"{got.status} {got.url}") if got.status >= 400 else None
        )

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status} {response.url}")

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # a page that is left ends what it was fetching
            self.wrong.append(f"{request.failure} {request.url}")

    def go(self, path: str) -> Page:
        """Open a page and wait until it is live and still."""
        self.page.goto(self.site.url + path, wait_until="load")
        self.page.wait_for_timeout(50)
        if self.page.locator("[data-live-sign]").count():
            self.page.wait_for_selector("[data-live-sign][data-state=on]", state="attached", timeout=10_000)
        if self.page.locator("[data-gpu-map]").count():
            self.page.wait_for_selector("[data-painted]", timeout=10_000)
        if self.page.locator("[data-chart]").count():
            self.page.wait_for_selector("[data-chart] svg", timeout=10_000)
        return self.page


@contextmanager
def windows(site: Site, browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Return a function that opens a window: visit(user, language, theme, size)."""
    opened: list[BrowserContext] = []

    def open_window(
        user: str | None = "ada", *, language: str = "en", theme: str = "light", size: dict[str, int] = WIDE
    ) -> Visit:
        seen: Any = {"viewport": size, "color_scheme": theme, "device_scale_factor": 1, "locale": "en"}
        context = browser.new_context(**seen, timezone_id="UTC")
        context.set_default_timeout(10_000)
        cookies: list[Any] = [{"name": "django_language", "value": language, "url": site.url}]
        if user is not None:
            cookies.append({"name": "sessionid", "value": committed(session_of, user), "url": site.url})
        context.add_cookies(cookies)
        opened.append(context)
        return Visit(context, site)

    yield open_window
    for context in opened:
        context.close()
