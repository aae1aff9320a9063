"""Which nodes may take a job: model, memory, labels, taints, states, exclusions, CPUs, host memory."""

import pytest

from scheduler.engine.cluster import CardState, NodeState
from tests.engine.board import Board, assert_outcomes

# nodes, jobs, outcomes
FILTERS = {
    "model": ("n1: 8 A100; n2: 8 H100", "j a 1 model=H100", {"j": "n2"}),
    "one of several models": ("n1: 8 A100; n2: 8 H100; n3: 8 L40", "j a 1 model=L40,H100", {"j": "n2"}),
    "any model": ("n1: 8 A100; n2: 8 H100", "j a 1", {"j": "n1"}),
    "model missing": ("n1: 8 A100", "j a 1 model=H100", {"j": "model: no node has H100"}),
    "card memory": ("n1: 8 A100 vram=40; n2: 8 A100 vram=80", "j a 1 vram=41", {"j": "n2"}),
    "card memory is that of the whole card": ("n1: 8 A100 vram=40 reserve=4", "j a 1 vram=40", {"j": "n1"}),
    "card memory too small everywhere": (
        "n1: 8 A100 vram=40; n2: 8 H100", "j a 1 model=A100 vram=48",
        {"j": "model: needs 48 GiB on each card, no A100 has more than 40 GiB for it"}),
    "label": ("n1: 8 H100 label=zone:a; n2: 8 H100 label=zone:b", "j a 1 sel=zone:b", {"j": "n2"}),
    "all labels": (
        "n1: 8 H100 label=zone:a; n2: 8 H100 label=zone:a,disk:ssd", "j a 1 sel=zone:a,disk:ssd", {"j": "n2"}),
    "label missing": (
        "n1: 8 H100 label=zone:a; n2: 8 H100", "j a 1 sel=zone:b",
        {"j": "labels: nodes with GPUs and the labels zone=b: 0 of 2"}),
    "labels leave too little": (
        "n1: 8 H100 label=zone:b; n2: 8 H100", "j a 2x8 sel=zone:b",
        {"j": "labels: nodes with GPUs and the labels zone=b: 1 of 2"}),
    "taint": ("n1: 8 H100 taint=maintenance; n2: 8 H100", "j a 1", {"j": "n2"}),
    "taint tolerated": ("n1: 8 H100 taint=maintenance; n2: 8 H100", "j a 1 tol=maintenance", {"j": "n1"}),
    "one of two taints tolerated": ("n1: 8 H100 taint=maintenance,x; n2: 8 H100", "j a 1 tol=maintenance", {"j": "n2"}),
    "taints leave nothing": (
        "n1: 8 H100 taint=maintenance", "j a 1",
        {"j": "taints: nodes that fit, but with taints it does not tolerate (maintenance): 1 of 1"}),
    "excluded": ("n1 n2: 8 H100", "j a 1 not=n1", {"j": "n2"}),
    "excluded everywhere": (
        "n1 n2: 8 H100", "j a 1 not=n1,n2",
        {"j": "excluded: may not use n1, n2 again, and no other node could hold it"}),
    "excluded node that is not there": ("n1: 8 H100", "j a 1 not=n7", {"j": "n1"}),
    "avoided while another fits": ("n1 n2: 8 H100", "j a 1 avoid=n1", {"j": "n2"}),
    "avoided, but the only one left": ("n1 n2: 8 H100", "r b 8 @n2; j a 1 avoid=n1", {"j": "n1"}),
    "avoided: a gang that needs it takes it": ("n1 n2: 8 H100", "j a 2x8 avoid=n1", {"j": "n1 n2"}),
    "avoided: all of a gang keeps off": ("n1 n2 n3: 8 H100", "j a 2x8 avoid=n1", {"j": "n2 n3"}),
    "CPUs": ("n1: 8 H100 cpus=8; n2: 8 H100 cpus=64", "j a 1 cpu=16", {"j": "n2"}),
    "CPUs to the thousandth": ("n1: 8 H100 cpus=1.5", "j a 1 cpu=0.5; k a 1 cpu=1.001", {"j": "n1", "k": "host"}),
    "CPUs in use": (
        "n1 n2: 8 H100 cpus=20", "r b 1 cpu=10 @n1; j a 1 cpu=11; k a 1 cpu=11",
        {"j": "n2", "k": "host: a replica needs 11 CPUs, the most free on one node is 10"}),
    "CPUs beyond every node": (
        "n1: 8 H100 cpus=20", "j a 1 cpu=21", {"j": "impossible: one replica needs 21 CPUs, the largest node has 20"}),
    "host memory": ("n1: 8 H100 mem=8; n2: 8 H100 mem=64", "j a 1 mem=16", {"j": "n2"}),
    "host memory in use": (
        "n1 n2: 8 H100 mem=20", "r b 1 mem=10 @n1; r2 b 1 mem=6 @n2; j a 1 mem=15",
        {"j": "host: a replica needs 15 GiB of host memory, the most free on one node is 14"}),
    "host memory beyond every node": (
        "n1: 8 H100 mem=20", "j a 1 mem=21",
        {"j": "impossible: one replica needs 21 GiB of host memory, the largest node has 20"}),
    "slices use CPUs too": (
        "n1 n2: 1 L40 cpus=2", "j a 1 slice=100 cpu=2; k a 1 slice=100 cpu=1", {"j": "n1", "k": "n2"}),
    "each group by its own filter": (
        "n1: 8 A100; n2: 8 H100", "j a 2x1+1x4 model=A100+H100", {"j": "n1 n1 n2"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_filter(name: str) -> None:
    nodes, jobs, expected = FILTERS[name]
    assert_outcomes(Board(nodes, "a; b", jobs).step(), expected)


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.READY])
def test_only_a_ready_node_takes_work(state: NodeState) -> None:
    board = Board("n1 n2: 8 H100", jobs="j a 8; k a 8")
    board.roster.set_node_state("n1", state)
    assert_outcomes(board.step(), {"j": "n2", "k": "gpus"})
    board.roster.set_node_state("n1", NodeState.READY)
    assert_outcomes(board.step(), {"k": "n1"})


@pytest.mark.parametrize("state", [state for state in CardState if state is not CardState.OK])
@pytest.mark.parametrize(
    ("job", "elsewhere"), [("j a 1", "n1:1"), ("j a 1 slice=100", "n1:1"), ("j a 1x2 slice=9", "n1:1-2")]
)
def test_only_an_ok_card_takes_work(state: CardState, job: str, elsewhere: str) -> None:
    board = Board("n1: 4 H100", jobs=job)
    board.roster.set_card_state("n1", 0, state)
    assert board.step() == {"j": elsewhere}


def test_a_shared_card_that_is_out_takes_no_more_slices() -> None:
    board = Board("n1: 2 H100", jobs="r a 1 slice=100 @n1:0; j a 1 slice=100; k a 1 slice=100")
    board.roster.set_card_state("n1", 0, CardState.OUT)
    assert board.step() == {"j": "n1:1", "k": "n1:1"}


def test_all_nodes_out_of_service_is_unhealthy() -> None:
    board = Board("n1 n2: 8 H100", jobs="j a 8; k a 4; l a 5")
    board.roster.set_node_state("n1", NodeState.DOWN)
    for gpu in range(4):
        board.roster.set_card_state("n2", gpu, CardState.OUT)
    told = board.step()
    assert_outcomes(told, {"j": "unhealthy", "k": "n2:4-7", "l": "unhealthy"})
    assert told["j"] == "unhealthy: nodes that fit, but are out of service: 1 of 2 (n1), and besides them cards: 4"


def test_a_card_that_works_again_is_used_again() -> None:
    board = Board("n1: 1 H100", jobs="j a 1")
    board.roster.set_card_state("n1", 0, CardState.OUT)
    assert_outcomes(board.step(), {"j": "unhealthy: cards that fit, but are out of service: 1"})
    board.roster.set_card_state("n1", 0, CardState.OK)
    assert_outcomes(board.step(), {"j": "n1:0"})


def test_a_held_card_that_works_again_stays_held() -> None:
    board = Board("n1: 2 H100", jobs="r a 1 @n1:0; j a 2")
    board.roster.set_card_state("n1", 0, CardState.SUSPECT)
    board.roster.set_card_state("n1", 0, CardState.OK)
    assert_outcomes(board.step(), {"j": "gpus"})
    board.roster.release("r", 1.0)
    assert_outcomes(board.step(1.0), {"j": "n1:0-1"})


def test_a_card_that_went_out_in_use_is_not_free_afterwards() -> None:
    board = Board("n1: 2 H100", jobs="r a 2 @n1; j a 2")
    board.roster.set_card_state("n1", 1, CardState.OUT)
    board.roster.release("r", 1.0)
    assert_outcomes(board.step(1.0), {"j": "unhealthy"})
