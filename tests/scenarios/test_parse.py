"""Whole scenario files: what they become, and the one line for everything that can be wrong."""

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.limits import Amount, Quota
from scheduler.drive.scenario import (
    CancelEdit,
    Fault,
    FaultKind,
    JobProfile,
    NodeAction,
    NodeEdit,
    NodeSpec,
    PolicyEdit,
    QuotaEdit,
    Scenario,
    Silence,
    SpecError,
    changed,
    load_scenario,
    not_yet,
    parse_scenario,
    with_quota,
)
from scheduler.engine.policy import IdleAction, Policy, Queueing, Retry

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("ROTA_SHARED", ROOT.parent / "shared")) / "scenarios"
FILES = sorted(SHARED.glob("[0-9]*.yaml"))
NAN = float("nan")
DAY = datetime(2026, 1, 5)  # noqa: DTZ001  a wall clock, whatever the zone


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


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_shared_files_are_read_or_refused_as_they_say(path: Path) -> None:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "invalid" in values:
        with pytest.raises(SpecError) as caught:
            load_scenario(path)
        assert values["invalid"] in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        return
    scenario = load_scenario(path)
    # The same from plain values, from YAML that another writer made, and from JSON.
    assert parse_scenario(values) == scenario
    assert parse_scenario(yaml.safe_dump(values, sort_keys=False, allow_unicode=True)) == scenario
    assert parse_scenario(json.dumps(values, default=str)) == scenario


def test_the_smallest_file_and_its_defaults() -> None:
    scenario = parse_scenario("nodes: [{name: m, gpus: 1, model: A100, vram_gib: 40}]\njobs: []")
    assert scenario.nodes == (NodeSpec("m", 1, "A100", 40_960, 1_024, 128_000, 2_097_152, "m-rack0", "m-switch0", "m"),)
    assert scenario.policy == Policy()
    assert (scenario.start, scenario.timezone, scenario.until, scenario.seed) == (DAY, "UTC", None, 0)
    assert [team.name for team in scenario.quotas.teams] == ["default"]
    assert scenario.start_unix == 1_767_571_200


def test_nodes_are_written_out() -> None:
    scenario = parsed(
        nodes=[
            {"prefix": "n", "count": 5, "gpus": 8, "model": "H100", "vram_gib": 80, "reserve_gib": 0, "cpus": 0.5,
             "nodes_per_rack": 2, "nodes_per_switch": 4, "labels": {"zone": "a"}, "taints": ["t"], "memory_gib": 1},
            {"name": "m0", "gpus": 4, "model": "A100", "vram_gib": 40, "rack": "r", "switch": "s", "nvlink": "d",
             "at": "1h"},
        ]
    )  # fmt: skip
    n4, m0 = scenario.nodes[4:]
    assert n4 == NodeSpec(
        "n4", 8, "H100", 81_920, 0, 500, 1_024, "n-rack2", "n-switch1", "n4", (("zone", "a"),), ("t",)
    )
    assert (m0.name, m0.rack, m0.switch, m0.nvlink, m0.at) == ("m0", "r", "s", "d", 3600.0)


