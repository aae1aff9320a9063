"""Where a job goes: binpack, spread, hybrid, to the very card."""

import pytest

from scheduler.engine.cluster import CardState
from tests.engine.board import Board

FOUR = "n1 n2 n10: 8 H100; n3: 4 H100"

# placement, what runs, jobs in order, where they go
PLACES = {
    "binpack: the node with the fewest free cards that fits": ("binpack", "r b 5 @n2", "j a 3", {"j": "n2:5-7"}),
    "binpack: that fits": ("binpack", "r b 6 @n2", "j a 3", {"j": "n3:0-2"}),
    "binpack: ties to the lowest natural name": (
        "binpack", "r b 4 @n3", "j a 8; k a 8", {"j": "n1:0-7", "k": "n2:0-7"}),
    "binpack: n2 before n10": ("binpack", "r b 8 @n1; q b 4 @n3", "j a 1", {"j": "n2:0"}),
    "binpack: the lowest free cards": ("binpack", "r b 1 @n3:1", "j a 2", {"j": "n3:0,2"}),
    "spread: the node with the most": (
        "spread", "r b 1 @n1; q b 2 @n2", "j a 1; k a 1; l a 1", {"j": "n10:0", "k": "n1:1", "l": "n10:1"}),
    "spread: ties to the lowest natural name": (
        "spread", "", "j a 1; k a 1; l a 1; m a 1", {"j": "n1:0", "k": "n2:0", "l": "n10:0", "m": "n1:1"}),
    "spread: a gang is spread too": ("spread", "", "j a 3x2", {"j": "n1:0-1 n2:0-1 n10:0-1"}),
    "hybrid: less than half a node packs": ("hybrid", "r b 4 @n10", "j a 3; k a 1", {"j": "n3:0-2", "k": "n3:3"}),
    "hybrid: half a node takes a whole one": ("hybrid", "r b 4 @n2; q b 4 @n3", "j a 4", {"j": "n1:0-3"}),
    "hybrid: a whole node of its size first": ("hybrid", "r b 4 @n2", "j a 4", {"j": "n3:0-3"}),
    "hybrid: a gang takes whole nodes, as few as possible": (
        "hybrid", "r b 4 @n2", "j a 4x2", {"j": "n1:0-1 n1:2-3 n1:4-5 n1:6-7"}),
    "hybrid: the smallest that takes all of it": ("hybrid", "", "j a 2x2", {"j": "n3:0-1 n3:2-3"}),
    "hybrid: a gang of two nodes": ("hybrid", "", "j a 3x4", {"j": "n1:0-3 n1:4-7 n3:0-3"}),
    "hybrid: without a whole node it packs": (
        "hybrid", "r b 1 @n1; q b 2 @n2; s b 1 @n3; t b 1 @n10", "j a 4", {"j": "n2:2-5"}),
    "hybrid: a gang goes on where it has begun": (
        "hybrid", "r b 1 @n1; q b 1 @n2; s b 1 @n3", "j a 3x4", {"j": "n10:0-3 n10:4-7 n1:1-4"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_place(name: str) -> None:
    placement, running, jobs, expected = PLACES[name]
    assert Board(FOUR, "a; b", f"{running}; {jobs}", placement=placement).step() == expected


# C29, jobs in order A 1, B 2, C 2, D 1 on two nodes of 4
@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("binpack", {"A": "n1:0", "B": "n1:1-2", "C": "n2:0-1", "D": "n1:3"}),
        ("spread", {"A": "n1:0", "B": "n2:0-1", "C": "n1:1-2", "D": "n2:2"}),
    ],
)
def test_what_packing_and_spreading_mean(placement: str, expected: dict[str, str]) -> None:
    jobs = "A a 1; B a 2; C a 2; D a 1"
    assert Board("n1 n2: 4 H100", "a", jobs, placement=placement).step() == expected


@pytest.mark.parametrize("placement", ["binpack", "spread", "hybrid"])
def test_order_of_the_nodes_given_does_not_matter(placement: str) -> None:
    jobs = "j a 3; k a 1; l a 2x4; m a 1 slice=500"
    one = Board("n1: 8 H100; n2: 8 H100; n10: 8 H100", "a", jobs, placement=placement)
    other = Board("n10: 8 H100; n2: 8 H100; n1: 8 H100", "a", jobs, placement=placement)
    assert one.step() == other.step()


def test_a_node_with_a_card_out_can_still_be_wholly_free() -> None:
    """What counts is the working cards: hybrid takes n2, whose seven cards are all free, before n1 in use."""
    board = Board("n1 n2: 8 H100", "a; b", "r b 1 @n1; j a 7", placement="hybrid")
    board.roster.set_card_state("n2", 7, CardState.OUT)
    assert board.step() == {"j": "n2:0-6"}
