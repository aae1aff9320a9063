"""Look at clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota_client.commands.common import OutputOption, asking, group
from rota_client.shown import Columns, Output, show

app = group()


def _pools(cluster: Mapping[str, Any]) -> str:
    return ", ".join(f"{pool['gpus'] - pool['gpus_held']}/{pool['gpus']} {pool['model']}" for pool in cluster["pools"])


COLUMNS: Columns = {
    "CLUSTER": lambda cluster: cluster["slug"],
    "NAME": lambda cluster: cluster["name"],
    "BACKEND": lambda cluster: cluster["backend"],
    "DEFAULT": lambda cluster: cluster["is_default"],
    "NODES": lambda cluster: sum(pool["nodes"] for pool in cluster["pools"]),
    "FREE GPUS": _pools,
    "PROBLEM": lambda cluster: cluster["sync_problem"],
}


@app.command("list")
def list_clusters(*, output: OutputOption = Output.TABLE) -> None:
    """List the clusters that are open to you."""
    with asking() as client:
        show(output, list(client.pages("clusters/", limit=200)), COLUMNS)


@app.callback()
def _group() -> None:
    """Look at clusters."""
