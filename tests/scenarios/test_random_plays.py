"""Random small clusters with everything happening at once: the invariants hold, and nothing is forgotten."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from scheduler.drive.scenario import parse_scenario
from scheduler.drive.simulate import simulate
from tests.scenarios.invariants import faults

ENDS = {"succeeded", "failed", "cancelled", "rejected", "held"}


def scenario(seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    nodes: list[dict[str, Any]] = [
        {"prefix": "n", "count": dice.randint(1, 4), "gpus": 4, "model": "H100", "vram_gib": 80, "cpus": 16},
        {"prefix": "m", "count": dice.randint(1, 3), "gpus": 2, "model": "A100", "vram_gib": 41, "cpus": 12,
         "at": dice.choice([0, 900])},
    ]  # fmt: skip
    names = [f"n{k}" for k in range(nodes[0]["count"])] + [f"m{k}" for k in range(nodes[1]["count"])]
    teams = [
        {"name": "dept", "quota": [{"model": "*", "limit": dice.randint(4, 12)}]},
        {"name": "a", "parent": "dept", "quota": [{"model": "H100", "limit": dice.randint(2, 8)}]},
        {"name": "b", "parent": "dept"},
        {"name": "c"},
    ]
    return {
        "seed": seed,
        "nodes": nodes,
        "teams": teams,
        "policy": {
            "queueing": dice.choice(["fifo", "fair", "capacity"]),
            "placement": dice.choice(["binpack", "spread", "hybrid"]),
            "backfill": dice.random() < 0.5,
            "launch_delay": dice.choice([0, 0, 20]),
            "stop_delay": dice.choice([0, 0, 30]),
            "retry": {"max": 2, "backoff": "30s"},
            "backpressure": {
                "starts_per_minute": dice.choice([0, 0, 6]),
                "max_starting": dice.choice([0, 0, 3]),
                "max_pending_per_team": dice.choice([0, 0, 8]),
            },
        },
        "jobs": [job(dice, number) for number in range(dice.randint(5, 40))],
        "edits": [edit(dice, names) for _ in range(dice.randint(0, 6))],
        "faults": [
            {
                "at": dice.randint(0, 3_600),
                "node": dice.choice(names),
                "kind": "node_down",
                "for": dice.choice([60, 900]),
            }
            for _ in range(dice.randint(0, 2))
        ],
        "until": "4d",
    }


def job(dice: random.Random, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": f"j{number}",
        "team": dice.choice("abc"),
        "at": dice.choice([0, 0, dice.randint(0, 3_600)]),
        "duration": dice.choice([30, 600, dice.randint(1, 5_000)]),
        "priority": dice.choice([100, 500, 500, 900]),
        "gpus": dice.choice([1, 1, 2, 4]),
        "replicas": dice.choice([1, 1, 1, 2, 3]),
    }
    if dice.random() < 0.3:
        row |= {"share": True, "vram_gib": dice.choice([5, 10.5, 40]), "gpus": 1}
    if dice.random() < 0.3:
        row["model"] = dice.choice(["H100", "A100"])
    if dice.random() < 0.3:
        row["time_limit"] = dice.randint(60, 4_000)
    if dice.random() < 0.2:
        row |= {"exit_codes": [1, 0], "run_for": [dice.randint(1, 300)]}
    if dice.random() < 0.2:
        row["checkpoint_every"] = 120
    if number and dice.random() < 0.15:
        row["after"] = [f"j{dice.randrange(number)}"]
    return row


def edit(dice: random.Random, names: list[str]) -> dict[str, Any]:
    at, node = dice.randint(0, 5_000), dice.choice(names)
    return dice.choice(
        [
            {"at": at, "cordon": node},
            {"at": at, "uncordon": node},
            {"at": at, "drain": node},
            {"at": at, "remove_node": node},
            {"at": at, "cancel": f"j{dice.randrange(5)}"},
            {"at": at, "team": "a", "quota": [{"model": "H100", "limit": dice.randint(1, 8)}]},
            {"at": at, "policy": {"placement": dice.choice(["binpack", "spread"])}},
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_invariants_hold_whatever_happens(seed: int) -> None:
    parsed = parse_scenario(scenario(seed))
    answer = json.loads(json.dumps(simulate(parsed).answer()))
    assert faults(parsed, answer) == []
    for name, one in answer["jobs"].items():
        if one["state"] not in ENDS:  # four days are enough for all of them, so it waits for what never comes
            assert one["state"] == "queued", name
            assert one["waits"][-1]["to"] is None
