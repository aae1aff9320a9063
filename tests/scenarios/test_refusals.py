"""The one line for everything that can be wrong with a scenario file."""

from typing import Any

import pytest

from scheduler.drive.scenario import SpecError, parse_scenario
from tests.scenarios.samples import job, node, plain, team, window

NAN = float("nan")
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
    ({"nodes": node(gpus=1025)}, "nodes[0].gpus: must be at most 1024"),
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
