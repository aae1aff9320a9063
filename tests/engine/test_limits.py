"""Limits: of the team, of each parent, over all models, in per cent, of slices, and what "never" means."""

from datetime import time

import pytest

from quotas.limits import Amount, Window
from tests.engine.board import Board, assert_outcomes, nodes_of, tree_of

NODES = "h1 h2: 8 H100; m1: 8 A100"

# teams, jobs, outcomes
LIMITS = {
    "own limit": (
        "a H100:/4", "j a 4 model=H100; k a 1 model=H100",
        {"j": "h1", "k": "quota: a holds 4 of its limit of 4 H100, this job needs 1"}),
    "own limit, a gang counts whole": (
        "a H100:/6", "r a 1 @h1; j a 3x2 model=H100; k a 5 model=H100",
        {"j": "quota: a holds 6 of its limit of 6 H100, this job needs 6", "k": "h1"}),
    "the parent's": (
        "lab H100:/8; a<lab; b<lab", "r a 6 @h1; j b 4 model=H100; k b 2 model=H100",
        {"j": "quota: lab holds 8 of its limit of 8 H100, this job needs 4", "k": "h1"}),
    "the grandparent's": (
        "org H100:/8; lab<org; a<lab; b<org", "r a 6 @h1; j b 4 model=H100; k a 3 model=H100",
        {"j": "quota: org holds 6 of its limit of 8 H100, this job needs 4", "k": "quota: org …"}),
    "the own before the parent's": (
        "lab H100:/8; a<lab H100:/4", "r a 4 @h1; j a 5 model=H100",
        {"j": "impossible: … a may never hold more than 4"}),
    "over all models": (
        "a *:/8", "r a 4 @h1; j a 5 model=A100; k a 4 model=A100",
        {"j": "quota: a holds 8 of its limit of 8 GPUs, this job needs 5", "k": "m1"}),
    "of one model does not bind another": ("a H100:/4", "r a 4 @h1; j a 8 model=A100", {"j": "m1"}),
    "a job that may go elsewhere does": ("a H100:/4", "j a 8", {"j": "m1"}),
    "a job that may go elsewhere waits for that": (
        "a H100:/4; b", "r b 4 @m1; j a 8", {"j": "gpus: needs 8 GPUs, 4 of 8 free"}),
    "what is left to it is too little": (
        "a H100:8/16", "r a 8 @h1; s a 8 @h2; j a 2x8",
        {"j": "quota: a holds 16 of its limit of 16 H100, this job needs 16"}),
    "groups on different models count for each apart": (
        "a H100:/8 A100:/8", "j a 1x8+1x8 model=H100+A100", {"j": "h1 m1"}),
    "groups on different models count together over all": (
        "a *:/12", "j a 1x8+1x8 model=H100+A100",
        {"j": "impossible: needs 16 GPUs (8 + 8), a may never hold more than 12"}),
    "and for the limit of one of them": (
        "a A100:/4", "j a 1x8+1x8 model=H100+A100",
        {"j": "impossible: needs 8 A100 (8 + 8), a may never hold more than 4"}),
    "in per cent of the model's cards": (
        "a H100:/25%", "j a 4 model=H100; k a 1 model=H100",
        {"j": "h1", "k": "quota: a holds 4 of its limit of 4 H100, …"}),
    "in per cent of all cards": (
        "a *:/50%", "j a 8 model=H100; k a 4 model=A100; l a 1", {"j": "h1", "k": "m1", "l": "quota: a holds 12 …"}),
    "none at all": ("a", "j a 8 model=H100; k a 8 model=H100; l a 8", {"j": "h1", "k": "h2", "l": "m1"}),
    "of nothing": ("a *:/0", "j a 1", {"j": "impossible: needs 1 GPU, a may never hold more than 0"}),
    "guaranteed numbers are no limit": ("a H100:4", "j a 8 model=H100", {"j": "h1"}),
    "requested 24 = 16 + 8 against 16, over all models (C39)": (
        "a *:/16", "j a 2x8+1x8", {"j": "impossible: needs 24 GPUs (16 + 8), a may never hold more than 16"}),
    "starts of the same decision count": (
        "lab H100:/8; a<lab; b<lab", "j a 8 model=H100; k b 8 model=H100",
        {"j": "h1", "k": "quota: lab holds 8 of its limit of 8 H100, this job needs 8"}),
    "a lowered limit stops nothing that runs (C01)": (
        "a H100:/2", "r a 8 @h1; j a 1 model=H100", {"j": "quota: a holds 8 of its limit of 2 H100, this job needs 1"}),
    "one that fits goes before one that does not": (
        "a H100:/4", "r a 2 @h1; j a 4 model=H100; k a 2 model=H100", {"j": "quota", "k": "h1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_limit(name: str) -> None:
    teams, jobs, expected = LIMITS[name]
    assert_outcomes(Board(NODES, teams, jobs).step(), expected)


def test_requested_24_is_16_and_8_against_16() -> None:
    """C39: with cards for it, the ceiling is named, and the whole of what is asked."""
    board = Board("h1 h2 h3: 8 H100", "a H100:/16", "j a 2x8+1x8 model=H100")
    assert_outcomes(board.step(), {"j": "impossible: needs 24 H100 (16 + 8), a may never hold more than 16"})


def test_a_slice_counts_as_its_share_of_the_card() -> None:
    board = Board("l1: 4 L40 mib=1000", "a L40:/1.5", "; ".join(f"s{n} a 1 slice=250" for n in range(8)))
    told = board.step()
    assert sum(": " not in outcome for outcome in told.values()) == 6
    assert told["s7"] == "quota: a holds 1.5 of its limit of 1.5 L40, this job needs 0.25"


def test_a_slice_counts_with_its_head_room() -> None:
    jobs = "j a 1 slice=400 kind=inference; k a 1 slice=400 kind=inference"
    board = Board("l1: 4 L40 mib=1000", "a L40:/0.9", jobs, inference_headroom=0.25)
    assert_outcomes(board.step(), {"j": "l1", "k": "quota"})


def test_slices_of_several_cards_count_for_each() -> None:
    board = Board("l1: 4 L40 mib=1000", "a L40:/1.5", "j a 2x2 slice=500; k a 3 slice=500; l a 1 slice=1")
    assert_outcomes(board.step(), {"j": "impossible", "k": "l1", "l": "quota"})


def test_what_runs_on_hardware_that_left_goes_on_counting() -> None:
    """C01: use does not drop out of the books with the model or the node."""
    board = Board(NODES, "a *:/8 H100:/4; b", "r a 2x4 model=A100 @m1/m1; j a 1 model=H100; k b 1 model=H100")
    board.roster.remove_node("m1")
    assert_outcomes(board.step(), {"j": "quota: a holds 8 of its limit of 8 GPUs, …", "k": "h1"})
    board.roster.release("r", 1.0)
    assert_outcomes(board.step(1.0), {"j": "starts"})


def test_percentages_follow_the_hardware() -> None:
    board = Board("h1: 8 H100", "a H100:/50%", "j a 8 model=H100")
    assert_outcomes(board.step(), {"j": "impossible"})
    board.roster.add_nodes(nodes_of("h2: 8 H100"))
    assert_outcomes(board.step(), {"j": "h1"})
    board.add("k a 1")
    board.roster.remove_node("h2")
    assert_outcomes(board.step(), {"k": "quota: a holds 8 of its limit of 4 H100, this job needs 1"})


def test_an_edit_is_in_force_at_once() -> None:
    board = Board(NODES, "a H100:/4; b", "r a 4 @h1; j a 4 model=H100")
    assert_outcomes(board.step(), {"j": "quota"})
    board.roster.set_tree(tree_of("new; b; a H100:/8"))
    assert_outcomes(board.step(), {"j": "h1"})
    board.add("k a 1 model=H100; l b 1 model=H100")
    assert_outcomes(board.step(), {"k": "quota: a holds 8 of its limit of 8 H100, …", "l": "h2"})


def test_a_team_moved_under_a_parent_counts_there() -> None:
    board = Board(NODES, "lab H100:/8; a", "r a 6 @h1; j lab 4 model=H100")
    board.roster.set_tree(tree_of("lab H100:/8; a<lab"))
    assert_outcomes(board.step(), {"j": "quota: lab holds 6 of its limit of 8 H100, …"})


def test_windows_change_the_limit_and_wake_the_loop() -> None:
    """Open 22:00 to 06:00: the limit is 8 then, 4 by day; t=0 is a Monday 21:00 in Shanghai."""
    night = Window(frozenset({0}), time(22), time(6), "H100", limit=Amount(8))
    board = Board(
        NODES, "a H100:/4", "j a 8 model=H100; k a 2x8 model=H100", timezone="Asia/Shanghai", windows={"a": (night,)},
        epoch=1_767_618_000.0,  # 2026-01-05T21:00 in Shanghai
    )  # fmt: skip
    before = board.decide(0.0)
    assert_outcomes(
        board.step(0.0), {"j": "quota: a holds 0 of its limit of 4 H100, …", "k": "impossible: … more than 8"}
    )
    assert before.wake_at == 3_600.0
    assert board.decide(3_599.0).starts == ()
    assert_outcomes(board.step(3_600.0), {"j": "h1", "k": "impossible"})
    board.add("l a 1 model=H100")
    assert_outcomes(board.step(9 * 3_600.0), {"l": "quota: a holds 8 of its limit of 4 H100, …"})
    assert board.roster.running("j") is not None
