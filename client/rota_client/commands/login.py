"""Remember where Rota is, and a token for it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rota_client.commands.common import asking, complain, misused
from rota_client.places import store, stored_path
from rota_client.shown import text


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as https://rota.example.org")],
    *,
    token: Annotated[
        str,
        typer.Option(prompt=True, hide_input=True, envvar="ROTA_TOKEN", help="Default: ROTA_TOKEN, else asked for."),
    ],
) -> None:
    """Store an address and a token for this user, after trying them."""
    if not url.startswith(("http://", "https://")):
        raise misused("URL: must begin with https:// or http://")
    os.environ["ROTA_URL"], os.environ["ROTA_TOKEN"] = url, token.strip()
    with asking(patience=5.0) as client:
        me = client.get("me/")
    path = stored_path(os.environ)
    store(path, url, token.strip())
    complain(f"you are {text(me['username'])}; kept in {path}")
