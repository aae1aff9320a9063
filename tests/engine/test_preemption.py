"""Preemption: a higher priority takes the least work from those who are young enough, and nothing goes in circles."""

from typing import Any

import pytest

from scheduler.engine.policy import Preemption, Reclaim
from tests.engine.board import Board, assert_outcomes, taken

NOW = 10_000.0
TWO = "n1 n2: 8 H100"
TWIN = "n1: 3 H100"

# nodes, jobs at 10,000 s, outcomes of those that wait, and exactly who gives way
PREEMPTIONS: dict[str, tuple[str, str, dict[str, str], set[str]]] = {
    "a lower priority": ("n1: 8 H100", "l a 8 prio=100 at=1 @n1; j b 8", {"j": "stopping"}, {"l"}),
    "not an equal one": ("n1: 8 H100", "l a 8 at=1 @n1; j b 8", {"j": "gpus"}, set()),
    "not an equal one beside a lower one": (
        TWO, "l a 8 prio=100 fixed=1 at=1 @n2; m a 8 at=1 @n1; j b 8", {"j": "gpus"}, set()),
    "not a higher one": ("n1: 8 H100", "l a 8 prio=900 at=1 @n1; j b 8", {"j": "gpus"}, set()),
    "its own team's too": ("n1: 8 H100", "l a 8 prio=100 at=1 @n1; j a 8", {"j": "stopping"}, {"l"}),
    "nobody where it fits as it is": (TWO, "l a 8 prio=100 at=1 @n1; j b 8", {"j": "n2"}, set()),
    "min_runtime protects": ("n1: 8 H100", "l a 8 prio=100 at=9401 @n1; j b 8", {"j": "gpus"}, set()),
    "to the second": ("n1: 8 H100", "l a 8 prio=100 at=9400 @n1; j b 8", {"j": "stopping"}, {"l"}),
    "a job's own minimum": ("n1: 8 H100", "l a 8 prio=100 at=1 minrun=10000 @n1; j b 8", {"j": "gpus"}, set()),
    "a shorter one of its own": ("n1: 8 H100", "l a 8 prio=100 at=9990 minrun=10 @n1; j b 8", {"j": "stopping"}, {"l"}),
    "protect_after protects": ("n1: 8 H100", "l a 8 prio=100 at=-4400 @n1; j b 8", {"j": "gpus"}, set()),
    "and until then not": ("n1: 8 H100", "l a 8 prio=100 at=-4399 @n1; j b 8", {"j": "stopping"}, {"l"}),
    "not preemptible": ("n1: 8 H100", "l a 8 prio=100 at=1 fixed=1 @n1; j b 8", {"j": "gpus"}, set()),
    "taken often enough": ("n1: 8 H100", "l a 8 prio=100 at=1 taken=3 @n1; j b 8", {"j": "gpus"}, set()),
    "taken less often": ("n1: 8 H100", "l a 8 prio=100 at=1 taken=2 @n1; j b 8", {"j": "stopping"}, {"l"}),
    "soon after its return": (
        "n1: 8 H100", "l a 8 prio=100 at=9401 minrun=0 back=1 @n1; j b 8", {"j": "gpus"}, set()),
    "a cooldown after its return": (
        "n1: 8 H100", "l a 8 prio=100 at=9400 minrun=0 back=1 @n1; j b 8", {"j": "stopping"}, {"l"}),
    "the least lost work": (
        TWO, "l a 8 prio=100 at=1 @n1; m a 8 prio=100 at=5000 @n2; j b 8", {"j": "stopping: … n2"}, {"m"}),
    "since the last checkpoint": (
        TWO, "l a 8 prio=100 at=1 every=999 @n1; m a 8 prio=100 at=9000 @n2; j b 8", {"j": "stopping: … n1"}, {"l"}),
    "a checkpoint long ago is worth little": (
        TWO, "l a 8 prio=100 at=1 every=6000 @n1; m a 8 prio=100 at=9000 @n2; j b 8", {"j": "stopping: … n2"}, {"m"}),
    "in GPU-seconds: a large young one loses more than two small old ones": (
        TWO, ("l a 8 prio=100 at=6000 @n1; m a 2 prio=100 at=1 @n2; o a 2 prio=100 at=1 @n2; p b 4 at=1 @n2; "
         "j b 4"), {"j": "stopping: … n1"}, {"l"}),
    "exactly: two small ones rather than a large one": (
        "n1: 8 H100", ("l a 4 prio=100 at=5000 @n1; m a 2 prio=100 at=9000 @n1; o a 2 prio=100 at=9000 @n1; j b 4"),
        {"j": "stopping"}, {"m", "o"}),
    "exactly: one in the middle": (
        "n1: 8 H100", ("l a 3 prio=100 at=1000 @n1; m a 3 prio=100 at=7000 @n1; o a 2 prio=100 at=9000 @n1; j b 3"),
        {"j": "stopping"}, {"m"}),
    "no more than it needs of what loses the least": (
        "n1: 8 H100", ("l a 1 prio=100 at=9400 @n1; m a 1 prio=100 at=9300 @n1; o a 6 prio=100 at=9200 @n1; j b 6"),
        {"j": "stopping"}, {"o"}),
    "a gang takes what it needs on each node": (
        TWO, ("l a 4 prio=100 at=1 @n1; m a 4 prio=100 at=2 @n1; o a 4 prio=100 at=3 @n2; p b 4 @n2; j b 2x4"),
        {"j": "stopping"}, {"m", "o"}),
    "a gang across victims": (
        TWO, "g a 2x8 prio=100 at=1 @n1/n2; j b 8", {"j": "stopping: … n1"}, {"g"}),
    "nobody in vain": (
        TWO, "l a 4 prio=100 at=1 @n1; m b 4 at=1 @n1; o b 8 at=1 @n2; j b 8", {"j": "gpus"}, set()),
    "overlapping choices (C11): exactly two": (
        TWIN, ("x a 1 prio=0 at=1 @n1; y a 1 prio=0 at=2 @n1; z a 1 prio=0 at=3 @n1; i a 2 prio=10; k a 2 prio=10"),
        {"i": "stopping", "k": "gpus"}, {"y", "z"}),
    "of the lowest priority first to come": (
        "n1: 8 H100", "l a 8 prio=100 at=1 @n1; i b 8 prio=900; j b 8 prio=500",
        {"i": "stopping", "j": "gpus"}, {"l"}),
    "the limit of its team": (
        TWO, ("l a 4 prio=100 at=1 @n1; m b 4 prio=100 at=1 @n2; j lim 8; o lim 4 prio=100 at=1 @n1"),
        {"j": "stopping: … n1"}, {"l", "o"}),
    "no right helps against a limit": (
        TWO, "o lim 8 at=1 @n1; l b 8 prio=100 at=1 @n2; j lim 8", {"j": "quota"}, set()),
    "replicas of elastic jobs first": (
        TWO, "e a 4x2 prio=100 min=1 at=1 @n1/n1/n1/n1; l a 8 prio=100 at=9000 @n2; j b 2",
        {"j": "stopping: … n1", "e": "now n1 n1 n1"}, set()),
    "even where a whole job has just saved its work": (
        "n1: 8 H100", "e a 4x1 prio=100 min=1 at=1 @n1/n1/n1/n1; l a 4 prio=100 at=1 every=9999 @n1; j b 2",
        {"j": "stopping", "e": "now n1 n1"}, set()),
    "and one that has just saved it is shrunk, not ended": (
        "n1: 4 H100", "e a 4x1 prio=100 min=2 every=9999 at=1 @n1/n1/n1/n1; j b 2",
        {"j": "stopping", "e": "now n1 n1"}, set()),
    "one that grew is brought back to its size": (
        "n1: 4 H100", "e a 2x1 max=4 min=2 at=1 @n1/n1/n1/n1; j b 2", {"j": "stopping", "e": "now n1 n1"}, set()),
    "a slice": (
        "n1: 1 L40 mib=1000", "s a 1 slice=500 prio=100 at=1 @n1:0; t a 1 slice=500 at=1 @n1:0; j b 1 slice=300",
        {"j": "stopping"}, {"s"}),
    "CPUs are taken with the job": (
        "n1: 8 H100 cpus=8", "l a 1 cpu=6 prio=100 at=1 @n1; j b 1 cpu=6", {"j": "stopping"}, {"l"}),
    "the node that it may not use helps nobody": (
        TWO, "l a 8 prio=100 at=9000 @n1; m a 8 prio=100 at=1 @n2; j b 8 not=n1", {"j": "stopping: … n2"}, {"m"}),
}  # fmt: skip
TEAMS = "a; b; lim H100:/8"


