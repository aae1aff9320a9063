"""Reclaim: a team gets its guaranteed number back from loans, the youngest first, and takes no more than it needs."""

from typing import Any

import pytest

from scheduler.engine.policy import Preemption, Reclaim
from tests.engine.board import Board, assert_outcomes, taken

NOW = 10_000.0
GAP = "b H100:8; a H100:8"

# nodes, teams, jobs at 10,000 s, outcomes of those that wait, and exactly who gives way
RECLAIMS: dict[str, tuple[str, str, str, dict[str, str], set[str]]] = {
    "the youngest loan first": (
        "n1 n2: 8 H100", GAP, "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; b3 b 4 at=3 @n2; b4 b 4 at=4 @n2; j a 4",
        {"j": "stopping: … 4 … n2"}, {"b4"}),
    "the next one where one is not enough": (
        "n1 n2: 8 H100", GAP, "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; b3 b 4 at=3 @n2; b4 b 4 at=4 @n2; j a 8",
        {"j": "stopping"}, {"b3", "b4"}),
    "only what is needed: an older loan that is enough alone": (
        "n1 n2: 8 H100", "b; c H100:1; a H100:8", "b1 b 8 at=1 @n1; b2 b 4 at=2 @n2; c1 c 1 at=3 @n2; j a 8",
        {"j": "stopping: … n1"}, {"b1"}),
    "what is idle counts": (
        "n1 n2: 8 H100", GAP, "b1 b 8 at=1 @n1; b2 b 4 at=2 @n2; b3 b 2 at=3 @n2; j a 4",
        {"j": "stopping: … n2"}, {"b3"}),
    "nobody where it fits as it is": (
        "n1 n2: 8 H100", GAP, "b1 b 8 at=1 @n1; b2 b 4 at=2 @n2; j a 4", {"j": "n2"}, set()),
    "what a team holds within its number is no loan": (
        "n1 n2: 8 H100", GAP, "b1 b 8 at=1 @n1; c1 a 4 at=2 @n2; c2 b 4 at=0 @n2; j a 4", {"j": "stopping: … n1"},
        {"b1"}),
    "a team is taken from until it is at its number": (
        "n1: 8 H100", "b H100:4; a H100:4", "b1 b 4 at=1 @n1; b2 b 2 at=2 @n1; b3 b 2 at=3 @n1; j a 4",
        {"j": "stopping"}, {"b2", "b3"}),
    "and not below where it holds the most but is at its number": (
        "n1: 8 H100", "b H100:8; c; a H100:4", "b1 b 5 at=3 @n1; c1 c 3 at=1 @n1; j a 4", {"j": "gpus"}, set()),
    "nobody is brought below his number": (
        "n1: 8 H100", "b H100:4; a H100:6", "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; j a 6", {"j": "gpus"}, set()),
    "the youngest is spared where an older one is needed and enough": (
        "n1: 8 H100", "b; a H100:7", "b1 b 7 at=1 @n1; b2 b 1 at=2 @n1; j a 7", {"j": "stopping"}, {"b1"}),
    "one that needs more than its team is guaranteed borrows itself": (
        "n1: 8 H100", "b; a H100:4", "b1 b 8 at=1 @n1; j a 5", {"j": "gpus: needs 5 GPUs, 0 of 8 …"}, set()),
    "with what the team holds already": (
        "n1: 8 H100", "b; a H100:4", "b1 b 6 at=1 @n1; a1 a 2 at=1 @n1; j a 3; k a 2", {"j": "gpus", "k": "stopping"},
        {"b1"}),
    "its own jobs are no loans": (
        "n1: 8 H100", "a H100:4", "a1 a 8 at=1 @n1; j a 4", {"j": "gpus"}, set()),
    "a team without a number has none to reclaim": (
        "n1: 8 H100", "b; a", "b1 b 8 at=1 @n1; j a 4", {"j": "gpus"}, set()),
    "for each model apart": (
        "n1: 8 H100; m1: 8 A100", "b H100:8; a A100:8", "b1 b 8 model=H100 at=1 @n1; b2 b 8 model=A100 at=1 @m1; j a 8",
        {"j": "stopping: … m1"}, {"b2"}),
    "over all models together": (
        "n1: 8 H100; m1: 8 A100", "b; a *:8", "b1 b 8 at=1 @n1; b2 b 8 at=2 @m1; j a 8", {"j": "stopping: … m1"},
        {"b2"}),
    "only on the models that it is guaranteed": (
        "n1: 1 B100; n2: 3 H100", "a H100:2; b H100:3", "b1 b 3 at=1 model=H100 @n2; a1 a 1 at=1 @n1; j a 1",
        {"j": "gpus"}, set()),
    "nor does it settle on another that a loan leaves too": (
        "n1: 1 B100; n2: 1 H100", "a H100:1; b", "b1 b 2x1 at=1 @n1/n2; j a 1", {"j": "stopping: … n2"}, {"b1"}),
    "a loan of the other model is not asked for": (
        "n1: 1 B100; n2: 3 H100", "a H100:2; b", "b1 b 3 at=1 @n2; b2 b 1 at=2 @n1; j a 1", {"j": "stopping: … n2"},
        {"b1"}),
    "in the size that its number allows": (
        "n1: 8 H100", "a H100:4; b", "b1 b 8 at=1 @n1; j a 4x2 min=1", {"j": "stopping"}, {"b1"}),
    "and that its limit allows": (
        "n1: 8 H100", "a H100:4/4; b", "b1 b 8 at=1 @n1; j a 4x2 min=1", {"j": "stopping"}, {"b1"}),
    "min_runtime protects": (
        "n1: 8 H100", "b; a H100:8", "b1 b 8 at=9401 @n1; j a 8",
        {"j": "reclaim: the guaranteed share of a is lent out… until 1970-01-01 02:46:41"}, set()),
    "and then no longer": ("n1: 8 H100", "b; a H100:8", "b1 b 8 at=9400 @n1; j a 8", {"j": "stopping"}, {"b1"}),
    "the youngest that may be taken": (
        "n1: 8 H100", "b; a H100:4", "b1 b 4 at=1 @n1; b2 b 4 at=9999 @n1; j a 4", {"j": "stopping"}, {"b1"}),
    "a job's own minimum": (
        "n1: 8 H100", "b; a H100:4", "b1 b 4 at=1 minrun=20000 @n1; b2 b 4 at=2 minrun=9999 @n1; j a 4",
        {"j": "reclaim: … until 1970-01-01 02:46:41"}, set()),
    "a shorter one of its own too": (
        "n1: 8 H100", "b; a H100:8", "b1 b 8 at=9990 minrun=10 @n1; j a 8", {"j": "stopping"}, {"b1"}),
    "neither preemptible nor protect_after shields a loan": (
        "n1: 8 H100", "b; a H100:8", "b1 b 8 fixed=1 taken=9 back=1 at=-90000 @n1; j a 8", {"j": "stopping"}, {"b1"}),
    "nor a higher priority": (
        "n1: 8 H100", "b; a H100:8", "b1 b 8 prio=900 at=1 @n1; j a 8 prio=100", {"j": "stopping"}, {"b1"}),
    "the parent's limit is used up by a sibling's loan": (
        "n1 n2: 8 H100", "lab H100:8/8; a<lab H100:4; b<lab H100:4", "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; j a 4",
        {"j": "stopping: … n1"}, {"b2"}),
    "where one limit is full no others are ended": (
        "n1 n2: 8 H100", "lab H100:4/4; a<lab H100:4; d<lab; b", ("a1 a 2 at=1 @n1; d1 d 2 at=1 @n1; b1 b 8 at=2 @n2; "
         "j a 4"), {"j": "quota: lab …"}, set()),
    "a sibling's loan, where the sibling has no number": (
        "n1: 8 H100", "lab H100:8; a<lab H100:4; b<lab", "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; j a 4",
        {"j": "stopping"}, {"b2"}),
    "siblings that share one number take nothing from each other": (
        "n1: 8 H100", "lab H100:8; a<lab; b<lab", "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; j a 4", {"j": "gpus"}, set()),
    "a child through its parent's number": (
        "n1: 8 H100", "lab H100:8; a<lab; c", "c1 c 8 at=1 @n1; j a 4", {"j": "stopping"}, {"c1"}),
    "all or nothing, and past the one who is not eligible (C15)": (
        "n1: 5 H100", "L; P H100:1; H H100:4", ("l1 L 1 at=1 @n1; l2 L 1 at=2 @n1; l3 L 1 at=3 @n1; l4 L 1 at=4 @n1; "
         "p1 P 1 prio=100 at=5 @n1; h1 H 4x1"), {"h1": "stopping"}, {"l1", "l2", "l3", "l4"}),
    "nobody is ended in vain (C15)": (
        "n1: 5 H100", "L; P H100:2; H H100:4", ("l1 L 1 at=1 @n1; l2 L 1 at=2 @n1; l3 L 1 at=3 @n1; p2 P 1 at=4 @n1; "
         "p1 P 1 prio=100 at=5 @n1; h1 H 4x1"), {"h1": "gpus"}, set()),
    "one big loan serves two teams (C11)": (
        "n1: 8 H100", "big; a H100:4; b H100:4", "o big 8 at=1 @n1; j a 4; k b 4", {"j": "stopping", "k": "stopping"},
        {"o"}),
    "replicas of elastic jobs first": (
        "n1 n2: 8 H100", "b; a H100:2", "e b 4x2 min=2 at=1 @n1/n1/n1/n1; w b 8 at=2 @n2; j a 2",
        {"j": "stopping", "e": "now n1 n1 n1"}, set()),
    "two of them for two jobs": (
        "n1 n2: 8 H100", "b; a H100:4", "e b 4x2 min=2 at=1 @n1/n1/n1/n1; w b 8 at=2 @n2; j a 2; k a 2",
        {"j": "stopping", "k": "stopping", "e": "now n1 n1"}, set()),
    "but never below its least": (
        "n1: 8 H100", "b; a H100:6", "e b 4x2 min=2 at=1 @n1/n1/n1/n1; j a 6", {"j": "stopping"}, {"e"}),
    "slices give way too": (
        "n1: 1 L40 mib=1000", "b; a L40:1", ("s1 b 1 slice=500 at=1 @n1:0; s2 b 1 slice=500 at=2 @n1:0; "
         "j a 1 slice=400"), {"j": "stopping"}, {"s2"}),
    "what leaves already is not asked for twice": (
        "n1: 8 H100", "b; a H100:4", "b1 b 4 at=1 @n1; b2 b 4 at=2 @n1; j a 4", {"j": "stopping"}, {"b2"}),
    "the one that just began may be taken where nothing protects it": (
        "n1: 8 H100", "b; a H100:8", "b1 b 8 at=9999 minrun=0 @n1; j a 8", {"j": "stopping"}, {"b1"}),
}  # fmt: skip


