"""Rota's REST API for Python: what the command line stands on, and programs may use.

    client = Client()                                   # finds address and token as the command line does
    job = client.submit({"name": "hello", "command": ["true"]})
    for piece in client.log(job["key"]): ...

What fails on the way (no connection, a restarting server, 429) is tried again for `patience` seconds, if asking twice
does no harm; submissions carry an idempotency key, so for them too it does none.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from rota_client import __version__
from rota_client.places import find

Values = dict[str, Any]
TRANSIENT = frozenset({429, 502, 503, 504})
HARMLESS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Methods that may be repeated whatever became of the first try."""
LONGEST_PAUSE = 5.0
LOG_WAIT = 10
"""Seconds that one request for a log waits for more of it."""


class RotaError(Exception):
    """Something went wrong; the text is one line for people."""


class Unreachable(RotaError):
    """The server did not answer, for as long as we were ready to try."""


class ApiError(RotaError):
    """The server said no. ``code`` is one word, ``errors`` name the values that are wrong, ``facts`` the numbers."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or f"the server answered {status}"))
        self.status = status
        self.code = str(problem.get("code") or "error")
        self.errors: list[Mapping[str, str]] = list(problem.get("errors") or ())
        self.facts: Mapping[str, Any] = problem.get("facts") or {}
        self.request_id = str(problem.get("request_id") or "")


class Client:
    """One server, asked with one token. Not for several threads at once."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        patience: float = 20.0,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        on_retry: Callable[[str], None] | None = None,
    ) -> None:
        """Without ``url`` it is found as the command line finds it. ``on_retry`` is told, once, what is waited for."""
        if url is None:
            place = find(os.environ, Path.cwd())
            url, token = place.url, place.token if token is None else token
        self.url = url.rstrip("/")
        self.patience = patience
        self._on_retry = on_retry
        headers = {"User-Agent": f"rota-client/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # Redirects are not followed: a token must not wander to another host.
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/", headers=headers, timeout=timeout, transport=transport,
            trust_env=not _is_loopback(self.url),
        )  # fmt: skip

    def __enter__(self) -> Client:
        """Use it as a context manager to give its connections back."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    # -- any resource -------------------------------------------------------------------------------------------------

    def get(self, path: str, **params: Any) -> Any:
        """The values at a path below /api/v1/. Raises ApiError, Unreachable."""
        return self.ask("GET", path, params=params).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        """Post; with an idempotency ``key`` also again and again."""
        return self.ask("POST", path, body=body or {}, headers={"Idempotency-Key": key} if key else {}).json()

    def pages(self, path: str, *, most: int | None = None, **params: Any) -> Iterator[Values]:
        """The rows of a list one by one, whatever way it goes by pages; at most ``most``."""
        page = self.get(path, **params)
        left = most
        while True:
            for row in page["results"]:
                if left is not None and left <= 0:
                    return
                left = None if left is None else left - 1
                yield row
            if not page["next"] or left == 0:
                return
            # Only its query: what the server takes for its own name may not be how we reach it.
            page = self.ask("GET", f"{path}?{urlsplit(page['next']).query}").json()

    def ask(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None, repeat: bool = False,
    ) -> httpx.Response:  # fmt: skip
        """Ask once, or as often as it takes where that is harmless (``repeat`` says that it is)."""
        headers = dict(headers or {})
        params = {name: value for name, value in (params or {}).items() if value is not None}
        harmless = repeat or method in HARMLESS or "Idempotency-Key" in headers
        until, pause, told = time.monotonic() + self.patience, 0.2, False
        while True:
            failure, wait = self._try(method, path, body, params, headers)
            if isinstance(failure, httpx.Response):
                return failure
            again = harmless or isinstance(failure.__cause__, httpx.ConnectError)
            pause = max(wait, pause)
            if not again or time.monotonic() + pause > until:
                raise failure
            if not told and self._on_retry is not None:
                self._on_retry(str(failure))
            told = True
            time.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311  so that a crowd comes apart
            pause = min(LONGEST_PAUSE, pause * 2)

    def _try(
        self, method: str, path: str, body: Mapping[str, Any] | None, params: Mapping[str, Any],
        headers: Mapping[str, str],
    ) -> tuple[httpx.Response | RotaError, float]:  # fmt: skip
        """One try: the answer, or what may be tried again and after how many seconds. Raises what may not."""
        try:
            answer = self._http.request(method, path.lstrip("/"), json=body, params=params or None, headers=headers)
        except httpx.TransportError as error:
            failure = Unreachable(f"{self.url} does not answer: {_said(error)}")
            failure.__cause__ = error
            return failure, 0.0
        if answer.status_code < 400 and not answer.is_redirect:
            return answer, 0.0
        problem = _problem(answer)
        if answer.status_code not in TRANSIENT:
            raise problem
        seconds = answer.headers.get("Retry-After", "")
        return problem, float(seconds) if seconds.isdigit() else 0.0

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, body: Mapping[str, Any], *, key: str | None = None) -> Values:
        """Submit a job. ``key``: the same one, with the same body, never makes a second job; default: a new one."""
        made: Values = self.post("jobs/", body, key=key or str(uuid.uuid4()))
        return made

    def job(self, key: str) -> Values:
        """One job."""
        found: Values = self.get(f"jobs/{quote(key, safe='')}/")
        return found

    def jobs(self, *, most: int | None = None, **filters: Any) -> Iterator[Values]:
        """Jobs, newest first; see the API's description for the filters."""
        return self.pages("jobs/", most=most, limit=min(most or 200, 200), **filters)

    def change_job(self, key: str, verb: str, why: str = "") -> Values:
        """`cancel`, `hold`, `release` or `requeue` a job; done twice they do no harm."""
        body = {"why": why} if why else {}
        changed: Values = self.ask("POST", f"jobs/{quote(key, safe='')}/{verb}/", body=body, repeat=True).json()
        return changed

    def retry_job(self, key: str, *, idempotency_key: str | None = None) -> Values:
        """A new job that asks for the same as one that has ended."""
        made: Values = self.post(f"jobs/{quote(key, safe='')}/retry/", key=idempotency_key or str(uuid.uuid4()))
        return made

    def log_piece(
        self, key: str, *, attempt: int | None = None, replica: int = 0, offset: int = 0, wait: int = 0
    ) -> Values:
        """A piece of a replica's output: text, next_offset, eof, attempt; waits for one up to ``wait`` seconds."""
        params = {"attempt": attempt, "replica": replica, "offset": offset, "wait": wait or None}
        piece: Values = self.get(f"jobs/{quote(key, safe='')}/logs/", **params)
        return piece

    def log(self, key: str, *, attempt: int | None = None, replica: int = 0, follow: bool = False) -> Iterator[str]:
        """The output of one attempt (default: the newest), piece by piece; with ``follow`` until it has ended."""
        offset = 0
        while True:
            piece = self.log_piece(key, attempt=attempt, replica=replica, offset=offset, wait=LOG_WAIT if follow else 0)
            if piece["text"]:
                yield piece["text"]
            attempt, moved = piece["attempt"] or attempt, piece["next_offset"] > offset
            offset = piece["next_offset"]
            if piece["eof"] or (not follow and not moved):
                return


def _problem(answer: httpx.Response) -> ApiError:
    if answer.is_redirect:
        where = answer.headers.get("Location", "elsewhere")
        return ApiError(
            answer.status_code, {"detail": f"the server sends us to {where}: use that address", "code": "moved"}
        )
    try:
        plain = answer.json()
    except ValueError:
        plain = None
    return ApiError(answer.status_code, plain if isinstance(plain, dict) else {})


def _said(error: httpx.TransportError) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _is_loopback(url: str) -> bool:
    """This machine is asked directly, whatever proxy the environment names."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
