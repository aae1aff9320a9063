"""Whole scenario files and what they become."""

import json
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
    Silence,
    SpecError,
    changed,
    load_scenario,
    not_yet,
    parse_scenario,
    with_quota,
)
from scheduler.engine.policy import IdleAction, Policy, Queueing, Retry
from tests.needs import ROOT, SHARED
from tests.scenarios.samples import job, parsed, plain, window

FILES = sorted((SHARED / "scenarios").glob("[0-9]*.yaml"))
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
DAY = datetime(2026, 1, 5)  # noqa: DTZ001  a wall clock, whatever the zone


@pytest.mark.needs("shared")
def test_there_are_shared_files() -> None:
    assert FILES


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_examples_are_valid(path: Path) -> None:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert load_scenario(path, mode="simulate" if "nodes" in values else "run").jobs


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
