"""Look at teams and who is in them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota_client.commands.common import OutputOption, asking, group
from rota_client.shown import Columns, Output, moment, show

app = group()
COLUMNS: Columns = {
    "TEAM": lambda team: team["slug"],
    "NAME": lambda team: team["name"],
    "PARENT": lambda team: team["parent"],
    "STATE": lambda team: team["state"],
    "RUNNING": lambda team: team["running"],
    "PENDING": lambda team: team["pending"],
}
MEMBERS: Columns = {
    "USER": lambda member: member["user"],
    "ROLE": lambda member: member["role"],
    "UNTIL": lambda member: moment(member["until"]),
}


@app.command("list")
def list_teams(
    *,
    archived: Annotated[bool, typer.Option("--archived", help="Those that are archived, instead.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the teams that you see."""
    with asking() as client:
        show(output, list(client.pages("teams/", limit=200, archived="true" if archived else None)), COLUMNS)


@app.command()
def members(team: Annotated[str, typer.Argument(metavar="TEAM")], *, output: OutputOption = Output.TABLE) -> None:
    """List who is in a team."""
    with asking() as client:
        show(output, list(client.pages(f"teams/{quote(team, safe='')}/members/", limit=200)), MEMBERS)
