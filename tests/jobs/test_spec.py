"""A job from plain values: what it becomes, and the one line for everything that can be wrong."""

from datetime import time
from signal import SIGUSR1
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.reading import SpecError
from jobs.spec import JOB_FIELDS, Budgets, JobSpec, parse_job
from scheduler.engine.demand import Group, Kind, Level, ScaleWindow, Shape, Topology

NAN, INF = float("nan"), float("inf")


def job(**values: Any) -> JobSpec:
    return parse_job({"name": "j", "team": "a", **values})


def test_defaults() -> None:
    assert job() == JobSpec(name="j", team="a", user="a", groups=(Group(),))
    assert job().priority == 500
    assert not job().elastic
    assert job().shape(avoided=frozenset({"n0"})) == Shape(avoided=frozenset({"n0"}))


def test_the_place_of_a_team_and_a_user_can_be_taken() -> None:
    assert parse_job({"name": "j"}, team="t", user="u") == JobSpec(name="j", team="t", user="u")
    assert parse_job({"name": "j", "team": "a", "user": "b"}, team="t", user="u").user == "b"
    with pytest.raises(SpecError, match=r"^team: is missing$"):
        parse_job({"name": "j"})


EVERYTHING: dict[str, Any] = {
    "user": "u",
    "kind": "inference",
    "replicas": 4,
    "gpus": 2,
    "cpus": 1.5,
    "memory_gib": 0.5,
    "vram_gib": 19,
    "share": True,
    "model": "H100",
    "node_selector": {"zone": "a", "arch": "x"},
    "tolerations": ["maintenance"],
    "topology": {"require": "rack", "prefer": "node", "spread": "rack", "max_per_domain": 0.5},
    "priority": "high",
    "time_limit": "8h",
    "preemptible": False,
    "min_runtime": 0,
    "min_replicas": 2,
    "max_replicas": 8,
    "scale": [{"from": "20:00", "to": "08:00", "replicas": 3, "vram_gib": 10}],
    "not_before": "1h",
    "after": ["other"],
    "max_wait": "30m",
    "retries": 0,
    "retry_window": "1d",
    "budgets": {"heartbeat": "1m", "progress": "15m", "startup": 0, "phases": {"checkpoint": "10m"}},
    "checkpoint": {"signal": "USR1", "grace": "2m"},
    "command": ["python", "train.py", ""],
    "env": {"B": "2", "A": ""},
    "cwd": "/data",
    "labels": {"project": "x"},
}
"""A job that says all there is to say."""


def test_everything_at_once() -> None:
    spec = job(**EVERYTHING)
    assert spec == JobSpec(
        name="j",
        team="a",
        user="u",
        kind=Kind.INFERENCE,
        groups=(
            Group(
                name="main",
                replicas=4,
                gpus=2,
                cpus_milli=1500,
                memory_mib=512,
                vram_mib=19 * 1024,
                share=True,
                models=("H100",),
                selector=(("arch", "x"), ("zone", "a")),
                tolerations=("maintenance",),
                kind=Kind.INFERENCE,
                min_replicas=2,
                max_replicas=8,
            ),
        ),
        topology=Topology(Level.RACK, Level.NODE, Level.RACK, 0.5),
        priority=900,
        time_limit=28_800.0,
        preemptible=False,
        min_runtime=0.0,
        scale=(ScaleWindow(time(20), time(8), 3, 10 * 1024),),
        not_before=3_600.0,
        after=("other",),
        max_wait=1_800.0,
        retries=0,
        retry_window=86_400.0,
        budgets=Budgets(60.0, 900.0, 0.0, (("checkpoint", 600.0),)),
        checkpoint_signal=int(SIGUSR1),
        grace=120.0,
        command=("python", "train.py", ""),
        env=(("A", ""), ("B", "2")),
        cwd="/data",
        labels=(("project", "x"),),
    )
    assert spec.elastic
    assert hash(spec)


def test_groups_say_for_themselves_what_differs() -> None:
    spec = job(
        kind="inference",
        model=["H100", "A100"],
        gpus=4,
        memory_gib=64,
        groups=[{"name": "actor", "replicas": 2}, {"name": "learner", "gpus": 8, "memory_gib": 1, "model": "H100"}],
    )
    assert spec.groups == (
        Group("actor", 2, 4, 4_000, 64 * 1024, models=("H100", "A100"), kind=Kind.INFERENCE),
        Group("learner", 1, 8, 8_000, 1024, models=("H100",), kind=Kind.INFERENCE),
    )


