"""The funnel, by hand: what each gate leaves, and whom it takes away."""

import pytest

from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.demand import Level, Topology
from scheduler.engine.report.funnel import Funnel, Gate, Step, funnels
from tests.engine.board import Board, job_of


def funnel_of(board: Board, key: str = "j") -> tuple[Funnel, ...]:
    snapshot = board.roster.snapshot(0.0)
    lane = next(lane for lane in snapshot.lanes if lane.jobs[0].key == key)
    return funnels(snapshot, lane)


def counts(funnel: Funnel) -> dict[str, tuple[int, int]]:
    return {str(step.gate): (step.nodes, step.cards) for step in funnel.steps}


def test_every_gate_once() -> None:
    """One node is lost at each gate, in the order of the gates."""
    board = Board(
        "m1: 8 A100; down1: 8 H100; nolabel1: 8 H100; taint1: 8 H100 label=z:a taint=night;"
        "used1: 8 H100 label=z:a; host1: 8 H100 label=z:a cpus=10; full1: 8 H100 label=z:a;"
        "small1: 8 H100 vram=40 label=z:a; part1: 8 H100 label=z:a; ok1: 8 H100 label=z:a",
        "a; b",
        "r b 8 @full1; s b 7 @part1; t b 1 cpu=8 @host1; j a 2x4 vram=80 model=H100 sel=z:a not=used1",
    )
    board.roster.set_node_state("down1", NodeState.DOWN)
    board.roster.set_card_state("ok1", 7, CardState.OUT)
    (funnel,) = funnel_of(board)
    assert funnel == Funnel("main", 2, 4, 1, (
        Step(Gate.MODEL, 9, 72, 8, 0, ()),
        Step(Gate.HEALTHY, 8, 63, 8, 1, ("down1",)),
        Step(Gate.LABELS, 7, 55, 8, 1, ("nolabel1",)),
        Step(Gate.TAINTS, 6, 47, 8, 1, ("taint1",)),
        Step(Gate.EXCLUDED, 5, 39, 8, 1, ("used1",)),
        Step(Gate.HOST, 4, 31, 8, 1, ("host1",)),
        Step(Gate.FREE, 3, 16, 8, 1, ("full1",)),
        Step(Gate.MEMORY, 2, 8, 7, 1, ("small1",)),
        Step(Gate.TOGETHER, 1, 4, 4, 1, ("part1",)),
    ))  # fmt: skip


def test_enough_in_all_and_none_in_one_place() -> None:
    """C27: four are free, two on one node at most; the reason says so too."""
    board = Board(
        "n1 n2 n3: 8 H100", "a; b",
        "r b 4 @n1; s b 2 @n1; t b 1 @n1; u b 4 @n2; v b 2 @n2; w b 4 @n3; x b 2 @n3; y b 1 @n3; j a 4",
    )  # fmt: skip
    (funnel,) = funnel_of(board)
    free, together = (step for step in funnel.steps if step.gate in (Gate.FREE, Gate.TOGETHER))
    assert (free.cards, free.most) == (4, 2)
    assert together == Step(Gate.TOGETHER, 0, 0, 0, 3, ("n1", "n2", "n3"))
    assert facts(board, "j").items() >= {"free": 4, "most": 2}.items()
    board.add("k a 5")
    assert facts(board, "k").items() >= {"need": 5, "free": 4}.items()


def facts(board: Board, key: str) -> dict[str, object]:
    """What the reason of a job is made of."""
    job = board.roster.waiting(key)
    assert job is not None
    hold = board.decide().hold_of(job, board.roster.lane_of(key))
    assert hold is not None
    return {"reason": str(hold.reason), **dict(hold.facts)}


def test_a_job_of_two_groups_is_told_of_as_a_whole() -> None:
    """C39: the job asks for 24, no group of it does; CPUs are named with the best node and the count of nodes."""
    board = Board("n1 n2 n3: 8 H100", "a H100:/16; b", "j a 2x8+1x8")
    assert facts(board, "j").items() >= {"reason": "impossible", "need": 24.0, "limit": 16.0, "team": "a"}.items()
    assert [(f.group, f.replicas, f.fit) for f in funnel_of(board)] == [("a", 2, 2), ("b", 1, 1)]
    board = Board("n1 n2: 8 H100 cpus=20", "a; b", "r b 1 cpu=12 @n1; q b 1 cpu=15 @n2; j a 4 cpu=16")
    assert facts(board, "j").items() >= {"reason": "host", "need": 16.0, "best": 8.0}.items()
    host = next(step for step in funnel_of(board)[0].steps if step.gate is Gate.HOST)
    assert host == Step(Gate.HOST, 0, 0, 0, 2, ("n1", "n2"))


@pytest.mark.parametrize(
    ("topology", "fit", "last"),
    [
        pytest.param(Topology(require=Level.RACK), 2, (2, 16), id="one rack"),
        pytest.param(Topology(spread=Level.RACK, max_per_domain=0.5), 2, (3, 24), id="spread"),
        pytest.param(Topology(prefer=Level.RACK), 3, (3, 24), id="prefer takes nothing away"),
    ],
)
def test_topology(topology: Topology, fit: int, last: tuple[int, int]) -> None:
    board = Board("n1 n2: 8 H100 rack=r1; n3: 8 H100 rack=r2; n4: 8 H100 rack=r3", "a; b", "r b 8 @n4")
    job = job_of("j a 3x8", 3)
    shape = type(job.shape)(job.shape.groups, topology)
    board.roster.submit(type(job)(job.key, job.team, shape))
    (funnel,) = funnel_of(board)
    assert (funnel.fit, counts(funnel)["topology"]) == (fit, last)


def test_slices_count_cards_with_enough_left() -> None:
    board = Board(
        "n1: 3 L40 mib=10; n2: 2 L40 mib=10",
        "a; b",
        "r b 1 slice=6 @n1:0; s b 1 @n1:1; t b 1 slice=3 @n2:0; j a 9 slice=5",
    )
    (funnel,) = funnel_of(board)
    assert counts(funnel)["free"] == (2, 4)
    assert counts(funnel)["memory"] == (2, 3)
    board.add("k a 4x1 slice=5")
    (funnel,) = funnel_of(board, "k")
    assert (funnel.fit, counts(funnel)["together"]) == (4, (2, 5))