def board(nodes: str, teams: str, jobs: str, **rules: Any) -> Board:
    usual: dict[str, Any] = {"reclaim": Reclaim(), "queueing": "capacity"}
    return Board(nodes, teams, jobs, **usual | rules)


@pytest.mark.parametrize("name", RECLAIMS)
def test_reclaim(name: str) -> None:
    nodes, teams, jobs, expected, gone = RECLAIMS[name]
    made = board(nodes, teams, jobs)
    plan = made.decide(NOW)
    assert_outcomes(made.step(NOW), expected)
    assert taken(plan) == dict.fromkeys(gone, "reclaimed")


@pytest.mark.parametrize("name", RECLAIMS)
def test_those_who_reclaim_start_when_the_others_have_left(name: str) -> None:
    nodes, teams, jobs, expected, _ = RECLAIMS[name]
    made = board(nodes, teams, jobs)
    made.step(NOW)
    made.leave(NOW)
    made.step(NOW)
    assert {job for job, outcome in expected.items() if outcome.startswith("stopping")} <= made.runs().keys()


@pytest.mark.parametrize("name", RECLAIMS)
def test_and_then_nothing_moves(name: str) -> None:
    """I5: whoever was taken from has no right to take it back."""
    nodes, teams, jobs, expected, _ = RECLAIMS[name]
    if any(outcome.startswith("reclaim") for outcome in expected.values()):
        return  # time alone opens something there
    made = board(nodes, teams, jobs, reclaim=Reclaim(min_runtime=0.0))
    made.settle(NOW)
    for later in range(1, 20):
        plan = made.decide(NOW + later)
        assert not plan.preempts
        assert not plan.resizes
        assert not plan.starts