def test_one_group_of_the_list_may_be_elastic() -> None:
    spec = job(min_replicas=1, groups=[{"name": "only", "replicas": 3}])
    assert (spec.groups[0].min_replicas, spec.groups[0].max_replicas) == (1, None)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("5m", 300), ("2h", 7_200), ("1d", 86_400), ("75", 75), (90, 90), (1.5, 1.5), ("1.5h", 5_400)],
)
def test_durations(written: object, seconds: float) -> None:
    assert job(time_limit=written).time_limit == seconds


@pytest.mark.parametrize(("written", "priority"), [("low", 100), ("normal", 500), ("high", 900), (0, 0), (1000, 1000)])
def test_priorities(written: object, priority: int) -> None:
    assert job(priority=written).priority == priority


def test_memory_is_whole_mebibytes_and_never_less_than_asked_for() -> None:
    assert job(share=True, vram_gib=71.25).groups[0].vram_mib == 72_960
    assert job(share=True, vram_gib=46068 / 1024).groups[0].vram_mib == 46_068
    assert job(share=True, vram_gib=0.1).groups[0].vram_mib == 103
    assert job(cpus=0.1).groups[0].cpus_milli == 100


def test_scale_windows_cross_midnight() -> None:
    night, day = ScaleWindow(time(20), time(8)), ScaleWindow(time(8), time(20))
    for clock, dark in [
        (time(19, 59), False),
        (time(20), True),
        (time(0), True),
        (time(7, 59), True),
        (time(8), False),
    ]:
        assert (night.is_open(clock), day.is_open(clock)) == (dark, not dark)


@pytest.mark.parametrize("length", [1, 63, 64, 200])
def test_names_of_up_to_200_characters(length: int) -> None:
    assert job(name="n" * length).name == "n" * length


