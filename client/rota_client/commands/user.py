"""Look after accounts: list, add, give a new password."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from rota_client.commands.common import OutputOption, asking, complain, group
from rota_client.shown import Columns, Output, moment, show

app = group()
COLUMNS: Columns = {
    "USER": lambda user: user["username"],
    "NAME": lambda user: user["name"],
    "EMAIL": lambda user: user["email"],
    "ADMIN": lambda user: "yes" if user["admin"] else "no",
    "ACTIVE": lambda user: "yes" if user["active"] else "no",
    "LAST SIGN-IN": lambda user: moment(user["last_login"]),
}
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What the user signs in with.")]


@app.command("list")
def list_users(*, output: OutputOption = Output.TABLE) -> None:
    """List the users, for admins."""
    with asking() as client:
        show(output, list(client.pages("users/", limit=200)), COLUMNS)


@app.command()
def add(
    name: NameArgument,
    *,
    email: Annotated[str, typer.Option(help="May be used to sign in, too.")] = "",
    full_name: Annotated[str, typer.Option(help="As people say it.")] = "",
    admin: Annotated[bool, typer.Option("--admin", help="One who runs the platform.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a user and print the one-time password: it is not shown again."""
    with asking() as client:
        made = client.post("users/", {"username": name, "name": full_name, "email": email, "admin": admin})
    _tell(made, output)


@app.command("reset-password")
def reset_password(name: NameArgument, *, output: OutputOption = Output.TABLE) -> None:
    """Give a user a new one-time password and print it: it is not shown again."""
    with asking() as client:
        made = client.post(f"users/{quote(name, safe='')}/reset-password/", {})
    _tell(made, output)


def _tell(made: dict[str, Any], output: Output) -> None:
    """The password alone on standard output, the rest for people beside it."""
    if output is Output.TABLE:
        typer.echo(made["one_time_password"])
        complain(f"the one-time password of {made['username']}; it is not shown again, the first sign-in changes it")
    else:
        show(output, made, COLUMNS)