def test_reclaim_can_be_off() -> None:
    rules: dict[str, Any] = {"reclaim": Reclaim(enabled=False), "preemption": Preemption()}
    made = board("n1: 8 H100", "b; a H100:8", "b1 b 8 at=1 @n1; j a 8", **rules)
    assert_outcomes(made.step(NOW), {"j": "gpus"})


def test_it_is_tried_before_preemption() -> None:
    """Both would do: the loan goes, not the young one of lower priority within its number."""
    jobs = "b1 b 4 at=1 prio=900 @n1; c1 c 4 at=9999 prio=100 minrun=0 @n1; j a 4 prio=500"
    made = board("n1: 8 H100", "b; c H100:4; a H100:4", jobs, preemption=Preemption(min_runtime=0.0))
    assert taken(made.decide(NOW)) == {"b1": "reclaimed"}


def test_quota_lowered_below_what_runs() -> None:
    """C01: nothing stops for the edit; the next borrower starts; then exactly the newest two give way."""
    made = board(
        "n1 n2: 8 H100", "A H100:12; B H100:4", "; ".join(f"a{n} A 4 at={n} @n{1 + n // 3}" for n in (1, 2, 3))
    )
    made.roster.set_tree(Board("n1: 8 H100", "A H100:4; B H100:8").roster.tree)
    assert made.step(NOW) == {}
    made.add("a4 A 1")
    assert_outcomes(made.step(NOW), {"a4": "n2"})
    made.add("b1 B 8x1")
    assert taken(made.decide(NOW + 600)) == {"a4": "reclaimed", "a3": "reclaimed"}
    made.settle(NOW + 600)
    assert set(made.runs()) == {"a1", "a2", "b1"}


def test_it_wakes_when_the_loan_may_be_taken() -> None:
    made = board("n1: 8 H100", "b; a H100:8", "b1 b 8 at=9900 @n1; j a 8")
    assert made.decide(NOW).wake_at == 10_500.0
    assert taken(made.decide(10_500.0)) == {"b1": "reclaimed"}


def test_what_another_leaves_behind_is_enough() -> None:
    """The loan that has been taken for one leaves more than that one needs: the next takes nobody."""
    made = board("n1 n2: 8 H100", "b; a H100:8", "b1 b 8 at=1 @n1; b2 b 8 at=2 @n2; j a 2; k a 2; l a 4")
    assert taken(made.decide(NOW)) == {"b2": "reclaimed"}
    assert_outcomes(made.step(NOW), {"j": "stopping", "k": "stopping", "l": "stopping"})
