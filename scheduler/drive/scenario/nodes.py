"""The ``nodes`` of a file, its rows of like nodes written out."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.reading import (
    MOST,
    NAME_LENGTH,
    SpecError,
    duration,
    integer,
    list_of,
    name,
    number,
    pairs_of,
    record,
    shown,
    text,
)
from jobs.spec import milli
from scheduler.drive.scenario.values import NodeSpec
from scheduler.engine.demand import MIB_PER_GIB

CARDS_MOST = 1024
"""Cards of one node: ledgers are as wide as the widest one."""
_READ = list_of(
    record(
        {
            "name": name,
            "prefix": name,
            "count": integer(),
            "gpus": integer(most=CARDS_MOST),
            "model": name,
            "vram_gib": number(0, above=True),
            "reserve_gib": number(0),
            "cpus": number(0, above=True),
            "memory_gib": number(0, above=True),
            "nodes_per_rack": integer(),
            "nodes_per_switch": integer(),
            "rack": name,
            "switch": name,
            "nvlink": name,
            "labels": pairs_of(text),
            "taints": list_of(name, unique=True),
            "at": duration(),
        },
        needs=("gpus", "model", "vram_gib"),
    ),
    empty=False,
)


def read_nodes(value: object) -> tuple[NodeSpec, ...]:
    """Read the list of nodes; a row with ``prefix`` and ``count`` stands for that many."""
    rows = _READ(value)
    cards = sum(row.get("count", 1) * row["gpus"] for row in rows)
    if cards > MOST:
        raise SpecError("", f"must not come to more than {MOST} GPUs, these are {shown(cards)}")
    nodes: dict[str, NodeSpec] = {}
    for position, row in enumerate(rows):
        try:
            for node in _expanded(row):
                if node.name in nodes:
                    raise SpecError("name" if "name" in row else "prefix", f"{shown(node.name)} is there twice")
                nodes[node.name] = node
        except SpecError as error:
            raise error.under(position) from None
    return tuple(nodes.values())


def _expanded(row: Mapping[str, Any]) -> Iterator[NodeSpec]:
    count = row.get("count", 1)
    if ("name" in row) == ("prefix" in row):
        raise SpecError("name", "must be there, or prefix, and not both")
    if "name" in row and count > 1:
        raise SpecError("count", "needs prefix instead of name")
    stem = row.get("prefix") or row["name"]
    if "prefix" in row and len(f"{stem}{count - 1}") > NAME_LENGTH:
        raise SpecError("prefix", f"makes names longer than {NAME_LENGTH} characters")
    reserve = row.get("reserve_gib", 1)
    if reserve > row["vram_gib"]:
        raise SpecError("reserve_gib", f"must be at most vram_gib, which is {row['vram_gib']:g}")
    common = {
        "gpus": row["gpus"],
        "model": row["model"],
        "vram_mib": math.floor(row["vram_gib"] * MIB_PER_GIB),
        "reserve_mib": math.ceil(reserve * MIB_PER_GIB),
        "cpus_milli": milli(row.get("cpus", 128)),
        "memory_mib": math.floor(row.get("memory_gib", 2_048) * MIB_PER_GIB),
        "labels": row.get("labels", ()),
        "taints": row.get("taints", ()),
        "at": row.get("at", 0.0),
    }
    for number_of in range(count):
        title = f"{stem}{number_of}" if "prefix" in row else row["name"]
        yield NodeSpec(
            name=title,
            rack=row.get("rack") or f"{stem}-rack{number_of // row.get('nodes_per_rack', count)}",
            switch=row.get("switch") or f"{stem}-switch{number_of // row.get('nodes_per_switch', count)}",
            nvlink=row.get("nvlink", title),
            **common,
        )
