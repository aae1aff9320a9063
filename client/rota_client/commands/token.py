"""Make, list and revoke tokens."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota_client.commands.common import OutputOption, asking, complain, group
from rota_client.shown import Columns, Output, moment, show

app = group()
COLUMNS: Columns = {
    "KEY": lambda token: token["key"],
    "NAME": lambda token: token["name"],
    "USER": lambda token: token["user"],
    "SCOPES": lambda token: token["scopes"],
    "EXPIRES": lambda token: moment(token["expires_at"]),
    "LAST USED": lambda token: moment(token["last_used_at"]),
    "REVOKED": lambda token: moment(token["revoked_at"]),
}


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    *,
    scope: Annotated[list[str] | None, typer.Option(help="read, submit, manage, admin (default: submit).")] = None,
    days: Annotated[int, typer.Option(help="How long it is good for.")] = 90,
    user: Annotated[str | None, typer.Option(help="Whose; only admins make them for others.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token and print it: it is not shown again."""
    body = {"name": name, "scopes": scope or ["submit"], "expires_in_days": days} | ({"user": user} if user else {})
    with asking() as client:
        made = client.post("tokens/", body)
    if output is Output.TABLE:
        typer.echo(made["token"])
        complain(f"good until {moment(made['expires_at'])}, for {', '.join(made['scopes'])}; it is not shown again")
    else:
        show(output, made, COLUMNS)


@app.command("list")
def list_tokens(*, output: OutputOption = Output.TABLE) -> None:
    """List tokens, without their secrets."""
    with asking() as client:
        show(output, list(client.pages("tokens/", limit=200)), COLUMNS)


@app.command()
def revoke(key: Annotated[str, typer.Argument(metavar="KEY")]) -> None:
    """End a token at once."""
    with asking() as client:
        client.ask("DELETE", f"tokens/{quote(key, safe='')}/")
    complain(f"the token {key} is revoked")
