"""Whole days of small clusters on which people take, grow, reserve, break and edit: the invariants hold throughout."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.drive.scenario import parse_scenario
from scheduler.drive.simulate import simulate
from tests.scenarios.invariants import TINY, Answer, faults

TEAMS = ("a", "b", "c", "d")
DAY = 86_400


def a_day(dice: Random) -> dict[str, Any]:
    racks = dice.choice((1, 2))
    nodes = [
        {"prefix": "n", "count": dice.choice((2, 3, 4)), "gpus": 4, "model": "H100", "vram_gib": 80,
         "nodes_per_rack": racks, "cpus": 32},
        {"prefix": "m", "count": dice.choice((1, 2)), "gpus": 2, "model": "A100", "vram_gib": 40, "cpus": 16},
    ]  # fmt: skip
    names = [f"{group['prefix']}{number}" for group in nodes for number in range(int(str(group["count"])))]
    return {
        "start": "2026-03-02T00:00:00",
        "seed": dice.randrange(9),
        "until": "1d",
        "nodes": nodes,
        "teams": [{"name": "lab", "quota": [{"model": "*", "guaranteed": 8, "limit": dice.choice((8, 12))}]},
                  *(a_team(dice, name) for name in TEAMS)],
        "policy": a_policy(dice),
        "jobs": [a_job(dice, number) for number in range(dice.choice((8, 15, 25)))],
        "faults": [{"at": dice.randrange(DAY // 2), "node": dice.choice(names), "kind": "node_down",
                    **({"for": dice.choice((60, 900, 7_200))} if dice.random() < 0.8 else {})}
                   for _ in range(dice.choice((0, 0, 1, 2)))],
        "edits": [an_edit(dice, names) for _ in range(dice.choice((0, 1, 3)))],
    }  # fmt: skip


def a_team(dice: Random, name: str) -> dict[str, Any]:
    """At most 8 cards are guaranteed to all four together."""
    team: dict[str, Any] = {"name": name, "weight": dice.choice((1, 2))}
    if dice.random() < 0.5:
        team["parent"] = "lab"
    if dice.random() < 0.8:
        quota: dict[str, Any] = {"model": "H100", "guaranteed": dice.choice((0, 1, 2, 2))}
        if dice.random() < 0.4:
            quota["limit"] = dice.choice((4, 6, 8))
        if dice.random() < 0.2:
            quota["lend_limit"] = dice.choice((0, 1))
        team["quota"] = [quota]
    return team


def a_policy(dice: Random) -> dict[str, Any]:
    return {
        "queueing": dice.choice(("fifo", "fair", "capacity")),
        "placement": dice.choice(("binpack", "spread", "hybrid")),
        "backfill": dice.random() < 0.7,
        "reserve_for": dice.choice((0, 1, 2)),
        "preemption": {"enabled": dice.random() < 0.8, "min_runtime": dice.choice((0, 300, 600)),
                       "cooldown": dice.choice((0, 600)), "max_per_job": dice.choice((1, 3))},
        "reclaim": {"enabled": dice.random() < 0.8, "min_runtime": dice.choice((0, 300, 600))},
        "elastic": {"enabled": dice.random() < 0.7},
        "launch_delay": dice.choice((0, 0, 20)),
        "stop_delay": dice.choice((0, 0, 30, 600)),
    }  # fmt: skip


def a_job(dice: Random, number: int) -> dict[str, Any]:
    replicas = dice.choice((1, 1, 1, 2, 3))
    row: dict[str, Any] = {
        "name": f"j{number}",
        "team": dice.choice(TEAMS),
        "at": dice.choice((0, dice.randrange(DAY // 2))),
        "duration": dice.choice((300, 3_600, 20_000, dice.randint(1, 40_000))),
        "priority": dice.choice(("low", "normal", "normal", "high")),
        "gpus": dice.choice((1, 1, 2, 4)),
        "replicas": replicas,
    }
    if dice.random() < 0.2:
        row |= {"share": True, "vram_gib": dice.choice((10, 30)), "gpus": 1}
    if dice.random() < 0.3:
        row["min_replicas"] = 1
    if dice.random() < 0.2:
        row["max_replicas"] = replicas + 2
    if dice.random() < 0.1 and row.get("min_replicas"):
        row["scale"] = [{"from": "08:00", "to": "20:00", "replicas": 1}]
    if dice.random() < 0.5:
        row["time_limit"] = dice.choice((3_600, 30_000))
    if dice.random() < 0.5:
        row["checkpoint_every"] = 600
    if dice.random() < 0.2:
        row["topology"] = dice.choice(
            ({"require": "rack"}, {"prefer": "rack"}, {"spread": "node"}, {"spread": "rack", "max_per_domain": 0.5})
        )
    if dice.random() < 0.1:
        row["preemptible"] = False
    if dice.random() < 0.1:
        row |= {"exit_codes": [1, 0], "run_for": [60]}
    return row


def an_edit(dice: Random, names: list[str]) -> dict[str, Any]:
    at = dice.randrange(DAY)
    return dice.choice(
        (
            {"at": at, "team": dice.choice(TEAMS), "quota": [{"model": "H100", "guaranteed": 1, "limit": 4}]},
            {"at": at, "policy": {"placement": "spread"}},
            {"at": at, "cordon": dice.choice(names)},
            {"at": at, "drain": dice.choice(names)},
            {"at": at, "cancel": "j1"},
        )
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 24).map(lambda seed: a_day(Random(seed))))
def test_a_day_keeps_the_invariants(day: dict[str, Any]) -> None:
    scenario = parse_scenario(day)
    answer = json.loads(json.dumps(simulate(scenario).answer()))
    assert faults(scenario, answer) == []
    for row in day["jobs"]:
        check_protections(day["policy"], row, answer)


def check_protections(policy: dict[str, Any], row: dict[str, Any], answer: Answer) -> None:
    """Who was taken from had had its time, and not too often; whoever does not run at the end is told why."""
    job = answer["jobs"][row["name"]]
    ends = [attempt["end"] for attempt in job["attempts"]]
    assert ends.count("preempted") <= policy["preemption"]["max_per_job"]
    assert "preempted" not in ends or row.get("preemptible", True)
    for attempt in job["attempts"]:
        rules = {"preempted": "preemption", "reclaimed": "reclaim"}.get(attempt["end"])
        if rules is not None:
            assert policy[rules]["enabled"]
            assert attempt["ended"] - attempt["started"] >= policy[rules]["min_runtime"] - TINY
    if job["state"] == "queued":
        assert job["waits"][-1]["to"] is None
