"""Why a job waits: the first gate that blocks, with its facts; never stale; and when to look again."""

import pytest

from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.reasons import ORDER, Hold, Reason, hold
from tests.engine.board import Board, assert_outcomes

# Each job meets one more gate than the one below it: what it says must be the first of them in the table.
# h1 and h2 have 8 H100 each (h2 with a taint and a label) and h1 is full; m1 has 8 A100, 2 free; a may hold 8 H100.
LADDER = {
    "held": ("held=by_an_admin backoff=60 not_before=90 model=H900", "held: held: by_an_admin"),
    "backoff": (
        "backoff=60 not_before=90 model=H900",
        "backoff: its last attempt failed; it is tried again at 1970-01-01 00:01:00"),
    "not_before": (
        "not_before=90 after=train_is_running model=H900", "not_before: not to start before 1970-01-01 00:01:30"),
    "not_before, other jobs": (
        "after=train_is_running,eval_waits model=H900",
        "not_before: waits for other jobs: train is running, eval waits"),
    "impossible": ("size=9 model=H100 sel=zone:z", "impossible: one replica needs 9 H100, the largest node has 8"),
    "impossible, by limit": ("size=2x8 model=H100", "impossible: needs 16 H100, a may never hold more than 8"),
    "quota": ("size=8 model=H100 sel=zone:z", "quota: a holds 1 of its limit of 8 H100, this job needs 8"),
    "model": ("model=H900 sel=zone:z", "model: no node has H900"),
    "model, memory": (
        "model=A100 vram=81 sel=zone:z", "model: needs 81 GiB on each card, no A100 has more than 80 GiB for it"),
    "labels": ("model=H100 sel=zone:z", "labels: nodes with H100 and the labels zone=z: 0 of 2"),
    "taints": ("model=H100 sel=zone:b", "taints: nodes that fit, but with taints it does not tolerate (night): 1 of 1"),
    "unhealthy": ("model=L40 not=l1", "unhealthy: nodes that fit, but are out of service: 1 of 1 (l1)"),
    "excluded": ("model=A100 not=m1", "excluded: may not use m1 again, and no other node could hold it"),
    "host, CPUs": (
        "model=A100 cpu=100 size=3", "host: a replica needs 100 CPUs, the most free on one node is 28"),
    "host, memory": (
        "model=A100 mem=2000 size=3",
        "host: a replica needs 2000 GiB of host memory, the most free on one node is 48"),
    "gpus": ("model=A100 size=3", "gpus: needs 3 A100, 2 of 8 free"),
    "vram": (
        "model=A100 size=3x1 slice=50000",
        "vram: needs 3 × 50000 MiB, room for 2: the most left on one card is 80896 MiB"),
}  # fmt: skip


@pytest.mark.parametrize("name", LADDER)
def test_ladder(name: str) -> None:
    text, expected = LADDER[name]
    words = text.split()
    size = next((word[5:] for word in words if word.startswith("size=")), "1")
    rest = " ".join(word for word in words if not word.startswith("size="))
    board = Board(
        "h1: 8 H100; h2: 8 H100 label=zone:b taint=night; m1: 8 A100; l1: 2 L40",
        "a H100:/8; b",
        f"r b 7 @h1; s a 1 @h1; t b 6 cpu=100 mem=2000 @m1; j a {size} {rest}",
    )
    board.roster.set_node_state("l1", NodeState.DOWN)
    told = board.step()["j"]
    assert told == expected
    assert told.partition(":")[0] in name


def test_the_ladder_has_every_reason_that_the_engine_gives_by_itself() -> None:
    """The others are in test_gangs (fragmented), test_blocking (turn), test_throttle (backpressure) and below."""
    met = {name.partition(",")[0] for name in LADDER}
    assert [reason for reason in ORDER if reason in met] == [
        Reason(name) for name in dict.fromkeys(n.partition(",")[0] for n in LADDER)
    ]
    later = {"stopping", "reclaim", "reserved"}
    elsewhere = {"fragmented", "topology", "turn", "backpressure", "syncing"}
    assert {str(reason) for reason in ORDER} == met | later | elsewhere


@pytest.mark.parametrize(
    ("nodes", "jobs", "expected"),
    [
        pytest.param("n1 n2: 8 H100 cpus=20", "r b 1 cpu=12 @n1; q b 1 cpu=15 @n2; j a 4 cpu=16",
                     "host: a replica needs 16 CPUs, the most free on one node is 8",
                     id="CPUs, best and nodes (C39)"),
        pytest.param("n1 n2: 8 H100 cpus=20", "r b 1 cpu=12 @n1; j a 2x4 cpu=16",
                     "host: needs 2 × (16 CPU, 16 GiB of host memory), there is room for 1",
                     id="CPUs for fewer replicas"),
        pytest.param("n1: 8 H100 cpus=100", "r b 1 cpu=60 @n1; j a 1x1+1x1 cpu=30+20",
                     "host: GPUs are free, but not where a replica finds 30 CPUs and 4 GiB of host memory",
                     id="for groups"),
        pytest.param("n1 n2: 8 H100 cpus=100", "r b 4 cpu=90 @n1; q b 8 cpu=10 @n2; j a 4 cpu=60",
                     "host: GPUs are free, but not where a replica finds 60 CPUs and 16 GiB of host memory",
                     id="elsewhere"),
        pytest.param("n1 n2 n3: 8 H100", "r b 4 @n1; q b 6 @n2; s b 8 @n3; j a 5",
                     "fragmented: 6 GPUs are free, not 1 × 5 together: the most on one node is 4", id="C27"),
        pytest.param("n1 n2: 8 H100", "r b 4 @n1; q b 4 @n2; j a 1x2+1x5",
                     "fragmented: each group may fit alone, but 2 + 5 GPUs do not together: 8 are free, 4 on one node",
                     id="groups"),
        pytest.param("n1 n2: 2 L40 mib=10", "r b 1 @n1; q b 1 @n2; j a 2 slice=5",
                     "fragmented: there is room for 4 × 5 MiB, not for 1 × 2 of them on the cards of one node",
                     id="slices"),
        pytest.param("n1 n2: 8 H100", "j a 3x8", "impossible: needs 24 GPUs, the cluster has 16",
            id="the cluster is too small"),
        pytest.param("n1 n2: 8 H100", "j a 3x5",
            "impossible: does not fit on the nodes with GPUs, even with all of them empty", id="shape"),
        pytest.param("n1: 8 H100 mem=40", "j a 2 mem=41",
            "impossible: one replica needs 41 GiB of host memory, the largest node has 40", id="memory"),
        pytest.param("", "j a 1", "model: no node has GPUs", id="no hardware at all"),
    ],
)  # fmt: skip
def test_sentence(nodes: str, jobs: str, expected: str) -> None:
    assert Board(nodes, "a; b", jobs).step()["j"] == expected


