"""Gangs: every replica of every group at once, or none and nothing held."""

import pytest

from scheduler.engine.placement.gang import place
from scheduler.engine.placement.strategies import STRATEGIES
from scheduler.engine.policy import Placement
from tests.engine.board import Board, assert_outcomes

# nodes, jobs, outcomes
GANGS = {
    "all of it": ("n1 n2: 8 H100", "j a 4x4", {"j": "n1 n1 n2 n2"}),
    "all but one is none": ("n1 n2: 8 H100", "r b 1 @n2; j a 4x4", {"j": "gpus: needs 16 GPUs, 15 of 16 free"}),
    "enough in all, not on one node": (
        "n1 n2: 8 H100", "r b 5 @n1; q b 5 @n2; j a 4", {"j": "fragmented: 6 GPUs are free, …"}),
    "enough in all, for one replica less": (
        "n1 n2 n3: 8 H100", "r b 5 @n1; q b 5 @n2; j a 3x4", {"j": "fragmented"}),
    "a failed gang leaves the room to the next": (
        "n1 n2: 8 H100", "r b 1 @n2; j a 4x4; k a 3x4", {"j": "gpus", "k": "n2:1-4 n1:0-3 n1:4-7"}),
    "two gangs do not take half each": (
        "n1 n2: 8 H100", "j a 2x8; k b 2x8", {"j": "n1 n2", "k": "gpus: needs 16 GPUs, 0 of 16 free"}),
    "groups start together": ("n1: 8 H100; n2: 8 H100", "j a 2x4+1x8", {"j": "n2:0-3 n2:4-7 n1:0-7"}),
    "groups that fit alone but not together": (
        "n1: 8 H100", "j a 1x4+1x8", {"j": "impossible: needs 12 GPUs (4 + 8), the cluster has 8"}),
    "4 + 4 on a node with 4 free (C23)": (
        "n1: 8 H100", "r b 4 @n1; j a 1x4+1x4", {"j": "gpus: needs 8 GPUs (4 + 4), 4 of 8 free"}),
    "both pinned to the node with one free (C23)": (
        "n1: 4 H100 label=host:n1; n2: 4 H100 label=host:n2", "r b 3 @n1; q b 3 @n2; j a 1x1+1x1 sel=host:n1",
        {"j": "gpus"}),
    "pinned to one each (C23)": (
        "n1: 4 H100 label=host:n1; n2: 4 H100 label=host:n2", "r b 3 @n1; q b 3 @n2; j a 1x1+1x1 sel=host:n1+host:n2",
        {"j": "n1:3 n2:3"}),
    "three groups on two free cards (C23)": (
        "n1: 4 H100; n2: 4 H100", "r b 3 @n1; q b 3 @n2; j a 1x1+1x1+1x1",
        {"j": "gpus: needs 3 GPUs (1 + 1 + 1), 2 of 8 free"}),
    "the choosy group gets its node": (
        "n1: 8 H100 label=disk:ssd; n2: 8 A100", "j a 1x8+1x8 model=+H100", {"j": "n2 n1"}),
    "slices and whole cards together": (
        "n1: 2 L40 mib=1000", "j a 1x1+2x1 slice=0+500", {"j": "n1:0 n1:1 n1:1"}),
    "slices that find no room leave no whole card held": (
        "n1: 2 L40 mib=1000", "j a 1x1+3x1 slice=0+500; k b 2", {"j": "impossible", "k": "n1:0-1"}),
    "one model where one has room": (
        "n1: 8 A100; n2: 8 H100; n3: 8 H100", "j a 2x8", {"j": "n2 n3"}),
    "several where none has": (
        "n1: 8 A100; n2: 8 H100; n3: 8 L40", "j a 2x8", {"j": "n1 n2"}),
    "CPUs for all replicas": (
        "n1 n2: 8 H100 cpus=20", "j a 4x1 cpu=10; k b 1 cpu=1", {"j": "n1 n1 n2 n2", "k": "host"}),
    "CPUs for all replicas but one": (
        "n1 n2: 8 H100 cpus=20", "r b 1 cpu=1 @n1; j a 4x1 cpu=10; k b 1 cpu=19",
        {"j": "host: needs 4 × (10 CPU, 4 GiB of host memory), there is room for 2", "k": "n1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", GANGS)
def test_gang(name: str) -> None:
    nodes, jobs, expected = GANGS[name]
    assert_outcomes(Board(nodes, "a; b", jobs).step(), expected)


@pytest.mark.parametrize("placement", ["binpack", "spread", "hybrid"])
@pytest.mark.parametrize(
    "job",
    ["j a 2x2", "j a 1x2+1x2 cpu=1+60", "j a 6x1 slice=700", "j a 1x2+9x1 slice=0+500", "j a 2x2+4x3 slice=600+600"],
)
def test_after_a_failure_the_ledger_is_as_before(job: str, placement: str) -> None:
    nodes = "n1: 8 L40 mib=1000 cpus=100; n2: 8 L40 mib=1000 cpus=100"
    running = "r b 4 @n1; q b 1 slice=300 @n1:4; s b 1 slice=300 @n1:5; t b 6 cpu=40 @n2; u b 1 slice=600 @n2:7"
    board = Board(nodes, "a; b", f"{running}; {job}", placement=placement)
    snapshot = board.roster.snapshot(0)
    ledger, fit = snapshot.ledger.copy(), snapshot.lanes[0].fit
    assert place(ledger, fit, STRATEGIES[Placement(placement)], fit.nodes) is None, "the job was to wait"
    assert ledger == snapshot.ledger
    assert ": " in board.step()["j"]
    board.add("k a 1 slice=700")
    assert_outcomes(board.step(1.0), {"k": "starts"})


def test_pieces_are_in_the_order_of_the_job() -> None:
    board = Board("n1 n2 n3: 8 H100", jobs="j a 2x1+1x8+2x4")
    pieces = board.decide().starts[0].pieces
    assert [(piece.group, piece.replica) for piece in pieces] == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1)]