WHOLE = "must be a whole number, not "
SPAN = "must be a duration such as 90, 90s, 5m, 2h or 1d, not "
CLOCK = 'must be a time of day from "00:00" to "23:59"'
BAD: list[tuple[dict[Any, Any], str]] = [
    ({"gpus": 0}, "gpus: must be at least 1"),
    ({"gpus": -1}, "gpus: must be at least 1"),
    ({"gpus": 1.5}, f"gpus: {WHOLE}1.5"),
    ({"gpus": 1.0}, f"gpus: {WHOLE}1.0"),
    ({"gpus": NAN}, f"gpus: {WHOLE}nan"),
    ({"gpus": True}, f"gpus: {WHOLE}true"),
    ({"gpus": "1e9"}, f'gpus: {WHOLE}"1e9"'),
    ({"gpus": "8"}, f'gpus: {WHOLE}"8"'),
    ({"gpus": None}, f"gpus: {WHOLE}null"),
    ({"gpus": []}, f"gpus: {WHOLE}a list"),
    ({"gpus": {}}, f"gpus: {WHOLE}a mapping"),
    ({"gpus": 1_000_001}, "gpus: must be at most 1000000"),
    ({"gpus": 10**5000}, "gpus: must be at most 1000000"),
    ({"replicas": 1000, "gpus": 1001}, "replicas: must not come to more than 1000000 GPUs"),
    ({"gpu": 1}, "gpu: is not a known key, did you mean gpus?"),
    ({"min_runtim": 1}, "min_runtim: is not a known key, did you mean min_runtime?"),
    ({"zzz": 1}, "zzz: is not a known key"),
    ({"a\nb": 1}, r'"a\nb": is not a known key'),
    ({5: 1}, ": has the key 5, which is not text"),
    ({"name": ""}, "name: must not be empty"),
    ({"name": "n" * 201}, "name: must not be longer than 200 characters"),
    ({"name": 5}, "name: must be text, not 5: put it in quotes"),
    ({"name": None}, "name: must be text, not null"),
    ({"name": "a\nb"}, "name: must be printable characters without a space at either end"),
    ({"name": " a"}, "name: must be printable characters without a space at either end"),
    ({"name": "\ud800"}, "name: must not hold characters that are none"),
    ({"team": ["a"]}, "team: must be text, not a list"),
    ({"kind": "batch"}, 'kind: must be one of training, inference, interactive, not "batch"'),
    ({"kind": 1}, "kind: must be one of training, inference, interactive, not 1"),
    ({"cpus": 0}, "cpus: must be more than 0"),
    ({"cpus": True}, "cpus: must be a number, not true"),
    ({"memory_gib": INF}, "memory_gib: must be a number, not inf"),
    ({"memory_gib": 10**400}, "memory_gib: must be a number, not a number that large"),
    ({"vram_gib": -1}, "vram_gib: must be more than 0"),
    ({"share": 1}, "share: must be true or false, not 1"),
    ({"share": "yes"}, 'share: must be true or false, not "yes"'),
    ({"share": True}, "vram_gib: is missing: a job that shares its cards says how much memory it takes"),
    ({"model": []}, "model: must not be empty"),
    ({"model": ["H100", 5]}, "model[1]: must be text, not 5: put it in quotes"),
    ({"model": ["H100", "H100"]}, 'model[1]: "H100" is there twice'),
    ({"node_selector": {"zone": False}}, "node_selector.zone: must be text, not false: put it in quotes"),
    ({"node_selector": ["zone"]}, "node_selector: must be a mapping, not a list"),
    ({"tolerations": "maintenance"}, 'tolerations: must be a list, not "maintenance"'),
    ({"groups": []}, "groups: must not be empty"),
    ({"groups": [{"gpus": 1}]}, "groups[0].name: is missing"),
    ({"groups": [{"name": "x"}, {"name": "x"}]}, 'groups[1].name: "x" is there twice'),
    ({"groups": [{"name": "x", "gpus": 0}]}, "groups[0].gpus: must be at least 1"),
    (
        {"groups": [{"name": "x", "min_replicas": 1}]},
        "groups[0].min_replicas: is not a known key, did you mean replicas?",
    ),
    ({"groups": [{"name": "x"}, {"name": "y"}], "scale": []}, "scale: is only for jobs with one group"),
    (
        {"groups": [{"name": "x"}, {"name": "y", "share": True}]},
        "groups[1].vram_gib: is missing: a job that shares its cards says how much memory it takes",
    ),
    ({"groups": [{"name": "x"}, {"name": "y"}], "min_replicas": 1}, "min_replicas: is only for jobs with one group"),
    ({"groups": [{"name": "x", "gpus": 600_000, "replicas": 2}]}, "groups: must not come to more than 1000000 GPUs"),
    ({"topology": "rack"}, 'topology: must be a mapping, not "rack"'),
    ({"topology": {"require": "row"}}, 'topology.require: must be one of node, nvlink, rack, switch, not "row"'),
    (
        {"topology": {"require": "nvlink-domian"}},
        'topology.require: must be one of node, nvlink, rack, switch, not "nvlink-domian"',
    ),
    ({"topology": {"demand": "rack"}}, "topology.demand: is not a known key"),
    ({"topology": {"spread": "rack", "max_per_domain": 0}}, "topology.max_per_domain: must be more than 0"),
    ({"topology": {"spread": "rack", "max_per_domain": 1.5}}, "topology.max_per_domain: must be at most 1"),
    ({"topology": {"max_per_domain": 1}}, "topology.max_per_domain: needs spread, which names the level it is about"),
    ({"priority": "urgent"}, 'priority: must be one of low, normal, high or a number, not "urgent"'),
    ({"priority": 1001}, "priority: must be at most 1000"),
    ({"priority": -1}, "priority: must be at least 0"),
    ({"priority": 1.5}, "priority: must be low, normal, high or a whole number from 0 to 1000, not 1.5"),
    ({"time_limit": 0}, "time_limit: must be more than 0"),
    ({"time_limit": -5}, "time_limit: must not be negative"),
    ({"time_limit": "-5m"}, "time_limit: must not be negative"),
    ({"time_limit": "5w"}, f'time_limit: {SPAN}"5w"'),
    ({"time_limit": "1.2.3s"}, f'time_limit: {SPAN}"1.2.3s"'),
    ({"time_limit": "1e9"}, f'time_limit: {SPAN}"1e9"'),
    ({"time_limit": "٣s"}, f'time_limit: {SPAN}"٣s"'),
    ({"time_limit": ""}, f'time_limit: {SPAN}""'),
    ({"time_limit": NAN}, f"time_limit: {SPAN}nan"),
    ({"time_limit": INF}, f"time_limit: {SPAN}inf"),
    ({"time_limit": -INF}, f"time_limit: {SPAN}-inf"),
    ({"time_limit": True}, f"time_limit: {SPAN}true"),
    ({"time_limit": None}, f"time_limit: {SPAN}null"),
    ({"time_limit": [1]}, f"time_limit: {SPAN}a list"),
    ({"time_limit": "40000d"}, "time_limit: must be at most 3153600000"),
    ({"min_replicas": 3, "max_replicas": 2}, "min_replicas: 3 is more than max_replicas, which is 2"),
    ({"replicas": 2, "min_replicas": 3}, "min_replicas: 3 is more than replicas, which is 2"),
    ({"replicas": 2, "max_replicas": 1}, "max_replicas: 1 is less than replicas, which is 2"),
    ({"scale": [{"from": "20:00", "to": "20:00", "replicas": 1}]}, "scale[0].to: must differ from from"),
    ({"scale": [{"from": "24:00", "to": "20:00", "replicas": 1}]}, f'scale[0].from: {CLOCK}, not "24:00"'),
    ({"scale": [{"from": "8:00", "to": "20:00", "replicas": 1}]}, f'scale[0].from: {CLOCK}, not "8:00"'),
    ({"scale": [{"from": 1200, "to": "08:00", "replicas": 1}]}, f"scale[0].from: {CLOCK} in quotes, not 1200"),
    ({"scale": [{"from": "20:00", "to": "08:00"}]}, "scale[0]: must have replicas or vram_gib"),
    ({"scale": [{"to": "08:00", "replicas": 1}]}, "scale[0].from: is missing"),
    (
        {"scale": [{"from": "20:00", "to": "08:00", "vram_gib": 1}]},
        "scale[0].vram_gib: is only for jobs with share: true",
    ),
    (
        {"replicas": 4, "min_replicas": 2, "scale": [{"from": "20:00", "to": "08:00", "replicas": 1}]},
        "scale[0].replicas: 1 is less than min_replicas, which is 2",
    ),
    (
        {"max_replicas": 2, "scale": [{"from": "20:00", "to": "08:00", "replicas": 3}]},
        "scale[0].replicas: 3 is more than max_replicas, which is 2",
    ),
    ({"after": "other"}, 'after: must be a list, not "other"'),
    ({"after": ["x", "x"]}, 'after[1]: "x" is there twice'),
    ({"retries": -1}, "retries: must be at least 0"),
    ({"preemptible": "no"}, 'preemptible: must be true or false, not "no"'),
    ({"budgets": {"heartbeat": 0}}, "budgets.heartbeat: must be more than 0"),
    ({"budgets": {"phases": {"save": "x"}}}, f'budgets.phases.save: {SPAN}"x"'),
    ({"checkpoint": {"signal": "KILL"}}, 'checkpoint.signal: must be one of USR1, USR2, HUP, INT, not "KILL"'),
    ({"command": []}, "command: must not be empty"),
    ({"command": "python x"}, 'command: must be a list, not "python x"'),
    ({"command": ["echo", 1]}, "command[1]: must be text, not 1: put it in quotes"),
    ({"command": ["a\0b"]}, "command[0]: must not hold characters that are none"),
    ({"env": {"PORT": 80}}, "env.PORT: must be text, not 80: put it in quotes"),
    ({"env": {"A=B": "x"}}, 'env: "A=B" cannot name a variable'),
    ({"cwd": 1}, "cwd: must be text, not 1: put it in quotes"),
]


