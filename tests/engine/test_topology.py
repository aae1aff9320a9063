"""Topology: together where it must or should be, apart where it should be, and the right word when it cannot."""

import pytest

from tests.engine.board import Board, assert_outcomes, nodes_of

RACKS = "n1 n2: 2 H100 rack=r1 switch=s1; n3 n4: 2 H100 rack=r2 switch=s1; n5 n6: 2 H100 rack=r3 switch=s2"
LEAVES = (
    "n1 n2: 1 H100 rack=s0 switch=leafA; n3 n4: 1 H100 rack=s1 switch=leafA; "
    "n5 n6: 1 H100 rack=s2 switch=leafB; n7 n8: 1 H100 rack=s3 switch=leafB"
)
NVLINK = "n1 n2: 2 H100 nvlink=d1; n3 n4: 2 H100 nvlink=d2"

# nodes, jobs, outcomes
TOGETHER: dict[str, tuple[str, str, dict[str, str]]] = {
    "require node": (RACKS, "j a 2x1 require=node", {"j": "n1 n1"}),
    "require node, though two halves are free": (
        "n1 n2: 2 H100", "r a 1 @n1; q a 1 @n2; j a 2x1 require=node", {"j": "topology: … by node"}),
    "require nvlink": (NVLINK, "r a 1 @n1; j a 4x1 require=nvlink", {"j": "n3 n3 n4 n4"}),
    "without a name a node is its own nvlink domain": (RACKS, "j a 3x1 require=nvlink", {"j": "impossible"}),
    "require rack": (RACKS, "r a 1 @n1; j a 2x2 require=rack", {"j": "n3 n4"}),
    "require rack, the least that will do": (RACKS, "r a 1 @n3; j a 3x1 require=rack", {"j": "n3 n4 n4"}),
    "require switch": (RACKS, "r a 1 @n6; j a 4x2 require=switch", {"j": "n1 n2 n3 n4"}),
    "require rack, enough free across two": (
        RACKS, "r a 2 @n1; q a 2 @n3; p a 2 @n5; j a 2x2 require=rack",
        {"j": "topology: 6 GPUs are free and would do, but not within its topology by rack"}),
    "require rack, too large for any": (
        RACKS, "j a 3x2 require=rack", {"j": "impossible: needs 6 GPUs in one rack, the largest has 4"}),
    "require rack, what is left to it is too small": (
        RACKS, "j a 2x2 require=rack not=n2,n4,n6", {"j": "topology"}),
    "too few free at all": (
        RACKS, ("r a 6x2 @n1/n2/n3/n4/n5/n6; j a 2x2 require=rack"), {"j": "gpus"}),
    "enough free, not even together": (
        "n1 n2: 2 H100 rack=r1; n3: 2 H100 rack=r2", "r a 1 @n1; q a 1 @n2; p a 1 @n3; j a 2 require=rack",
        {"j": "fragmented"}),
    "prefer rack": (RACKS, "r a 1 @n1; j a 2x2 prefer=rack", {"j": "n3 n4"}),
    "prefer widens to the switch": (
        RACKS, "r a 1 @n1; q a 1 @n3; p a 1 @n5; j a 2x2 prefer=rack", {"j": "n2 n4"}),
    "prefer at last takes what there is": (
        RACKS, "r a 1 @n1; q a 1 @n3; p a 1 @n5; s a 1 @n2; j a 2x2 prefer=rack", {"j": "n4 n6"}),
    "prefer node": (RACKS, "r a 1 @n1; j a 2x1 prefer=node", {"j": "n2 n2"}),
    "prefer node widens to the rack": ("n1 n2: 1 H100 rack=r1; n3 n4: 1 H100 rack=r2", "r a 1 @n1; j a 2x1 prefer=node",
        {"j": "n3 n4"}),
    "soft, all free (C25 c)": (LEAVES, "j a 4x1 prefer=rack", {"j": "n1 n2 n3 n4"}),
    "soft, n2 is busy (C25 d)": (LEAVES, "r a 1 @n2; j a 4x1 prefer=rack", {"j": "n5 n6 n7 n8"}),
    "require one level and prefer another": (
        LEAVES, "r a 1 @n1; j a 2x1 require=switch prefer=rack", {"j": "n3 n4"}),
    "groups together": (RACKS, "r a 1 @n1; j a 1x2+2x1 require=rack", {"j": "n3 n4 n4"}),
    "groups that fit alone but not in one rack": (
        RACKS, "r a 1 @n1; q a 1 @n3; p a 1 @n5; j a 1x2+2x1 require=rack", {"j": "topology"}),
    "groups counted against what is left (C23)": (
        "n1 n2: 1 H100 rack=r1", "j a 1x1+1x1+1x1 require=rack; k a 1x1+1x1 require=rack", {"j": "impossible",
        "k": "n1 n2"}),
    "both pinned to one (C23)": (
        "n1: 1 H100 label=on:1; n2: 1 H100 label=on:2", "j a 1x1+1x1 sel=on:1+on:1; k a 1x1+1x1 sel=on:1+on:2",
        {"j": "labels", "k": "n1 n2"}),
    "4 + 4 on a node with 4 (C23)": ("n1: 4 H100", "j a 1x4+1x4", {"j": "impossible"}),
    "slices together": (
        "n1 n2: 1 L40 mib=1000 rack=r1; n3 n4: 1 L40 mib=1000 rack=r2",
        "s a 1 slice=600 @n1; j a 2x1 slice=600 require=rack", {"j": "n3 n4"}),
}  # fmt: skip

