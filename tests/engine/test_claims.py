"""Claims: what is vacated for a job is that job's, until it starts there or goes."""

from typing import Any

import pytest

from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.plan import Plan
from scheduler.engine.policy import Preemption, Reclaim
from tests.engine.board import Board, assert_outcomes, nodes_of, taken, tree_of

NOW = 10_000.0
VICTIMS = "l1 a 4 prio=100 at=1 @n1; l2 a 4 prio=100 at=2 @n1"


def vacating(jobs: str = "w b 8", nodes: str = "n1: 8 H100", teams: str = "a; b; c", **rules: Any) -> Board:
    """A board on which ``w`` has been given n1, and those who hold it are on their way out."""
    usual: dict[str, Any] = {"preemption": Preemption(), "reclaim": Reclaim()}
    made = Board(nodes, teams, f"{VICTIMS}; {jobs}", **usual | rules)
    assert_outcomes(made.step(NOW), {"w": "stopping: … n1", "l1": "preempted for w", "l2": "preempted for w"})
    return made


def winners(plan: Plan) -> list[str]:
    return [claim.winner for claim in plan.claims]


def test_nobody_slips_into_the_hole() -> None:
    made = vacating()
    made.leave(NOW, ["l1"])
    made.add("s a 1 prio=100; t c 4; u c 8 prio=900 not=n1")
    assert_outcomes(made.step(NOW + 1), {"w": "stopping", "s": "gpus", "t": "gpus", "l1": "gpus", "u": "excluded"})


def test_not_even_one_who_goes_before() -> None:
    made = vacating()
    made.leave(NOW, ["l1"])
    made.add("u c 4 prio=900")
    assert_outcomes(made.step(NOW + 1), {"w": "stopping", "u": "gpus"})


def test_the_winner_starts_exactly_there_when_all_have_left() -> None:
    made = vacating(nodes="n1 n2: 8 H100", jobs="o c 8 @n2; w b 8")
    made.leave(NOW)
    made.roster.release("o", NOW)
    made.add("u c 8 prio=900 not=n2")
    assert_outcomes(made.step(NOW + 1), {"w": "n1:0-7", "u": "gpus", "l1": "starts", "l2": "starts"})
    assert made.decide(NOW + 1).claims == ()


def test_a_claim_counts_for_its_team_already() -> None:
    made = vacating(teams="a; b H100:/8; c")
    made.add("v b 1")
    assert_outcomes(made.step(NOW), {"v": "quota: b holds 8 of its limit of 8 H100, …"})


def test_nobody_is_asked_to_leave_twice() -> None:
    made = vacating()
    again = made.decide(NOW + 1)
    assert again.preempts == ()
    assert winners(again) == ["w"]


def test_the_winner_is_cancelled_and_its_claim_is_gone() -> None:
    """I7: no hold without an owner who waits for it."""
    made = vacating()
    made.leave(NOW, ["l1"])
    made.roster.withdraw("w")
    made.add("t c 4")
    assert "w" not in winners(made.decide(NOW + 1))
    assert_outcomes(made.step(NOW + 1), {"t": "n1", "l1": "stopping"})


def test_a_winner_that_is_held_has_none() -> None:
    made = vacating()
    made.leave(NOW)
    made.add("w b 8 held=audit")
    assert made.decide(NOW + 1).claims == ()
    assert_outcomes(made.step(NOW + 1), {"w": "held", "l1": "n1", "l2": "n1"})


@pytest.mark.parametrize("state", [NodeState.CORDONED, NodeState.DRAINING, NodeState.DOWN])
def test_out_of_service_the_claim_is_dropped(state: NodeState) -> None:
    made = vacating()
    made.roster.set_node_state("n1", state)
    assert made.decide(NOW + 1).claims == ()
    assert_outcomes(made.step(NOW + 1), {"w": "unhealthy"})


def test_a_card_out_of_service_drops_it_too() -> None:
    made = vacating()
    made.roster.set_card_state("n1", 3, CardState.OUT)
    assert_outcomes(made.step(NOW + 1), {"w": "unhealthy"})


def test_the_node_is_gone_and_the_claim_with_it() -> None:
    made = vacating(nodes="n1 n2: 8 H100", jobs="o c 8 prio=100 fixed=1 @n2; w b 8")
    made.roster.remove_node("n1")
    assert_outcomes(made.step(NOW + 1), {"w": "gpus"})


def test_a_limit_lowered_since_drops_it() -> None:
    made = vacating()
    made.roster.set_tree(tree_of("a; b H100:/4; c"))
    assert_outcomes(made.step(NOW + 1), {"w": "impossible"})
    made.leave(NOW + 1)
    assert_outcomes(made.step(NOW + 2), {"w": "impossible", "l1": "n1", "l2": "n1"})


def test_a_winner_that_lost_its_place_looks_for_another() -> None:
    made = vacating(nodes="n1 n2: 8 H100", jobs="o c 8 @n2; w b 8")
    made.roster.set_node_state("n1", NodeState.DOWN)
    made.roster.release("o", NOW)
    assert_outcomes(made.step(NOW + 1), {"w": "n2"})


def test_if_they_do_not_leave_after_all_it_asks_anew() -> None:
    """The stop was lost: whoever holds the cards is running, not on the way out."""
    made = vacating()
    for key in ("l1", "l2"):
        running = made.roster.release(key, NOW)
        made.roster.adopt(running.job, running.pieces, 1.0)
    assert taken(made.decide(NOW + 1)) == {"l1": "preempted", "l2": "preempted"}


