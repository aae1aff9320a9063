"""Look at quotas, and set them."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from rota_client.client import Client
from rota_client.commands.common import OutputOption, asking, group, misused
from rota_client.shown import Columns, Output, show

app = group()
TeamArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TEAM")]
ClusterOption: TypeAlias = Annotated[str | None, typer.Option("--cluster", "-c", help="Default: the default one.")]
AmountOption: TypeAlias = Annotated[str | None, typer.Option(help='Cards, "50%" of them, or `none`.')]
COLUMNS: Columns = {
    "CLUSTER": lambda row: row["cluster"],
    "TEAM": lambda row: row["team"],
    "MODEL": lambda row: row["model"],
    "GUARANTEED": lambda row: row["guaranteed"],
    "LIMIT": lambda row: row["limit"],
    "LENDS": lambda row: row["lend_limit"],
    "USED": lambda row: row["used"],
}


@app.command("show")
def show_quota(
    team: Annotated[str | None, typer.Argument(metavar="[TEAM]")] = None,
    *,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Default: all.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what teams may have, and what they hold now."""
    with asking() as client:
        documents = list(client.pages("quotas/", limit=200, team=team, cluster=cluster))
    show(output, documents if output is not Output.TABLE else _lines(documents), COLUMNS)


@app.command("set")
def set_quota(
    team: TeamArgument,
    *,
    why: Annotated[str, typer.Option("--why", "-m", help="For people, and kept.")],
    model: Annotated[str, typer.Option(help="GPU model; * means all together.")] = "*",
    guaranteed: AmountOption = None,
    limit: AmountOption = None,
    lend_limit: AmountOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the numbers for this model away.")] = False,
    cluster: ClusterOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a team's numbers for one GPU model; what is not named stays. For admins."""
    given = {"guaranteed": guaranteed, "limit": limit, "lend_limit": lend_limit}
    if remove == any(value is not None for value in given.values()):
        raise misused("give --guaranteed, --limit or --lend-limit, or else --remove")
    with asking() as client:
        slug = cluster or _default(client)
        path = f"quotas/{quote(slug, safe='')}/{quote(team, safe='')}/"
        answer = client.ask("GET", path)
        document, etag = answer.json(), answer.headers["ETag"]
        rows = {row["model"]: {name: value for name, value in row.items() if value is not None}
                for row in document["quotas"]}  # fmt: skip
        if remove:
            rows.pop(model, None)
        else:
            rows[model] = _changed(rows.get(model, {"model": model}), given)
        body = {"quotas": list(rows.values()), "windows": _plain(document["windows"]), "why": why}
        # Whoever changed it since we looked has not seen this change: the server refuses it then.
        changed = client.ask("PUT", path, body=body, headers={"If-Match": etag}).json()
    show(output, changed if output is not Output.TABLE else _lines([changed | {"used": {}}]), COLUMNS)


def _changed(row: dict[str, Any], given: dict[str, str | None]) -> dict[str, Any]:
    for name, value in given.items():
        if value == "none":
            row.pop(name, None)
        elif value is not None:
            row[name] = int(value) if value.isdecimal() else value
    return row


def _plain(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in window.items() if value is not None} for window in windows]


def _default(client: Client) -> str:
    clusters = list(client.pages("clusters/", limit=200))
    found = [each["slug"] for each in clusters if each["is_default"]] or [each["slug"] for each in clusters]
    if len(found) != 1:
        raise misused(f"--cluster: is missing; there are {', '.join(found) or 'none'}")
    return str(found[0])


def _lines(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each model that a team has numbers for or cards of."""
    lines = []
    for document in documents:
        rows = {row["model"]: row for row in document["quotas"]}
        used = document["used"]
        for model in sorted({*rows, *used}):
            cards = sum(used.values()) if model == "*" else used.get(model, 0)
            numbers = {name: rows.get(model, {}).get(name) for name in ("guaranteed", "limit", "lend_limit")}
            named = {"cluster": document["cluster"], "team": document["team"], "model": model}
            lines.append(named | numbers | {"used": cards})
    return lines
