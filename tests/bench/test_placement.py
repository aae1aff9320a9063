"""The openb experiment on a tiny cluster: the order of arrival, lists that lack columns, and what the gates see."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench import commands, placement
from bench.fgd import FragmentationDescent
from bench.gates import Gate
from bench.openb import CARD, PUBLISHED_FGD, Openb, Task, allocated, lists, read
from bench.report import Report, Unavailable
from quotas.limits import QuotaTree, Team
from scheduler.engine.cluster import Node
from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob, Shape
from scheduler.engine.policy import Placement
from scheduler.engine.roster import Roster

NODES = [(64_000, 262_144, 2, "P100"), (96_000, 393_216, 8, "G2"), (32_000, 131_072, 4, "V100")]
TASKS = [
    "12000,16384,1,1000,,LS",
    "6000,12288,1,460,,LS",
    "4000,8192,1,300,G2|V100,LS",
    "16000,32768,2,1000,,LS",
    "8000,16384,0,0,,BE",
    "11000,30517,1,810,P100,LS",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"node-{n},{cpus},{memory},{gpus},{model}" for n, (cpus, memory, gpus, model) in enumerate(NODES * 2)]
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "\n".join(rows) + "\n"
    )
    _write(tmp_path, "default", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos", TASKS * 4)
    return tmp_path


def _write(folder: Path, name: str, columns: str, tasks: list[str]) -> None:
    lines = [columns, *(f"task-{number},{task}" for number, task in enumerate(tasks))]
    (folder / f"openb_pod_list_{name}.csv").write_text("\n".join(lines) + "\n")


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `rota bench placement ARGUMENTS`."""
    result = CliRunner().invoke(commands.bench, ["placement", *arguments])
    return result.exit_code, result.stdout, result.stderr


# -- the lists


def test_tasks_are_read_as_listed(folder: Path) -> None:
    tasks = read(folder, "default").tasks
    assert tasks[1:3] == (Task(6000, 12288, 1, 460, ()), Task(4000, 8192, 1, 300, ("G2", "V100")))
    assert tasks[4] == Task(8000, 16384, 0, 0, ())
    assert tasks[1].group().vram_mib == 460
    assert not tasks[0].group().share


def test_lists_may_lack_columns(folder: Path) -> None:
    _write(folder, "bare", "name,cpu_milli,memory_mib,num_gpu,gpu_milli", ["6000,1024,1,460", "6000,1024,2,1000"])
    _write(folder, "barer", "name,cpu_milli,memory_mib,num_gpu", ["6000,1024,2"])
    assert read(folder, "bare").tasks == (Task(6000, 1024, 1, 460, ()), Task(6000, 1024, 2, CARD, ()))
    assert read(folder, "barer").tasks == (Task(6000, 1024, 2, CARD, ()),)
    assert lists(folder) == ["bare", "barer", "default"]


def test_what_is_not_there_is_said_in_a_line(folder: Path) -> None:
    status, output, error = run("--data", str(folder), "--tasks", "nope")
    assert (status, output) == (2, "")
    assert error.count("\n") == 1
    assert "openb_pod_list_nope.csv" in error
    _write(folder, "wrong", "name,cpu_milli", ["6000"])
    with pytest.raises(Unavailable, match="there is no column num_gpu"):
        read(folder, "wrong")
    _write(folder, "idle", "name,cpu_milli,memory_mib,num_gpu", ["6000,1024,0"])
    with pytest.raises(Unavailable, match="no task asks for a card"):
        read(folder, "idle")


# -- the order of arrival


@pytest.mark.parametrize("ratio", [0.5, 1.3, 3.0])
def test_tasks_are_shuffled_then_drawn_until_enough_is_asked_for(folder: Path, ratio: float) -> None:
    cluster = read(folder, "default")
    arrivals, goal = cluster.arrivals(7, ratio), ratio * cluster.capacity
    draw = np.random.default_rng([7, 7])
    shuffled = [cluster.tasks[n] for n in draw.permutation(len(cluster.tasks))]
    both = min(len(shuffled), len(arrivals))
    assert arrivals[:both] == shuffled[:both]
    drawn = [cluster.tasks[draw.integers(len(cluster.tasks))] for _ in range(len(arrivals) - len(shuffled) + 1)]
    assert [*arrivals[len(shuffled) :], *drawn[-1:]] == drawn
    asked = sum(task.wanted for task in arrivals)
    if drawn:
        assert asked <= goal < asked + drawn[-1].wanted
    else:
        assert asked <= goal


def test_shuffled_nodes_are_the_same_nodes_in_another_order(folder: Path) -> None:
    cluster = read(folder, "default")
    shuffled = cluster.renamed(3)
    assert shuffled.capacity == cluster.capacity
    assert sorted(node.cpus_milli for node in shuffled.nodes) == sorted(node.cpus_milli for node in cluster.nodes)
    assert [node.model for node in shuffled.nodes] != [node.model for node in cluster.nodes]


def test_allocation_is_read_off_where_so_much_has_been_asked_for() -> None:
    tasks = [Task(0, 0, 1, 500, ())] * 4
    placed = np.array([True, False, True, True])
    assert allocated(tasks, placed, 1000, (0.5, 1.0, 1.5, 9.0)) == [50.0, 50.0, 100.0, 150.0]


