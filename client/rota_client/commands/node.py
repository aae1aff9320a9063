"""Look at nodes, and cordon, drain or uncordon them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from rota_client.client import ApiError, Client
from rota_client.commands.common import OutputOption, WhyOption, asking, group
from rota_client.shown import Columns, Output, moment, show

app = group()
NodeArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NODE")]
ClusterOption: TypeAlias = Annotated[
    str | None, typer.Option("--cluster", "-c", help="Needed where several clusters have a node of that name.")
]


def _free(node: Mapping[str, Any]) -> str:
    cards = node["gpus"]
    free = sum(card["state"] == "ok" and card["allocated_mib"] == 0 and not card["missing_since"] for card in cards)
    return f"{free}/{len(cards)}"


def _cards(node: Mapping[str, Any]) -> str:
    said = []
    for card in node["gpus"]:
        held = "held" if card["whole"] else f"{card['allocated_mib']} MiB" if card["allocated_mib"] else "free"
        state = held if card["state"] == "ok" else card["state"]
        said.append(f"{card['index']}: {state}{' (virtual)' if card['virtual'] else ''}")
    return ", ".join(said)


COLUMNS: Columns = {
    "CLUSTER": lambda node: node["cluster"],
    "NAME": lambda node: node["name"],
    "STATE": lambda node: node["state"],
    "MODEL": lambda node: node["model"],
    "FREE": _free,
    "WHY": lambda node: node["cordon_why"] or node["note"],
}
DETAILS: Columns = {
    "cluster": lambda node: node["cluster"],
    "name": lambda node: node["name"],
    "state": lambda node: node["state"],
    "why": lambda node: node["cordon_why"] or node["note"],
    "by": lambda node: node["cordon_by"] or node["cordon_actor"],
    "since": lambda node: moment(node["cordon_at"]),
    "model": lambda node: node["model"],
    "gpus": _cards,
    "jobs": lambda node: [f"{job['name']} ({job['key']})" for job in node.get("jobs", [])],
    "rack": lambda node: node["rack"],
    "labels": lambda node: node["labels"],
    "taints": lambda node: node["taints"],
    "seen": lambda node: moment(node["seen_at"]),
}


@app.command("list")
def list_nodes(
    *,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c")] = None,
    state: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="Of its GPUs.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List nodes."""
    with asking() as client:
        rows = list(client.pages("nodes/", limit=200, cluster=cluster, state=state or None, model=model))
        show(output, rows, COLUMNS)


@app.command("show")
def show_node(node: NodeArgument, *, cluster: ClusterOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show one node, its cards, and who is on it."""
    with asking() as client:
        show(output, client.get(_path(client, node, cluster)), DETAILS)


@app.command()
def cordon(
    node: NodeArgument, *, why: WhyOption, cluster: ClusterOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Keep new work off a node; what runs there goes on."""
    _change(node, cluster, "cordon", {"why": why}, output)


@app.command()
def drain(
    node: NodeArgument, *, why: WhyOption, cluster: ClusterOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Get a node empty: no new work comes, what runs there is stopped and waits again."""
    _change(node, cluster, "drain", {"why": why}, output)


@app.command()
def uncordon(node: NodeArgument, *, cluster: ClusterOption = None, output: OutputOption = Output.TABLE) -> None:
    """Let a node take work again."""
    _change(node, cluster, "uncordon", {}, output)


def _change(node: str, cluster: str | None, verb: str, body: Mapping[str, str], output: Output) -> None:
    with asking() as client:
        path = f"{_path(client, node, cluster)}{verb}/"
        show(output, client.ask("POST", path, body=body, repeat=True).json(), DETAILS)


def _path(client: Client, name: str, cluster: str | None) -> str:
    if cluster is None:
        found = [node["cluster"] for node in client.pages("nodes/", name=name, limit=50)]
        if not found:
            raise ApiError(404, {"detail": f"there is no node {name}", "code": "node_not_found"})
        if len(found) > 1:
            raise ApiError(400, {"detail": f"--cluster: is missing; {name} is in {', '.join(found)}"})
        cluster = found[0]
    return f"nodes/{quote(cluster, safe='')}/{quote(name, safe='')}/"