APART: dict[str, tuple[str, str, dict[str, str]]] = {
    "spread node": (RACKS, "j a 4x1 spread=node", {"j": "n1 n2 n3 n4"}),
    "spread rack, as even as possible": (RACKS, "j a 4x1 spread=rack", {"j": "n1 n3 n5 n1"}),
    "spread rack, a full one is passed over": (
        RACKS, "r a 2x2 @n1/n2; j a 4x1 spread=rack", {"j": "n3 n5 n3 n5"}),
    "uneven where it must be": (
        RACKS, "r a 2x2 @n1/n2; q a 2 @n3; p a 1 @n4; j a 4x1 spread=rack", {"j": "n4 n5 n5 n6"}),
    "at most half in one": (RACKS, "r a 2x2 @n1/n2; j a 4x1 spread=rack share_max=0.5", {"j": "n3 n5 n3 n5"}),
    "at most half, and only one is left": (
        RACKS, "r a 4x2 @n1/n2/n3/n4; j a 4x1 spread=rack share_max=0.5", {"j": "topology"}),
    "rounded down": (
        RACKS, "r a 2x2 @n1/n2; j a 5x1 spread=rack share_max=0.5", {"j": "topology"}),
    "but one is always allowed": (RACKS, "j a 2x1 spread=rack share_max=0.1", {"j": "n1 n3"}),
    "never so many racks": (RACKS, "j a 4x1 spread=rack share_max=0.1", {"j": "impossible: … 4 …"}),
    "segments of two (C21)": (
        "n1 n2 n3: 1 H100 rack=r1; n4 n5 n6: 1 H100 rack=r2; n7 n8 n9: 1 H100 rack=r3",
        "j a 6x1 spread=rack share_max=0.34", {"j": "n1 n4 n7 n2 n5 n8"}),
    "spread within one switch": (RACKS, "j a 4x1 require=switch spread=rack share_max=0.5", {"j": "n1 n3 n1 n3"}),
    "whole groups count": (RACKS, "j a 2x1+2x1 spread=node share_max=0.25", {"j": "n1 n2 n3 n4"}),
    "slices of one card would do, but are kept apart": (
        "n1 n2: 1 L40 mib=1000 rack=r1", "j a 2x1 slice=100 spread=node", {"j": "n1 n2"}),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str) -> None:
    nodes, jobs, expected = TOGETHER[name]
    assert_outcomes(Board(nodes, jobs=jobs).step(), expected)


@pytest.mark.parametrize("name", APART)
def test_apart(name: str) -> None:
    nodes, jobs, expected = APART[name]
    assert_outcomes(Board(nodes, jobs=jobs).step(), expected)


@pytest.mark.parametrize("placement", ["binpack", "spread", "hybrid"])
def test_every_strategy_keeps_what_is_required(placement: str) -> None:
    for jobs in ("j a 2x2 require=rack", "j a 4x1 require=rack"):
        board = Board(RACKS, jobs=f"r a 1 @n1; q a 1 @n5; {jobs}", placement=placement)
        assert {node[:2] for node in board.step()["j"].split()} == {"n3", "n4"}


def test_the_same_mapping_told_again_changes_nothing() -> None:
    """C21: re-sent every minute, a node away and back: the same place as before."""
    told = []
    for again in (False, True):
        board = Board(RACKS, jobs="r a 1 @n1; j a 2x2 require=rack; k a 4x1 spread=rack")
        if again:
            for _ in range(3):
                board.roster.add_nodes(nodes_of(RACKS))
            board.roster.remove_node("n4")
            board.roster.add_nodes(nodes_of(RACKS))
        told.append(board.step())
    assert told[0] == told[1]


def test_a_mapping_that_changes_counts_at_once() -> None:
    board = Board("n1 n2: 2 H100 rack=r1", jobs="j a 2x2 require=rack")
    board.roster.add_nodes(nodes_of("n2: 2 H100 rack=r2"))
    assert_outcomes(board.step(), {"j": "impossible"})
    board.roster.add_nodes(nodes_of("n2: 2 H100 rack=r1"))
    assert_outcomes(board.step(), {"j": "n1 n2"})


def test_a_rack_with_too_few_in_service_is_waited_for() -> None:
    """C21: one rack has a single node left; the rule is never dropped."""
    board = Board(RACKS, jobs="j a 6x2 spread=rack share_max=0.34")
    board.roster.remove_node("n6")
    assert_outcomes(board.step(), {"j": "impossible"})