def board(nodes: str, jobs: str, teams: str = TEAMS, **rules: Any) -> Board:
    usual: dict[str, Any] = {"preemption": Preemption(), "queueing": "fair"}
    return Board(nodes, teams, jobs, **usual | rules)


@pytest.mark.parametrize("name", PREEMPTIONS)
def test_preemption(name: str) -> None:
    nodes, jobs, expected, gone = PREEMPTIONS[name]
    made = board(nodes, jobs)
    plan = made.decide(NOW)
    assert_outcomes(made.step(NOW), expected)
    assert taken(plan) == dict.fromkeys(gone, "preempted")


@pytest.mark.parametrize("name", PREEMPTIONS)
def test_the_winners_start_and_then_nothing_moves(name: str) -> None:
    """I5 and I6: a set is given up only for a job that then starts, and whoever lost does not take it back."""
    nodes, jobs, expected, _ = PREEMPTIONS[name]
    made = board(nodes, jobs)
    made.settle(NOW)
    assert {job for job, outcome in expected.items() if outcome.startswith("stopping")} <= made.runs().keys()
    for _ in range(20):
        plan = made.decide(NOW)
        assert not plan.preempts
        assert not plan.resizes
        assert not plan.starts


def test_preemption_can_be_off() -> None:
    made = board("n1: 8 H100", "l a 8 prio=100 at=1 @n1; j b 8", preemption=Preemption(enabled=False))
    assert_outcomes(made.step(NOW), {"j": "gpus"})


