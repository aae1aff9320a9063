"""The virtual cluster as a function of facts and time: tables of what has become of an attempt when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.backends.base import Cause, PermanentError, Phase
from scheduler.backends.virtual import (
    Facts,
    Fault,
    Part,
    World,
    choose_cards,
    log,
    profile,
    read_world,
    reading,
    report,
)

POOL = {"prefix": "n", "count": 2, "gpus": 4, "model": "H100"}
WORLD = read_world({"nodes": [POOL], "launch_delay": 10, "stop_delay": 5})
FACTS = Facts("a.1", 1000.0, (Part(0, "main", 0, "n1", ("GPU-sim-n1-0",)),), duration=100.0)


@pytest.mark.parametrize(
    ("facts", "world", "seen"),
    [
        ({}, {}, {1000: "starting", 1009: "starting", 1010: "running", 1109: "running", 1110: "exited self 0"}),
        ({}, {"speed": 10.0}, {1000.9: "starting", 1001: "running", 1010.9: "running", 1011: "exited self 0"}),
        ({"exit_code": 3}, {}, {1110: "exited self 3"}),
        ({"duration": None}, {}, {1010: "running", 1e9: "running"}),
        ({"time_limit": 50.0}, {}, {1064: "running", 1065: "exited time_limit 143"}),
        ({"stop": 1020.0}, {}, {1024: "running", 1025: "exited stopped 143"}),
        ({"stop": 1020.0, "grace": 2.0}, {}, {1021: "running", 1022: "exited stopped 137"}),
        ({"stop": 1002.0}, {}, {1006: "starting", 1007: "exited stopped 143"}),
        ({"stop": 1109.0}, {}, {1110: "exited self 0"}),  # it was through before it had ended
        ({}, {"faults": (Fault("n1", 1050.0),)}, {1169: "running", 1170: "lost lost None", 9e9: "lost lost None"}),
        ({}, {"faults": (Fault("n1", 1105.0, 1150.0),)}, {1149: "running", 1150: "exited self 0"}),
        ({}, {"faults": (Fault("n1", 1111.0, 5000.0),)}, {1110: "exited self 0", 2000: "exited self 0"}),
        ({}, {"faults": (Fault("n2", 1050.0),)}, {1110: "exited self 0"}),
        ({}, {"faults": (Fault("n1", 500.0, 900.0),)}, {1110: "exited self 0"}),
    ],
)
def test_what_has_become_of_an_attempt(facts: dict[str, Any], world: dict[str, Any], seen: dict[float, str]) -> None:
    for now, said in seen.items():
        found = report(replace(FACTS, **facts), replace(WORLD, **world), now)
        words = [str(found.phase)]
        if found.phase.ended:
            words += [str(found.cause), str(found.exit_code)]
            assert found.at <= now
        assert " ".join(words) == said, now
        assert [replica.phase for replica in found.replicas] == [found.phase]
        assert (found.started is None) == (found.phase is Phase.STARTING or found.at < 1010 / world.get("speed", 1.0))


def test_an_end_never_changes_as_time_goes_on() -> None:
    world = replace(WORLD, faults=(Fault("n1", 1040.0, 1300.0), Fault("n1", 1400.0, 1500.0)))
    ends = {report(FACTS, world, now) for now in range(1200, 3000, 7)}
    assert {(end.phase, end.at, end.cause) for end in ends} == {(Phase.LOST, 1160.0, Cause.LOST)}


def test_nodes_go_dark_and_come_back_and_say_so_once() -> None:
    world = replace(WORLD, faults=(Fault("n2", 100.0, 200.0),))
    assert [node.ready for node in world.nodes_at(150.0)] == [True, False]
    assert [node.ready for node in world.nodes_at(200.0)] == [True, True]
    assert [node.name for node in world.changed_between(99.0, 100.0)] == ["n2"]
    assert world.changed_between(100.0, 150.0) == ()
    assert world.changed_between(50.0, 250.0) == ()
    assert [node.ready for node in world.changed_between(150.0, 250.0)] == [True]


def test_any_part_of_a_log_is_what_the_whole_says() -> None:
    whole = log(FACTS, WORLD, 1060.0, offset=0, limit=1 << 20)
    assert (len(whole.data) % 64, whole.data.count(b"\n"), whole.eof) == (0, 11, False)
    for offset, limit in ((0, 1), (63, 2), (64, 64), (100, 1000), (len(whole.data), 5)):
        part = log(FACTS, WORLD, 1060.0, offset=offset, limit=limit)
        assert part.data == whole.data[offset : offset + limit]
        assert part.next_offset == offset + len(part.data)
    assert log(FACTS, WORLD, 1e6, offset=0, limit=1 << 20).eof
    assert not log(FACTS, WORLD, 1005.0, offset=0, limit=10).data


def test_nodes_pick_free_cards_and_nobody_gets_one_twice() -> None:
    picked = choose_cards(WORLD, [("a", "n1", 2), ("b", "n1", 1), ("c", "n1", 2), ("d", "n2", 4)], ["GPU-sim-n1-3"])
    assert picked["a"] == ("GPU-sim-n1-2", "GPU-sim-n1-1")
    assert picked["b"] == ("GPU-sim-n1-0",)
    assert "c" not in picked
    assert len(picked["d"]) == 4


@pytest.mark.parametrize(
    ("labels", "limit", "found"),
    [
        ({"simulate/duration": "20m", "simulate/exit": "7"}, None, (1200.0, 7)),
        ({"simulate/duration": "soon", "simulate/exit": "-1"}, 100.0, (None, 0)),
        ({}, 100.0, (None, 0)),
    ],
)
def test_what_a_job_plays(labels: dict[str, str], limit: float | None, found: tuple[float | None, int]) -> None:
    seconds, code = profile("k.1", labels, limit)
    assert code == found[1]
    assert profile("k.1", labels, limit) == (seconds, code)
    assert seconds == found[0] if found[0] is not None else 0 < seconds <= 95.0


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"speed": 0}, "config.speed: must be more than 0"),
        ({"nodes": [{"prefix": "n"}]}, "config.nodes[0].count: is missing"),
        ({"nodes": [POOL, POOL]}, "config.nodes: two nodes have the same name"),
        ({"sped": 2}, "config.sped: is not a known key, did you mean speed?"),
        ({"faults": [{"node": "n1"}]}, "config.faults[0].at: is missing"),
    ],
)
def test_a_wrong_configuration_names_its_place(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(PermanentError) as raised:
        read_world(config)
    assert str(raised.value) == problem


def test_telemetry_tells_busy_from_idle_and_stays_in_bounds() -> None:
    for now in range(0, 1000, 50):
        idle, busy = reading("GPU-1", float(now)), reading("GPU-1", float(now), "a.1")
        assert idle.utilization == 0.0 < busy.utilization <= 1.0
        assert idle.power_w < busy.power_w < 700
        assert idle.temperature_c < 40 < busy.temperature_c + 5 < 90


def test_a_world_is_laid_out_by_its_pools() -> None:
    assert isinstance(WORLD, World)
    assert [node.name for node in WORLD.nodes] == ["n1", "n2"]
    assert [card.virtual for card in WORLD.nodes[0].gpus] == [True] * 4