# -- through the engine


@pytest.mark.parametrize("policy", [Placement.BINPACK, Placement.SPREAD, Placement.HYBRID])
def test_one_decision_plays_what_one_a_task_would(folder: Path, policy: Placement) -> None:
    """Where the placement does not look at what is to come, to the very task."""
    cluster = read(folder, "default")
    arrivals = cluster.arrivals(1, 1.5)
    rules = placement._policy(policy)
    roster = Roster(QuotaTree((Team("t"),)), rules, cluster.nodes)
    placed = []
    for number, task in enumerate(arrivals):
        roster.submit(PendingJob(str(number), "t", Shape((task.group(),))))
        plan = decide(roster.snapshot(0.0), rules, 0.0)
        placed.append(bool(plan.starts))
        if plan.starts:
            roster.start(str(number), plan.starts[0].pieces, 0.0)
        else:
            roster.withdraw(str(number))
    assert placement.play(cluster, arrivals, policy).placed.tolist() == placed
    assert not all(placed)


def test_fragmentation_fills_more_than_spread_and_as_much_as_the_reference(folder: Path) -> None:
    cluster = read(folder, "default")
    filled: dict[str, float] = dict.fromkeys(("fragmentation", "spread", "reference"), 0.0)
    for seed in range(10):
        arrivals = cluster.arrivals(seed, 1.5)
        for policy in (Placement.FRAGMENTATION, Placement.SPREAD):
            filled[policy] += _end(cluster, arrivals, placement.play(cluster, arrivals, policy).placed)
        reference = FragmentationDescent(cluster.nodes, cluster.tasks).place_all(arrivals)
        filled["reference"] += _end(cluster, arrivals, reference)
    assert filled["spread"] < filled["fragmentation"]
    assert filled["fragmentation"] == pytest.approx(filled["reference"], rel=0.02)


def _end(cluster: Openb, arrivals: list[Task], placed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    return allocated(arrivals, placed, cluster.capacity, (9.0,))[0]


def test_the_reference_takes_the_card_that_is_spoiled_already() -> None:
    nodes = [Node(f"n{number}", 2, "L4", CARD, 0, 64_000, 1 << 20) for number in range(2)]
    half, whole = Task(1000, 1, 1, 500, ()), Task(1000, 1, 1, CARD, ())
    reference = FragmentationDescent(nodes, [half, whole])
    assert reference.place_all([half, half, whole, whole, whole]).all()
    assert not reference.place(half)


# -- the command and its gates


def test_the_command_prints_what_programs_rely_on(folder: Path) -> None:
    status, output, _ = run("--data", str(folder), "--policy", "spread", "--seed", "4", "--ratio", "1.3", "--json")
    told = json.loads(output)
    assert status == 0
    assert 0 < told["allocated_at_100"] <= told["allocated_at_130"] <= 100
    assert min(told["decisions_per_second"], told["reference"]["decisions_per_second"]) > 0
    assert told["by_seed"].keys() == {"4"}
    assert told["size"] == {
        "tasks": "default", "policy": "spread", "ratio": 1.3, "nodes": 6, "cards": 28, "shuffled": False
    }  # fmt: skip


def test_the_folder_above_will_do(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    above = tmp_path_factory.mktemp("data")
    (above / "openb").symlink_to(folder)
    status, output, _ = run("--data", str(above), "--policy", "binpack", "--ratio", "0.9", "--seeds", "2", "--json")
    assert (status, len(json.loads(output)["by_seed"])) == (0, 2)


FULL_ENOUGH: Mapping[str, object] = {"allocated_at_130": 95.2, "ratio_to_reference": 3.1}


def _failed(experiment: placement.Experiment, **figures: float) -> list[str]:
    bars = tuple(placement._bars(experiment, {**FULL_ENOUGH, **figures}))
    return [gate.what for gate in Report("placement", {}, bars).failed]


def test_gates_see_what_is_published_and_how_fast_the_reference_is() -> None:
    ten = placement.Experiment(seeds=tuple(range(10)))
    assert _failed(ten) == []
    assert _failed(ten, allocated_at_130=PUBLISHED_FGD["default"] - 0.31) == ["default, fragmentation: allocated"]
    assert _failed(ten, ratio_to_reference=2.9) == ["default, fragmentation: speed beside the reference's"]
    assert _failed(replace(ten, seeds=(42,)), allocated_at_130=95.0) == [], "a single seed moves by more"
    packed = replace(ten, placement=Placement.BINPACK)
    assert _failed(packed, allocated_at_130=92.7) == ["default, binpack: allocated"]


@pytest.mark.parametrize("other", [{"tasks": "mine"}, {"ratio": 1.2}, {"placement": Placement.SPREAD}])
def test_what_nobody_has_published_is_held_to_nothing(other: dict[str, object]) -> None:
    experiment = placement.Experiment(reference=False, **other)  # type: ignore[arg-type]
    assert not [bar for bar in placement._bars(experiment, {"allocated_at_130": 0.0}) if isinstance(bar, Gate)]


def test_all_is_skipped_where_the_data_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SHARED", str(tmp_path))
    with pytest.raises(Unavailable, match="name in ROTA_SHARED the folder that holds data/openb"):
        placement.measure_lists(1)