def test_jobs_are_written_out() -> None:
    scenario = parsed(
        jobs=[
            {"name": "big", "team": "a", "at": "10m", "count": 3, "every": "10s", "duration": "6h",
             "exit_codes": [1, 0], "run_for": ["5m"], "hang_at": "20m", "hang_attempts": 2, "idle_at": 5,
             "checkpoint_every": "10m", "silent": [{"at": "5m", "for": "4m", "phase": "save", "budget": "10m"}]},
            {"name": "next", "team": "a", "duration": 0, "after": ["big", "big-1"]},
        ]
    )  # fmt: skip
    assert [(job.spec.name, job.at) for job in scenario.jobs] == [
        ("big-0", 600.0), ("big-1", 610.0), ("big-2", 620.0), ("next", 0.0)
    ]  # fmt: skip
    profile = scenario.jobs[2].profile
    assert profile == JobProfile(
        21_600.0, (1, 0), (300.0,), 1_200.0, 2, (Silence(300.0, 240.0, "save", 600.0),), 5.0, 600.0
    )
    assert [profile.exit_code(attempt) for attempt in (1, 2, 3)] == [1, 0, 0]
    assert [profile.hangs(attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert scenario.jobs[3].spec.after == ("big-0", "big-1", "big-2")


def test_count_one_is_a_copy_and_a_plain_name_goes_before_one_for_copies() -> None:
    jobs = [{"name": "x", "team": "a", "duration": 1, "count": 1}, *job(name="x"), *job(name="y", after=["x"])]
    scenario = parsed(jobs=jobs)
    assert [one.spec.name for one in scenario.jobs] == ["x-0", "x", "y"]
    assert scenario.jobs[2].spec.after == ("x",)


def test_faults_and_edits_come_in_the_order_of_time() -> None:
    scenario = parsed(
        jobs=[*job(), *job(name="c", count=2)],
        faults=[
            {"at": "2m", "node": "n1", "gpu": 2, "kind": "xid", "code": 31, "for": "5m"},
            {"node": "n0", "kind": "temp", "c": 95},
            {"at": "1m", "node": "n0", "kind": "node_down"},
        ],
        edits=[
            {"at": 9, "cancel": "c"},
            {"at": 3, "policy": {"retry": {"max": 1}}},
            {"at": 3, "team": "a", "quota": [{"model": "H100", "guaranteed": 8}]},
            {"at": 1, "remove_node": "n1"},
        ],
    )
    assert scenario.faults == (
        Fault(0.0, "n0", FaultKind.TEMP, 0, celsius=95.0),
        Fault(60.0, "n0", FaultKind.NODE_DOWN),
        Fault(120.0, "n1", FaultKind.XID, 2, code=31, length=300.0),
    )
    quota = QuotaEdit(3.0, "a", (Quota("H100", Amount(8)),))
    assert scenario.edits == (
        NodeEdit(1.0, NodeAction.REMOVE_NODE, "n1"),
        PolicyEdit(3.0, {"retry": {"max": 1}}),
        quota,
        CancelEdit(9.0, ("c-0", "c-1")),
    )
    assert changed(scenario.policy, {"retry": {"max": 1}}).retry == Retry(max=1)
    assert with_quota(scenario.quotas, quota).teams[0].quotas == quota.quotas


def test_a_policy_is_read_whole() -> None:
    scenario = parsed(
        policy={
            "queueing": "fifo",
            "retry": {"max": 0, "backoff": "1m"},
            "idle": {"after": "1h", "action": "stop"},
            "inference_headroom": 0.25,
        }
    )
    assert scenario.policy.queueing is Queueing.FIFO
    assert scenario.policy.retry == Retry(max=0, backoff=60.0)
    assert (scenario.policy.idle.after, scenario.policy.idle.action) == (3600.0, IdleAction.STOP)
    assert scenario.policy.inference_headroom == 0.25
    assert scenario.policy.fair == Policy().fair


def test_windows_and_percentages() -> None:
    scenario = parsed(teams=window(**{"from": "22:00", "to": "06:00", "guaranteed": "50%", "reclaim_lead": "10m"}))
    (only,) = scenario.quotas.teams[0].windows
    assert (only.days, only.guaranteed, only.limit, only.reclaim_lead) == (
        frozenset({0}),
        Amount(50, percent=True),
        None,
        600.0,
    )


def test_the_clock_of_the_zone_gives_the_start() -> None:
    scenario = parsed(start="2026-03-02T12:00:00", timezone="Asia/Shanghai")
    assert scenario.start_unix == 1_772_424_000


def test_a_file_of_commands_needs_neither_nodes_nor_durations_nor_teams() -> None:
    text = "jobs: [{name: j, command: [echo, hi], env: {A: b}}]\nedits: [{at: 1, cordon: here}]"
    scenario = parse_scenario(text, mode="run")
    assert scenario.nodes == ()
    assert scenario.jobs[0].spec.command == ("echo", "hi")
    assert scenario.jobs[0].profile.duration is None
    share = [{"name": "x", "quota": [{"model": "anything", "guaranteed": "50%"}]}, {"name": "y", "parent": "x"}]
    assert parse_scenario({"teams": share, "jobs": []}, mode="run").quotas.teams[1].parent == "x"


RUN_BAD: list[tuple[dict[str, Any], str]] = [
    ({"jobs": job()}, "jobs[0].command: is missing"),
    ({"jobs": job(command="echo")}, 'jobs[0].command: must be a list, not "echo"'),
    ({"jobs": [], "nodes": node()}, "nodes: must be left out: jobs run on this machine's own cards"),
    ({"jobs": [], "faults": []}, "faults: must be left out: jobs run on this machine's own cards"),
    (
        {"teams": team(), "jobs": job(command=["x"], env={"CUDA_VISIBLE_DEVICES": "0"})},
        "jobs[0].env.CUDA_VISIBLE_DEVICES: is set by Rota and cannot be chosen",
    ),
    ({}, "jobs: is missing"),
]


@pytest.mark.parametrize(("values", "message"), RUN_BAD, ids=range(len(RUN_BAD)))
def test_a_file_of_commands_is_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_scenario(values, mode="run")
    assert str(caught.value) == message


NAMED = "must be there, or prefix, and not both"
GHOST_PARENT = [{"name": "a", "parent": "ghost"}]
CIRCLE = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]
CHILDREN = [
    {"name": "a", "quota": [{"model": "H100", "guaranteed": 8}]},
    {"name": "x", "parent": "a", "quota": [{"model": "H100", "guaranteed": 8}]},
]
FAULTY = "must be one of gpu_lost, xid, temp, ecc_uncorrected, driver_lost, node_down, telemetry_lost, not "
EDITABLE = "must have exactly one of policy, team, cancel, cordon, uncordon, drain, remove_node"
CARDS = 'must be a whole number of cards or a percentage such as "50%", not '
SPAN = "must be a duration such as 90, 90s, 5m, 2h or 1d, not "
CLOCK = 'must be a time of day from "00:00" to "23:59"'
BAD: list[tuple[dict[str, Any], str]] = [
    # the top
    ({"node": []}, "node: is not a known key, did you mean nodes?"),
    ({"start": "yesterday"}, 'start: must be a date and time such as 2026-03-02T08:00:00, not "yesterday"'),
    ({"start": "2026-13-01"}, 'start: must be a date and time such as 2026-03-02T08:00:00, not "2026-13-01"'),
    ({"start": "2026-03-02T00:00:00Z"}, "start: must have no offset: it is the wall clock of timezone"),
    ({"start": "9999-12-31"}, "start: must lie between the years 1970 and 2200"),
    ({"start": 5}, "start: must be a date and time such as 2026-03-02T08:00:00, not 5"),
    ({"timezone": "Mars/Olympus"}, 'timezone: must be a time zone such as Europe/Berlin, not "Mars/Olympus"'),
    ({"timezone": "../etc/passwd"}, 'timezone: must be a time zone such as Europe/Berlin, not "../etc/passwd"'),
    ({"timezone": "Europe"}, 'timezone: must be a time zone such as Europe/Berlin, not "Europe"'),
    ({"timezone": ""}, 'timezone: must be a time zone such as Europe/Berlin, not ""'),
    ({"timezone": 8}, "timezone: must be text, not 8: put it in quotes"),
    ({"until": 0}, "until: must be more than 0"),
    ({"until": -1}, "until: must not be negative"),
    ({"until": NAN}, f"until: {SPAN}nan"),
    ({"seed": 1.5}, "seed: must be a whole number, not 1.5"),
    ({"seed": -1}, "seed: must be at least 0"),
    # nodes
    ({"nodes": []}, "nodes: must not be empty"),
    ({"nodes": {}}, "nodes: must be a list, not a mapping"),
    ({"nodes": [5]}, "nodes[0]: must be a mapping, not 5"),
    ({"nodes": node(count=0)}, "nodes[0].count: must be at least 1"),
    ({"nodes": node(count=-3)}, "nodes[0].count: must be at least 1"),
    ({"nodes": node(count=1_000_001)}, "nodes[0].count: must be at most 1000000"),
    ({"nodes": node(count=True)}, "nodes[0].count: must be a whole number, not true"),
    ({"nodes": node(count=2)}, "nodes[0].count: needs prefix instead of name"),
    ({"nodes": node(prefix="n")}, f"nodes[0].name: {NAMED}"),
    ({"nodes": [{"gpus": 8, "model": "H100", "vram_gib": 80}]}, f"nodes[0].name: {NAMED}"),
    ({"nodes": node() + node()}, 'nodes[1].name: "n0" is there twice'),
    (
        {"nodes": [*node(), {"prefix": "n", "gpus": 1, "model": "H100", "vram_gib": 80}]},
        'nodes[1].prefix: "n0" is there twice',
    ),
    (
        {"nodes": [{"prefix": "n", "count": 200_000, "gpus": 8, "model": "H100", "vram_gib": 80}]},
        "nodes: must not come to more than 1000000 GPUs, these are 1600000",
    ),
    (
        {"nodes": [{"prefix": "n" * 200, "gpus": 8, "model": "H100", "vram_gib": 80}]},
        "nodes[0].prefix: makes names longer than 200 characters",
    ),
    ({"nodes": node(gpus=0)}, "nodes[0].gpus: must be at least 1"),
    ({"nodes": node(gpus=1.5)}, "nodes[0].gpus: must be a whole number, not 1.5"),
    ({"nodes": node(model="")}, "nodes[0].model: must not be empty"),
    ({"nodes": node(vram_gib=0)}, "nodes[0].vram_gib: must be more than 0"),
    ({"nodes": node(vram_gib="80")}, 'nodes[0].vram_gib: must be a number, not "80"'),
    ({"nodes": node(reserve_gib=81)}, "nodes[0].reserve_gib: must be at most vram_gib, which is 80"),
    ({"nodes": node(nodes_per_rack=0)}, "nodes[0].nodes_per_rack: must be at least 1"),
    ({"nodes": node(labels={"zone": 5})}, "nodes[0].labels.zone: must be text, not 5: put it in quotes"),
    ({"nodes": node(taints=["x", "x"])}, 'nodes[0].taints[1]: "x" is there twice'),
    ({"nodes": node(at="-1h")}, "nodes[0].at: must not be negative"),
    ({"nodes": node(vram=80)}, "nodes[0].vram: is not a known key, did you mean vram_gib?"),
    # teams
    ({"teams": []}, "teams: must not be empty"),
    ({"teams": [{"weight": 1}]}, "teams[0].name: is missing"),
    ({"teams": team() + team()}, 'teams[1].name: "a" is there twice'),
    ({"teams": GHOST_PARENT}, 'teams[0].parent: there is no team "ghost"'),
    ({"teams": CIRCLE}, 'teams[0].parent: "a" is its own ancestor'),
    ({"teams": team(parent="a")}, 'teams[0].parent: "a" is its own ancestor'),
    ({"teams": team(weight=0)}, "teams[0].weight: must be more than 0"),
    ({"teams": team(weights=1)}, "teams[0].weights: is not a known key, did you mean weight?"),
    ({"teams": team(quota={"model": "H100"})}, "teams[0].quota: must be a list, not a mapping"),
    ({"teams": team(quota=[{"guaranteed": 8}])}, "teams[0].quota[0].model: is missing"),
    ({"teams": team(quota=[{"model": "H200"}])},
     'teams[0].quota[0].model: there is no model "H200", did you mean "H100"?'),
    ({"teams": team(quota=[{"model": "*"}, {"model": "*"}])}, 'teams[0].quota[1].model: "*" is there twice'),
    ({"teams": team(quota=[{"model": "*", "guaranteed": -1}])}, "teams[0].quota[0].guaranteed: must be at least 0"),
    ({"teams": team(quota=[{"model": "*", "guaranteed": 1.5}])}, f"teams[0].quota[0].guaranteed: {CARDS}1.5"),
    ({"teams": team(quota=[{"model": "*", "limit": True}])}, f"teams[0].quota[0].limit: {CARDS}true"),
    ({"teams": team(quota=[{"model": "*", "limit": None}])}, f"teams[0].quota[0].limit: {CARDS}null"),
    ({"teams": team(quota=[{"model": "*", "limit": "half"}])}, f'teams[0].quota[0].limit: {CARDS}"half"'),
    ({"teams": team(quota=[{"model": "*", "limit": "-5%"}])}, f'teams[0].quota[0].limit: {CARDS}"-5%"'),
    ({"teams": team(quota=[{"model": "*", "limit": "101%"}])}, "teams[0].quota[0].limit: must be at most 100%"),
    ({"teams": team(quota=[{"model": "*", "limits": 1}])},
     "teams[0].quota[0].limits: is not a known key, did you mean limit?"),
    (
        {"teams": team(quota=[{"model": "*", "guaranteed": 9, "limit": 8}])},
        "teams[0].quota[0].guaranteed: 9 is more than limit, which is 8",
    ),
    (
        {"teams": [CHILDREN[0], {**CHILDREN[1], "quota": [{"model": "H100", "guaranteed": "100%"}]}]},
        'teams[0].quota: "a": its children are guaranteed 16 H100, more than its own 8',
    ),
    ({"teams": window(days=[])}, "teams[0].windows[0].days: must not be empty"),
    ({"teams": window(days=["Mon"])},
     'teams[0].windows[0].days[0]: must be one of mon, tue, wed, thu, fri, sat, sun, not "Mon"'),
    ({"teams": window(days=["mon", "mon"])}, 'teams[0].windows[0].days[1]: "mon" is there twice'),
    ({"teams": window(to="08:00")}, "teams[0].windows[0].to: must differ from from"),
    ({"teams": window(to=1200)}, f"teams[0].windows[0].to: {CLOCK} in quotes, not 1200"),
    ({"teams": window(model="A100")}, 'teams[0].windows[0].model: there is no model "A100", did you mean "H100"?'),
    ({"teams": window(guaranteed=9, limit=8)}, "teams[0].windows[0].guaranteed: 9 is more than limit, which is 8"),
    ({"teams": window(reclaim_lead=-1)}, "teams[0].windows[0].reclaim_lead: must not be negative"),
    # policy
    ({"policy": []}, "policy: must be a mapping, not a list"),
    ({"policy": {"queuing": "fifo"}}, "policy.queuing: is not a known key, did you mean queueing?"),
    ({"policy": {"queueing": "lifo"}}, 'policy.queueing: must be one of fifo, fair, capacity, not "lifo"'),
    ({"policy": {"backfill": 1}}, "policy.backfill: must be true or false, not 1"),
    ({"policy": {"reserve_for": -1}}, "policy.reserve_for: must be at least 0"),
    ({"policy": {"preemption": {"on": True}}}, "policy.preemption.on: is not a known key"),
    ({"policy": {"preemption": True}}, "policy.preemption: must be a mapping, not true"),
    ({"policy": {"fair": {"half_life": 0}}}, "policy.fair.half_life: must be more than 0"),
    ({"policy": {"watermark": {"low": 0.9}}}, "policy.watermark.low: must be below high"),
    ({"policy": {"watermark": {"low": 1.5}}}, "policy.watermark.low: must be at most 1"),
    ({"policy": {"retry": {"max_backoff": 1}}}, "policy.retry.max_backoff: must be at least backoff"),
    ({"policy": {"health": {"clear_c": 95}}}, "policy.health.clear_c: must be below temp_c"),
    ({"policy": {"idle": {"action": "kill"}}}, 'policy.idle.action: must be one of alert, stop, not "kill"'),
    ({"policy": {"cycle": 0}}, "policy.cycle: must be more than 0"),
    # jobs
    ({"jobs": {}}, "jobs: must be a list, not a mapping"),
    ({"jobs": [None]}, "jobs[0]: must be a mapping, not null"),
    ({"jobs": job(count=0)}, "jobs[0].count: must be at least 1"),
    ({"jobs": job(count=1_000_001)}, "jobs[0].count: must be at most 1000000"),
    ({"jobs": job(count=600_000) + job(name="k", count=600_000)}, "jobs: must not come to more than 1000000 jobs"),
    ({"jobs": job(name="n" * 199, count=1)}, "jobs[0].name: makes names longer than 200 characters"),
    ({"jobs": job() + job()}, 'jobs[1].name: "j" is there twice'),
    ({"jobs": job(count=2) + job(name="j-1")}, 'jobs[1].name: "j-1" is there twice'),
    ({"jobs": job(team="ghost")}, 'jobs[0].team: there is no team "ghost"'),
    ({"jobs": [{"name": "j", "duration": 1}]}, "jobs[0].team: is missing"),
    ({"jobs": [{"name": "j", "team": "a"}]}, "jobs[0].duration: is missing"),
    ({"jobs": job(duration=-5)}, "jobs[0].duration: must not be negative"),
    ({"jobs": job(duration=NAN)}, f"jobs[0].duration: {SPAN}nan"),
    ({"jobs": job(gpus=0)}, "jobs[0].gpus: must be at least 1"),
    ({"jobs": job(gpu=1)}, "jobs[0].gpu: is not a known key, did you mean gpus?"),
    ({"jobs": job(at="soon")}, f'jobs[0].at: {SPAN}"soon"'),
    ({"jobs": job(exit_codes=[])}, "jobs[0].exit_codes: must not be empty"),
    ({"jobs": job(exit_codes=[256])}, "jobs[0].exit_codes[0]: must be at most 255"),
    ({"jobs": job(run_for="5m")}, 'jobs[0].run_for: must be a list, not "5m"'),
    ({"jobs": job(hang_attempts=0)}, "jobs[0].hang_attempts: must be at least 1"),
    ({"jobs": job(silent=[{"at": 1}])}, "jobs[0].silent[0].for: is missing"),
    ({"jobs": job(after=["ghost"])}, 'jobs[0].after[0]: there is no job "ghost"'),
    ({"jobs": job(name="train") + job(after=["trian"])},
     'jobs[1].after[0]: there is no job "trian", did you mean "train"?'),
    ({"jobs": job(after=["j"])}, 'jobs[0].after: waits for itself: "j" → "j"'),
    ({"jobs": job(count=3, after=["j-0"])}, 'jobs[0].after: waits for itself: "j" → "j"'),
    (
        {"jobs": job(after=["k"]) + job(name="k", count=2, after=["l"]) + job(name="l", after=["j"])},
        'jobs[0].after: waits for itself: "j" → "k" → "l" → "j"',
    ),
    # faults
    ({"faults": [{"node": "n9", "kind": "node_down"}]}, 'faults[0].node: there is no node "n9"'),
    ({"faults": [{"node": "n0", "gpu": 8, "kind": "gpu_lost"}]}, "faults[0].gpu: must be at most 7, n0 has 8 GPUs"),
    ({"faults": [{"node": "n0", "gpu": -1, "kind": "gpu_lost"}]}, "faults[0].gpu: must be at least 0"),
    ({"faults": [{"node": "n0", "kind": "fire"}]}, f'faults[0].kind: {FAULTY}"fire"'),
    ({"faults": [{"kind": "xid", "code": 31}]}, "faults[0].node: is missing"),
    ({"faults": [{"node": "n0", "kind": "xid"}]}, "faults[0].code: is missing"),
    ({"faults": [{"node": "n0", "kind": "temp"}]}, "faults[0].c: is missing"),
    ({"faults": [{"node": "n0", "kind": "temp", "c": 90, "code": 1}]}, "faults[0].code: is only for kind xid"),
    ({"faults": [{"node": "n0", "kind": "node_down", "for": 0}]}, "faults[0].for: must be more than 0"),
    # edits
    ({"edits": [{"at": 1}]}, f"edits[0]: {EDITABLE}"),
    ({"edits": [{"cancel": "j"}]}, "edits[0].at: is missing"),
    ({"edits": [{"at": 1, "cancel": "j", "cordon": "n0"}]}, f"edits[0]: {EDITABLE}"),
    ({"edits": [{"at": 1, "cancel": "ghost"}]}, 'edits[0].cancel: there is no job "ghost"'),
    ({"edits": [{"at": 1, "cordon": "ghost"}]}, 'edits[0].cordon: there is no node "ghost"'),
    ({"edits": [{"at": 1, "team": "ghost", "quota": []}]}, 'edits[0].team: there is no team "ghost"'),
    ({"edits": [{"at": 1, "team": "a"}]}, "edits[0].quota: is missing"),
    ({"edits": [{"at": 1, "quota": [], "cancel": "j"}]}, "edits[0].quota: needs team"),
    ({"edits": [{"at": 1, "team": "a", "quota": [{"model": "X"}]}]}, 'edits[0].quota[0].model: there is no model "X"'),
    ({"edits": [{"at": 1, "policy": {"placement": "best"}}]},
     'edits[0].policy.placement: must be one of binpack, spread, hybrid, fragmentation, not "best"'),
    (
        {"edits": [
            {"at": 2, "policy": {"watermark": {"low": 0.6}}},
            {"at": 1, "policy": {"watermark": {"high": 0.5}}},
        ]},
        "edits[0].policy.watermark.low: must be below high",
    ),
    (
        {"teams": CHILDREN, "edits": [{"at": 1, "team": "a", "quota": [{"model": "H100", "guaranteed": 4}]}]},
        'edits[0].quota: "a": its children are guaranteed 8 H100, more than its own 4',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[f"{number}-{row[1][:40]}" for number, row in enumerate(BAD)])
def test_a_bad_file_gets_one_line_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_scenario(plain(**changes))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("[]", "the file must hold a mapping, not a list"),
        ("hello", 'the file must hold a mapping, not "hello"'),
        ("{}", "nodes: is missing"),
        (None, "the file is empty"),
        (7, "the file must hold a mapping, not 7"),
    ],
)
def test_what_is_no_scenario_at_all(source: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_scenario(source)
    assert str(caught.value) == message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nope\.yaml: cannot be read: No such file or directory$"):
        load_scenario(tmp_path / "nope.yaml")
    with pytest.raises(SpecError, match=r": cannot be read: Is a directory$"):
        load_scenario(tmp_path)


def test_a_job_for_hardware_that_does_not_exist_is_no_error() -> None:
    """It waits, and says why; more cards may come."""
    assert parsed(jobs=job(model=["B200"], gpus=64)).jobs[0].spec.groups[0].models == ("B200",)


def test_about_expect_and_invalid_are_ignored() -> None:
    assert parsed(about=5, expect={"x": [1]}, invalid=None) == parsed()


def test_a_long_line_of_jobs_each_waiting_for_the_one_before() -> None:
    jobs = [*job(name="j0"), *(row for i in range(1, 5_000) for row in job(name=f"j{i}", after=[f"j{i - 1}"]))]
    assert len(parsed(jobs=jobs).jobs) == 5_000
    jobs[0]["after"] = ["j4999"]
    with pytest.raises(SpecError, match=r"^jobs\[0\]\.after: waits for itself: .*….*$"):
        parsed(jobs=jobs)


def test_teams_nested_without_end_are_refused_and_not_fatal() -> None:
    teams: list[dict[str, Any]] = [
        {"name": "a"},
        *({"name": f"t{i}", "parent": f"t{i - 1}" if i else "a"} for i in range(3_000)),
    ]
    for row in teams[1:]:
        row["quota"] = []
    teams[0]["quota"] = [{"model": "H100", "guaranteed": 8}]
    with pytest.raises(SpecError, match=r"^teams: is nested too deeply$"):
        parsed(teams=teams)


LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["1h", "n", "a", "H100", "50%", "08:00", ""])
)
KEYS = st.sampled_from(
    ["name", "prefix", "count", "gpus", "model", "vram_gib", "at", "team", "duration", "after", "quota", "windows",
     "days", "from", "to", "kind", "node", "policy", "cancel", "cordon", "retry", "max", "silent", "for", "groups"]
)  # fmt: skip
JUNK = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=15
)
MODES: tuple[Literal["simulate", "run"], ...] = ("simulate", "run")
TOP = st.sampled_from(["start", "timezone", "until", "seed", "nodes", "teams", "policy", "jobs", "faults", "edits"])


