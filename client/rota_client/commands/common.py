"""What the words that ask a server have in common: the connection, the form of the output, the exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from rota_client import codes
from rota_client.client import ApiError, Client, RotaError, Unreachable
from rota_client.places import NoPlace
from rota_client.shown import Output

OutputOption: TypeAlias = Annotated[
    Output, typer.Option("--output", "-o", help="A table for people, json or yaml for programs.")
]
WhyOption: TypeAlias = Annotated[str, typer.Option("--why", "-m", help="For people, and kept.")]
PATIENCE = 5.0
"""Seconds that a quick command bears a server that does not answer."""
WAIT_PATIENCE = 300.0
"""The same for one that waits anyway: long enough for an upgrade."""
KEY_LENGTH = 12
KEY_LETTERS = frozenset("0123456789abcdefghjkmnpqrstvwxyz")


def group() -> typer.Typer:
    """A group of commands, in plain text as all of `rota`."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@contextmanager
def asking(*, patience: float = PATIENCE) -> Iterator[Client]:
    """A connection; what goes wrong with it becomes one line and an exit status."""
    try:
        with Client(patience=patience, on_retry=lambda what: complain(f"{what}; trying again")) as client:
            yield client
    except NoPlace as error:
        complain(str(error))
        raise typer.Exit(codes.UNREACHABLE) from None
    except RotaError as error:
        complain(str(error))
        if isinstance(error, ApiError) and error.status == 401:
            complain("Make a token and set ROTA_TOKEN, or use `rota login`.")
        raise typer.Exit(status_of(error)) from None


def status_of(error: RotaError) -> int:
    """The exit status for what a server, or its absence, said."""
    if isinstance(error, Unreachable):
        return codes.UNREACHABLE
    if isinstance(error, ApiError):
        if error.status in (401, 403):
            return codes.NO_PERMISSION
        if error.status in (400, 413, 415, 422):
            return codes.USAGE
        if error.status in (429, 502, 503, 504):
            return codes.UNREACHABLE
    return codes.FAILED


def complain(line: str) -> None:
    """One line on standard error."""
    print(f"rota: {line}", file=sys.stderr, flush=True)


def misused(line: str) -> typer.Exit:
    """What to raise where an option makes no sense."""
    complain(line)
    return typer.Exit(codes.USAGE)


def job_key(client: Client, given: str) -> str:
    """A job's key, from the key itself or from a name: then that of the newest job of that name."""
    if len(given) == KEY_LENGTH and set(given) <= KEY_LETTERS:
        try:
            return str(client.job(given)["key"])
        except ApiError as error:
            if error.status != 404:
                raise
    newest = next(client.jobs(name=given, most=1), None)
    if newest is None:
        raise ApiError(404, {"detail": f"there is no job {given}", "code": "job_not_found"})
    return str(newest["key"])


def pairs(given: list[str], option: str, *, lacking: dict[str, str] | None = None) -> dict[str, str]:
    """`K=V` options as a mapping; a mere `K` takes its value from ``lacking``."""
    found: dict[str, str] = {}
    for each in given:
        name, has, value = each.partition("=")
        if not name or (not has and (lacking is None or name not in lacking)):
            raise misused(f"{option}: {each!r} must be NAME=VALUE")
        found[name] = value if has or lacking is None else lacking[name]
    return found