@pytest.mark.parametrize("on", [True, False])
def test_two_jobs_do_not_preempt_each_other_for_ever(on: bool) -> None:
    """C09: the borrower of the higher priority runs, the other is evicted once; off: it waits with a reason."""
    jobs = "a1 A 5 prio=100 at=1 @n1; e1 E 1 prio=0 at=1 @n1; a2 A 1 prio=100"
    rules: dict[str, Any] = {"preemption": Preemption(enabled=on, min_runtime=0.0, cooldown=0.0), "reclaim": Reclaim()}
    made = board("n1: 6 H100", jobs, "A H100:3; B H100:3; E", queueing="capacity", **rules)
    evictions = 0
    for later in range(22):
        evictions += len(made.decide(NOW + later).preempts)
        made.step(NOW + later)
        made.leave(NOW + later)
    assert evictions == on
    assert set(made.runs()) == ({"a1", "a2"} if on else {"a1", "e1"})


def test_twins_never_evict_each_other() -> None:
    """C09: 12 slots, 24 identical jobs: all finish, nobody is evicted."""
    rules: dict[str, Any] = {"preemption": Preemption(min_runtime=0.0), "reclaim": Reclaim(min_runtime=0.0)}
    made = board("n1 n2: 6 H100", "; ".join(f"j{n} {'AB'[n % 2]} 1" for n in range(24)), "A H100:3; B", **rules)
    done = 0
    for later in range(4):
        for _ in range(5):
            assert not made.decide(NOW + later).preempts
            made.step(NOW + later)
        for key in made.runs():
            made.roster.release(key, NOW + later)
            done += 1
    assert done == 24


def test_a_minimum_counts_from_the_start_of_each_attempt() -> None:
    """C13: submitted at 0, started at 100: not before 700; started again at 2000: not before 2600."""
    made = board("n1: 8 H100", "l a 8 prio=0 at=100 @n1; h b 8 prio=50")
    assert made.decide(200.0).preempts == ()
    assert made.decide(200.0).wake_at == 700.0
    assert made.decide(699.0).preempts == ()
    assert taken(made.decide(700.0)) == {"l": "preempted"}
    again = board("n1: 8 H100", "l a 8 prio=0 at=2000 taken=1 back=1 @n1; h b 8 prio=50")
    assert again.decide(2_599.0).preempts == ()
    assert taken(again.decide(2_600.0)) == {"l": "preempted"}
    early = board("n1: 8 H100", "l a 8 prio=0 at=100 @n1; h b 8 prio=50")
    early.roster.release("l", 400.0)
    assert_outcomes(early.step(400.0), {"h": "n1"})


def test_whoever_gave_way_to_a_priority_does_not_reclaim_from_it() -> None:
    """A guaranteed job that a higher priority has taken from has no turn of its own at it: no circle of rights."""
    rules: dict[str, Any] = {
        "preemption": Preemption(min_runtime=0.0, cooldown=0.0, max_per_job=1_000),
        "reclaim": Reclaim(min_runtime=0.0),
    }
    made = board("n1: 8 H100", "l A 8 prio=100 at=1 @n1; h B 8 prio=900", "A H100:8; B", queueing="capacity", **rules)
    moves = 0
    for later in range(20):
        moves += len(made.decide(NOW + later).preempts)
        made.step(NOW + later)
        made.leave(NOW + later)
    assert moves == 1
    assert set(made.runs()) == {"h"}