def test_a_memory_slice_is_kept_too() -> None:
    jobs = "s1 a 1 slice=500 prio=100 at=1 @n1:0; s2 a 1 slice=500 at=1 @n1:0; w b 1 slice=400"
    made = Board("n1: 1 L40 mib=1000", jobs=jobs, preemption=Preemption())
    assert_outcomes(made.step(NOW), {"w": "stopping", "s1": "preempted for w"})
    made.leave(NOW)
    made.add("t c 1 slice=200; u c 1 slice=100")
    assert_outcomes(made.step(NOW + 1), {"w": "n1", "t": "vram", "u": "n1"})


def test_slices_on_one_card_wait_until_there_is_room_for_all() -> None:
    jobs = "s1 a 1 slice=500 prio=100 at=1 @n1:0; s2 a 1 slice=100 prio=100 at=1 @n1:0; w b 2x1 slice=450"
    made = Board("n1: 1 L40 mib=1000", jobs=jobs, preemption=Preemption())
    assert_outcomes(made.step(NOW), {"w": "stopping", "s1": "preempted for w"})
    made = Board("n1: 1 L40 mib=1000", jobs=jobs.replace("slice=450", "slice=500"), preemption=Preemption())
    assert_outcomes(made.step(NOW), {"w": "stopping", "s1": "preempted for w", "s2": "preempted for w"})
    made.leave(NOW, ["s2"])
    assert_outcomes(made.step(NOW + 1), {"w": "stopping"})
    made.leave(NOW + 1)
    assert_outcomes(made.step(NOW + 2), {"w": "n1 n1"})


def test_a_claim_over_two_models_counts_on_each_for_what_it_is() -> None:
    """Of 4 H100 that b may have, the claim is for 2: one more of them does not undo it."""
    jobs = "l1 a 2 prio=100 at=1 @n1; l2 a 2 prio=100 at=1 @m1; w b 2x2"
    made = Board("n1: 2 H100; n2: 1 H100; m1: 2 A100", "a; b H100:/4", jobs, preemption=Preemption())
    assert_outcomes(made.step(NOW), {"w": "stopping"})
    made.add("k b 1 model=H100")
    assert_outcomes(made.step(NOW), {"w": "stopping", "k": "n2"})
    assert winners(made.decide(NOW)) == ["w"]
    made.leave(NOW)
    assert len(made.step(NOW)["w"].split()) == 2


def test_slices_keep_off_a_card_that_is_claimed_whole() -> None:
    jobs = "s1 a 1 slice=500 prio=100 at=1 @n1:0; s2 a 1 slice=100 prio=100 at=1 @n1:0; w b 1"
    made = Board("n1: 1 L40 mib=1000", jobs=jobs, preemption=Preemption())
    assert_outcomes(made.step(NOW), {"w": "stopping"})
    made.leave(NOW, ["s1"])
    made.add("t c 1 slice=200 prio=900")
    assert_outcomes(made.step(NOW + 1), {"w": "stopping", "t": "vram"})


def test_an_elastic_winner_starts_in_the_size_of_its_claim_and_looks_for_more() -> None:
    made = Board("n1: 4 H100", "a H100:4/4; b", "l b 4 at=1 @n1; e a 2x4 min=1 at=2", reclaim=Reclaim())
    assert_outcomes(made.step(NOW), {"e": "stopping", "l": "reclaimed for e"})
    made.leave(NOW)
    plan = made.decide(NOW)
    assert [(start.job, len(start.pieces)) for start in plan.starts] == [("e", 1)]
    assert plan.wake_at == NOW


def test_hosts_keep_their_cpus_for_the_winner() -> None:
    made = Board("n1: 8 H100 cpus=8", jobs="l a 1 cpu=8 prio=100 at=1 @n1; w b 1 cpu=6", preemption=Preemption())
    assert_outcomes(made.step(NOW), {"w": "stopping"})
    made.leave(NOW)
    made.add("t c 1 cpu=3 prio=900; u c 1 cpu=2 prio=900")
    assert_outcomes(made.step(NOW + 1), {"w": "n1", "t": "host", "u": "n1"})


def test_a_running_job_claims_the_replica_it_wants_back() -> None:
    """Growing back by reclaim: the hole is kept for the one replica, and filled when it is vacated."""
    jobs = "e a 4x2 min=1 at=1 @n1/n1; l b 4 at=2 @n1"
    made = Board("n1: 8 H100", "a H100:8; b", jobs, reclaim=Reclaim())
    told = made.step(NOW)
    assert told["l"].startswith("reclaimed for e+")
    made.leave(NOW)
    made.add("t b 2 prio=900")
    made.settle(NOW + 1)
    assert made.runs() == {"e": "n1 n1 n1 n1"}


def test_the_wait_names_cards_and_nodes() -> None:
    jobs = "; ".join(f"l{n} a 2 prio=100 at=1 @n{n}" for n in range(1, 6))
    made = Board("n1 n2 n3 n4 n5: 2 H100", jobs=f"{jobs}; w b 5x2", preemption=Preemption())
    told = made.step(NOW)["w"]
    assert told.startswith("stopping: ")
    assert "10" in told
    assert "n1, n2, n3 and 2 more" in told
    made.roster.add_nodes(nodes_of("n9: 2 H100"))
    assert made.step(NOW + 1)["w"] == told
