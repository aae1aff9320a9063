"""The plain replays do what they say: a reference that is wrong would make every ratio worthless."""

import io

import numpy as np
import pytest

from bench.reference import BestFit, TraceJob, read_trace, strict_fifo
from scheduler.engine.cluster import Node
from scheduler.engine.demand import MIB_PER_GIB, Group, Shape

GIB = MIB_PER_GIB


def nodes(*gpus: int, model: str = "H100", **more: object) -> list[Node]:
    """Nodes of that many 80-GiB cards each."""
    return [Node(f"n{at}", each, model, 80 * GIB, **more) for at, each in enumerate(gpus)]  # type: ignore[arg-type]


def shape(gpus: int, replicas: int = 1, **more: object) -> Shape:
    return Shape((Group(replicas=replicas, gpus=gpus, **more),))  # type: ignore[arg-type]


def test_best_fit_takes_the_fullest_node_that_fits() -> None:
    fit = BestFit(nodes(8, 4, 2))
    assert fit.place_all([shape(2), shape(3), shape(1)]) == 3
    assert fit.free.tolist() == [8, 0, 0]


def test_best_fit_places_a_gang_whole_or_not_at_all() -> None:
    fit = BestFit(nodes(8, 8))
    left, cpus, memory = fit.left.copy(), fit.cpus.copy(), fit.memory.copy()
    assert not fit.place(shape(5, replicas=3))
    assert fit.free.tolist() == [8, 8]
    for now, before in ((fit.left, left), (fit.cpus, cpus), (fit.memory, memory)):
        assert (now == before).all()
    assert fit.place_all([shape(8, replicas=2)]) == 2


def test_best_fit_undoes_slices() -> None:
    fit = BestFit(nodes(1))
    left, cpus = fit.left.copy(), fit.cpus.copy()
    assert not fit.place(shape(1, replicas=3, share=True, vram_mib=30 * GIB))
    assert (fit.left == left).all()
    assert (fit.cpus == cpus).all()
    assert fit.free.tolist() == [1]


def test_best_fit_puts_slices_on_the_fullest_card_and_whole_jobs_on_untouched_ones() -> None:
    fit = BestFit(nodes(2, 2))
    small = shape(1, share=True, vram_mib=40 * GIB)
    assert fit.place_all([small, small, small]) == 3  # 79 GiB are usable: two do not fit on one card
    assert fit.free.tolist() == [0, 1]
    assert fit.place(shape(1, share=True, vram_mib=39 * GIB))
    assert fit.left[0].tolist() == [0, 39 * GIB]
    assert not fit.place(shape(2))
    assert fit.place(shape(1))
    assert not fit.place(shape(1))


@pytest.mark.parametrize(
    ("node", "group", "fits"),
    [
        ({"model": "A100"}, {"models": ("H100",)}, False),
        ({}, {"models": ("A100", "H100")}, True),
        ({}, {"selector": (("zone", "a"),)}, False),
        ({"labels": (("zone", "a"),)}, {"selector": (("zone", "a"),)}, True),
        ({"taints": ("old",)}, {}, False),
        ({"taints": ("old",)}, {"tolerations": ("old",)}, True),
        ({"cpus_milli": 1_000}, {"cpus_milli": 1_001}, False),
        ({"memory_mib": 1_000}, {"memory_mib": 1_001}, False),
        ({}, {"vram_mib": 80 * GIB}, True),
        ({}, {"vram_mib": 80 * GIB, "share": True}, False),
    ],
)
def test_best_fit_filters(node: dict[str, object], group: dict[str, object], fits: bool) -> None:
    assert BestFit(nodes(8, **node)).place(shape(1, **group)) is fits  # type: ignore[arg-type]


def test_strict_fifo_lets_nobody_overtake() -> None:
    jobs = [TraceJob(0, 10, 6), TraceJob(1, 5, 4), TraceJob(2, 5, 1), TraceJob(30, 5, 1)]
    assert strict_fifo(jobs, nodes=1, per_node=8).tolist() == [0, 10, 10, 30]


def test_strict_fifo_needs_cards_on_one_node() -> None:
    jobs = [TraceJob(0, 10, 5), TraceJob(0, 20, 5), TraceJob(1, 1, 6)]
    assert strict_fifo(jobs, nodes=2, per_node=8).tolist() == [0, 0, 10]


def test_strict_fifo_gives_large_jobs_whole_nodes_and_one_for_the_rest() -> None:
    jobs = [TraceJob(0, 10, 1), TraceJob(0, 20, 12), TraceJob(1, 1, 3), TraceJob(2, 1, 8)]
    # 12 cards: node 1 whole and 4 of node 0, where 3 are left beside the first job; the last one waits for the large.
    assert strict_fifo(jobs, nodes=2, per_node=8).tolist() == [0, 0, 1, 20]


def test_strict_fifo_frees_cards_before_it_gives_them() -> None:
    jobs = [TraceJob(0, 5, 8), TraceJob(5, 5, 8)]
    assert strict_fifo(jobs, nodes=1, per_node=8).tolist() == [0, 5]


def test_chance_breaks_ties_and_nothing_else() -> None:
    jobs = [TraceJob(at, 7.0, 1 + at % 4) for at in range(200)]
    one, again = (strict_fifo(jobs, 2, 4, np.random.default_rng(3)) for _ in range(2))
    assert (one == again).all()
    assert (one >= [job.submitted for job in jobs]).all()


def test_a_trace_is_read_in_order_and_cut() -> None:
    text = "when,long,n\n2024-01-02 00:00:10,3,1\n2024-01-02 00:00:05,4.5,2\n2024-01-02,1,0\n2024-01-03,1,1\n"
    jobs = read_trace(io.StringIO(text), "when", "long", "n", "2024-01-02", "2024-01-03")
    assert [(job.duration, job.gpus) for job in jobs] == [(4.5, 2), (3.0, 1)]
    assert jobs[1].submitted - jobs[0].submitted == 5