@settings(deadline=None)
@given(
    st.dictionaries(TOP, JUNK | st.lists(st.dictionaries(KEYS, JUNK, max_size=6), max_size=3), max_size=5),
    st.sampled_from(MODES),
)
def test_junk_raises_nothing_but_spec_errors(changes: dict[str, Any], mode: Literal["simulate", "run"]) -> None:
    line = ""
    try:
        parse_scenario(plain(**changes), mode=mode)
    except SpecError as error:
        line = str(error)
    assert len(line.splitlines()) <= 1


@pytest.mark.slow
def test_46000_jobs_are_read_in_three_seconds() -> None:
    jobs = [
        {"name": f"j{i}", "at": i * 7.5, "team": "a", "replicas": 1 + i % 3, "gpus": 1 + i % 8, "duration": 100.0 + i,
         "time_limit": 100.0 + i}
        for i in range(46_000)
    ]  # fmt: skip
    text = json.dumps(plain(jobs=jobs))
    begun = time.process_time()
    scenario = parse_scenario(text)
    assert time.process_time() - begun <= 3.0
    assert len(scenario.jobs) == 46_000


def test_what_has_no_effect_yet_is_named_where_a_file_turns_it_on() -> None:
    assert not_yet(plain()) == []
    off = {"policy": {"preemption": {"enabled": False}, "reserve_for": 0, "backfill": False, "idle": {"after": "0s"}}}
    assert not_yet(plain(**off)) == []
    table = {"policy.watermark": bool, "jobs.topology": bool, "teams.quota.lend_limit": bool, "faults": bool}
    turned_on = plain(
        jobs=[*job(), *job(name="k", topology={"require": "rack"})],
        edits=[
            {"at": 1, "policy": {"watermark": {"enabled": True}}},
            {"at": 1, "team": "a", "quota": [{"lend_limit": 1}]},
        ],
        faults=[{}],
    )
    assert not_yet(turned_on, table) == list(table)
