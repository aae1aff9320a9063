"""A small valid scenario, and its parts with whatever a test wants to change in them."""

from typing import Any

from scheduler.drive.scenario import Scenario, parse_scenario


def plain(**changes: Any) -> dict[str, Any]:
    """A small valid scenario with changes at the top."""
    return {
        "nodes": [{"prefix": "n", "count": 2, "gpus": 8, "model": "H100", "vram_gib": 80}],
        "teams": [{"name": "a"}],
        "jobs": [{"name": "j", "team": "a", "duration": "1h"}],
    } | changes


def parsed(**changes: Any) -> Scenario:
    return parse_scenario(plain(**changes))


def job(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "j", "team": "a", "duration": "1h"} | changes]


def node(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "n0", "gpus": 8, "model": "H100", "vram_gib": 80} | changes]


def team(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "a"} | changes]


def window(**changes: Any) -> list[dict[str, Any]]:
    return team(windows=[{"days": ["mon"], "from": "08:00", "to": "20:00", "model": "H100"} | changes])