@pytest.mark.parametrize(
    ("values", "message"), BAD, ids=[f"{number}-{message[:50]}" for number, (_, message) in enumerate(BAD)]
)
def test_a_bad_value_gets_one_line_with_its_place(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_job({"name": "j", "team": "a"} | values, "jobs[3]")
    assert str(caught.value) == ("jobs[3]" if message.startswith(":") else "jobs[3].") + message


@pytest.mark.parametrize("value", [None, [], "job", 5, True])
def test_a_job_is_a_mapping(value: object) -> None:
    with pytest.raises(SpecError, match=r"^jobs\[0\]: must be a mapping, not "):
        parse_job(value, "jobs[0]")


def test_a_missing_name_is_named() -> None:
    with pytest.raises(SpecError, match=r"^name: is missing$"):
        parse_job({"team": "a"})


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1h", "rack", "H100"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(sorted(JOB_FIELDS)), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(JOB_FIELDS)), JUNK, max_size=6))
def test_junk_is_a_job_or_a_spec_error(values: dict[str, Any]) -> None:
    line = ""
    try:
        spec = parse_job({"name": "j", "team": "a", **values}, "job")
    except SpecError as error:
        line = str(error)
    else:
        assert {spec: True}[spec]
        assert all(group.gpus >= 1 and group.replicas >= 1 for group in spec.groups)
    assert not line or (line.startswith("job") and len(line.splitlines()) == 1)