def test_reasons_are_of_the_state_after_the_starts() -> None:
    """k is looked at before l starts, and its reason counts what l took."""
    board = Board("n1: 8 H100", "a; b", "k a 2x8 prio=900; l b 5; m b 4")
    assert_outcomes(board.step(), {"k": "impossible", "l": "n1", "m": "gpus: needs 4 GPUs, 3 of 8 free"})
    board = Board("n1: 8 H100; n2: 8 H100", "a; b", "r b 4 @n1; k a 2x8 prio=900; l b 5")
    assert_outcomes(board.step(), {"k": "gpus: needs 16 GPUs, 7 of 16 free", "l": "n2"})


def test_a_quota_reason_counts_the_starts_after_it() -> None:
    board = Board("n1: 8 H100", "lab H100:/6; a<lab; b<lab", "r b 1 @n1; k a 6 prio=900; l b 5")
    assert_outcomes(board.step(), {"k": "quota: lab holds 6 of its limit of 6 H100, this job needs 6", "l": "n1"})


def test_a_reason_goes_with_its_cause() -> None:
    board = Board("n1: 2 H100", "a; b", "r b 2 @n1; j a 2")
    assert_outcomes(board.step(), {"j": "gpus"})
    board.roster.set_card_state("n1", 1, CardState.OUT)
    assert_outcomes(board.step(), {"j": "unhealthy"})
    board.roster.set_card_state("n1", 1, CardState.OK)
    assert_outcomes(board.step(), {"j": "gpus"})
    board.roster.release("r", 1.0)
    assert_outcomes(board.step(1.0), {"j": "n1"})


def test_a_limit_on_one_model_and_nodes_of_the_other_out_of_service() -> None:
    board = Board("h1: 8 H100; m1: 8 A100", "a H100:/0", "j a 4")
    board.roster.set_node_state("m1", NodeState.CORDONED)
    assert_outcomes(board.step(), {"j": "unhealthy: nodes that fit, but are out of service: 1 of 1 (m1)"})


def test_jobs_of_one_lane_wait_for_one_reason_but_for_their_own_gates() -> None:
    board = Board("n1: 8 H100", "a", "j1 a 8; j2 a 8; j3 a 8 held=audit; j4 a 8")
    assert_outcomes(board.step(), {"j1": "n1", "j2": "gpus", "j3": "held", "j4": "gpus"})


def test_nobody_starts_before_the_first_complete_look() -> None:
    board = Board("n1: 8 H100", "a", "j a 8; k a 8 held=audit")
    board.roster.synced = False
    assert_outcomes(board.step(), {"j": "syncing: the cluster has not been looked at completely yet", "k": "syncing"})
    board.roster.synced = True
    assert_outcomes(board.step(), {"j": "n1", "k": "held"})


# jobs, now, wake_at
@pytest.mark.parametrize(
    ("jobs", "now", "wake_at"),
    [
        ("j a 1", 0.0, None),
        ("r a 8 @n1; j a 1", 0.0, None),
        ("j a 1 backoff=60", 0.0, 60.0),
        ("j a 1 not_before=60; k a 1 backoff=40", 0.0, 40.0),
        ("j a 1 not_before=60; k a 1 backoff=40", 40.0, 60.0),
        ("j a 1 not_before=60 backoff=40", 0.0, 40.0),
        ("j a 1 not_before=60", 60.0, None),
        ("j a 1 after=x", 0.0, None),
        ("j a 1 held=audit backoff=60", 0.0, None),
    ],
)
def test_when_to_look_again(jobs: str, now: float, wake_at: float | None) -> None:
    assert Board("n1: 8 H100", "a", jobs).decide(now).wake_at == wake_at


@pytest.mark.parametrize(("gate", "opens"), [("backoff=60", 60.0), ("not_before=60", 60.0)])
def test_a_time_gate_opens_on_the_second(gate: str, opens: float) -> None:
    board = Board("n1: 8 H100", "a", f"j a 1 {gate}")
    assert board.decide(opens - 0.001).starts == ()
    assert [start.job for start in board.decide(opens).starts] == ["j"]


def test_holds_are_values() -> None:
    first, second = (hold(Reason.GPUS, "needs {need}, {free} are free", need=8, free=free) for free in (3, 4))
    assert first != second
    assert first == Hold(Reason.GPUS, "needs {need}, {free} are free", (("need", 8), ("free", 3)))
    assert first.message == "needs 8, 3 are free"
