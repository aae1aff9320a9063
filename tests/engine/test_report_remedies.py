"""What would start a job now: every kind of change once, each seen to start it; and the same before submission."""

from dataclasses import replace
from datetime import time

import pytest
from hypothesis import given

from quotas.limits import Amount, Window
from scheduler.engine.cluster import CardState, NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.demand import Level, Topology
from scheduler.engine.policy import Policy, Preemption
from scheduler.engine.report.answer import Verdict, would_start
from scheduler.engine.report.candidates import Kind
from scheduler.engine.report.forecast import Effort
from scheduler.engine.report.remedies import Remedy, remedies
from scheduler.engine.report.runtimes import TO_THE_LIMIT, RuntimeModel
from scheduler.engine.report.whatif import what_if
from scheduler.engine.snapshot import Snapshot
from tests.engine.board import Board, job_of
from tests.engine.generated import histories
from tests.engine.test_properties import History, played

EXACT = RuntimeModel(TO_THE_LIMIT)
N1 = "n1: 8 H100"


def remedies_of(board: Board, key: str = "j", policy: Policy | None = None) -> dict[Kind, list[Remedy]]:
    """Those of a job by kind, each checked."""
    policy = policy or board.roster.policy
    snapshot = board.roster.snapshot(0.0)
    found: dict[Kind, list[Remedy]] = {}
    for remedy in remedies(snapshot, policy, 0.0, key):
        assert starts_with(snapshot, policy, 0.0, key, remedy), remedy
        found.setdefault(remedy.kind, []).append(remedy)
    return found


def starts_with(snapshot: Snapshot, policy: Policy, now: float, key: str, remedy: Remedy) -> bool:
    """Whether a remedy really starts the job, once those it takes from have left."""
    roster = what_if(snapshot, policy)
    remedy.change.apply(roster)
    plan = decide(roster.snapshot(now), policy, now)
    if any(start.job == key for start in plan.starts):
        return not remedy.takes
    assert {each.job for each in plan.preempts if each.winner == key} == set(remedy.takes)
    roster.keep(plan.claims)
    for start in plan.starts:
        roster.start(start.job, start.pieces, now)
    for resize in plan.resizes:
        roster.resize(resize.job, resize.pieces, now)
    for each in plan.preempts:
        roster.release(each.job, now)
    return any(start.job == key for start in decide(roster.snapshot(now), policy, now).starts)


@pytest.mark.parametrize(
    ("kind", "nodes", "jobs", "said"),
    [
        pytest.param(Kind.GPUS, N1, "r b 5 @n1; j a 8", ["with 3 GPUs a replica"], id="fewer GPUs, the most that fit"),
        pytest.param(
            Kind.REPLICAS, "n1 n2: 8 H100", "r b 5 @n1; j a 7x2", ["with 5 replicas"], id="fewer replicas"
        ),
        pytest.param(
            Kind.VRAM, "n1: 2 L40 mib=20480", "r b 1 slice=10240 @n1:0; s b 1 slice=8192 @n1:1; j a 1 slice=16384",
            ["with 12 GiB on each card"], id="a smaller slice",
        ),
        pytest.param(
            Kind.VRAM, "n1: 2 A vram=80; n2: 2 A vram=40", "r b 2 @n1; j a 2 vram=60",
            ["with 40 GiB on each card"], id="a smaller card",
        ),
        pytest.param(
            Kind.MODEL, "n1: 8 H100; n2: 8 A100; n3: 8 L40", "r b 8 @n1; s b 8 @n3; j a 2 model=H100",
            ["on A100", "on any model"], id="another model",
        ),
        pytest.param(
            Kind.LABELS, "n1: 8 H100 label=z:a", "j a 2 sel=z:a,d:ssd", ["without the label d=ssd",
            "without the label z=a, d=ssd"], id="a label dropped",
        ),
        pytest.param(
            Kind.TOLERATE, "n1: 8 H100 taint=night; n2: 8 H100", "r b 8 @n2; j a 2",
            ["if it tolerates the taint night"], id="a taint tolerated",
        ),
        pytest.param(
            Kind.UNTAINT, "n1 n2 n3: 8 H100 taint=night", "r b 2 tol=night @n1; j a 2x8",
            ["with the taint night removed from n2, n3"], id="taints removed, from as few nodes as do",
        ),
        pytest.param(
            Kind.HOST, "n1: 8 H100 cpus=20", "r b 1 cpu=12 @n1; j a 4 cpu=16", ["with 8 CPUs a replica"], id="CPUs"
        ),
        pytest.param(
            Kind.HOST, "n1: 8 H100 mem=100", "r b 1 mem=70 @n1; j a 4 mem=40",
            ["with 30 GiB of host memory a replica"], id="host memory",
        ),
        pytest.param(Kind.EXCLUDED, N1, "j a 2 not=n1", ["if it may use n1 again"], id="an excluded node"),
        pytest.param(Kind.RELEASE, N1, "j a 2 held=audit", ["without the hold"], id="a hold"),
        pytest.param(
            Kind.RELEASE, N1, "j a 2 not_before=90 after=train_is_running",
            ["without the start time, the jobs it waits for"], id="times and other jobs",
        ),
        pytest.param(
            Kind.TIME_LIMIT, "n1 n2: 8 H100", "r b 8 limit=100 @n1; w b 2x8 prio=900 limit=50; j a 8 limit=500",
            ["with a time limit of 100 s"], id="a limit that ends before the reservation",
        ),
        pytest.param(
            Kind.PRIORITY, N1, "w b 8 prio=600; j a 8 prio=500", ["with priority 601"], id="a higher priority"
        ),
    ],
)  # fmt: skip
def test_each_kind_by_what_it_says(kind: Kind, nodes: str, jobs: str, said: list[str]) -> None:
    found = remedies_of(Board(nodes, "a; b", jobs, backfill=True))
    assert [remedy.message for remedy in found.get(kind, [])] == said


def test_no_topology() -> None:
    board = Board("n1: 8 H100 rack=r1; n2: 8 H100 rack=r2", "a; b", "r b 4 @n1")
    job = job_of("j a 3x4", 1)
    board.roster.submit(replace(job, shape=replace(job.shape, topology=Topology(require=Level.RACK))))
    assert [each.message for each in remedies_of(board)[Kind.TOPOLOGY]] == ["without its topology by rack"]


def test_nodes_back_in_service() -> None:
    board = Board("n1 n2 n3: 8 H100", "a; b", "j a 2x8")
    board.roster.set_node_state("n1", NodeState.CORDONED)
    board.roster.set_card_state("n3", 2, CardState.OUT)
    assert [each.message for each in remedies_of(board)[Kind.BACK]] == ["with n1 back in service"]


@pytest.mark.parametrize(
    ("teams", "jobs", "said"),
    [
        pytest.param("a H100:/4; b", "r a 3 @n1; j a 3", "with a limit of a 6 H100 (+2)", id="what lacks"),
        pytest.param("a H100:/4; b", "r a 3 @n1; k a 3; j a 3", None, id="others of the team go first, then no room"),
        pytest.param("a H100:/4; b", "r a 3 @n1; k a 2; j a 3", "with a limit of a 8 H100 (+4)", id="others go first"),
        pytest.param("a H100:/2; b", "j a 3", "with a limit of a 3 H100 (+1)", id="a ceiling"),
        pytest.param("a H100:/25%; b", "j a 3", "with a limit of a 3 H100 (+1)", id="a share"),
        pytest.param("lab *:/5; a<lab H100:/4; b<lab", "r a 3 @n1; s b 2 @n1; j a 3",
                     "with a limit of a 6 H100 (+2), lab 8 GPUs (+3)", id="two teams"),
    ],
)  # fmt: skip
def test_more_quota(teams: str, jobs: str, said: str | None) -> None:
    found = remedies_of(Board(N1, teams, jobs)).get(Kind.QUOTA, [])
    assert [remedy.message for remedy in found] == ([] if said is None else [said])


def test_more_quota_in_the_window_that_is_open() -> None:
    night = Window(frozenset(range(7)), time(0), time(12), "H100", limit=Amount(2))
    board = Board(N1, "a H100:/8; b", "j a 3", windows={"a": (night,)})
    (remedy,) = remedies_of(board)[Kind.QUOTA]
    assert remedy.message == "with a limit of a 3 H100 (+1)"
    assert remedy.change.tree is not None
    assert remedy.change.tree.teams[0].quotas[0].limit == Amount(8)


def test_a_higher_priority_says_whom_it_takes_from() -> None:
    board = Board(N1, "a; b", "r b 4 prio=500 @n1; s b 4 prio=700 @n1; j a 4 prio=400")
    policy = replace(board.roster.policy, preemption=Preemption(min_runtime=0.0))
    (remedy,) = remedies_of(board, policy=policy)[Kind.PRIORITY]
    assert (remedy.message, remedy.takes) == ("with priority 501", ("r",))


def test_the_reason_says_what_is_tried_first_and_the_budget_ends_it() -> None:
    board = Board(N1, "a H100:/4; b", "r a 3 @n1; j a 3 model=H100")
    snapshot = board.roster.snapshot(0.0)
    every = remedies(snapshot, board.roster.policy, 0.0, "j")
    assert every[0].kind is Kind.QUOTA
    assert remedies(snapshot, board.roster.policy, 0.0, "j") == every
    few = remedies(snapshot, board.roster.policy, 0.0, "j", budget=3)
    assert few == every[: len(few)]
    assert remedies(snapshot, board.roster.policy, 0.0, "j", budget=0) == ()


def test_a_job_that_starts_needs_nothing_and_one_that_is_not_there_is_an_error() -> None:
    board = Board(N1, "a", "j a 3")
    assert remedies(board.roster.snapshot(0.0), board.roster.policy, 0.0, "j") == ()
    with pytest.raises(KeyError):
        remedies(board.roster.snapshot(0.0), board.roster.policy, 0.0, "k")


@given(histories)
def test_every_remedy_starts_the_job(history: History) -> None:
    for world in list(played(history))[-1:]:
        snapshot, policy = world.roster.snapshot(world.now), world.roster.policy
        for lane in snapshot.lanes[:2]:
            for remedy in remedies(snapshot, policy, world.now, lane.jobs[0].key, budget=40):
                assert starts_with(snapshot, policy, world.now, lane.jobs[0].key, remedy), remedy


@given(histories)
def test_what_would_start_is_what_starts(history: History) -> None:
    for world in list(played(history))[-1:]:
        roster, now = world.roster, world.now
        job = replace(history[3][0], key="new", sequence=99)
        answer = would_start(roster.snapshot(now), roster.policy, now, job, EXACT, effort=Effort(20), budget=0)
        roster.submit(job)
        plan = decide(roster.snapshot(now), roster.policy, now)
        starts = any(start.job == "new" for start in plan.starts)
        assert starts == (answer.verdict is Verdict.NOW)
        assert answer.hold == (None if starts else plan.hold_of(job, roster.lane_of("new")))
        if answer.verdict is Verdict.NOW:
            assert answer.estimate == (now, now, None)


@pytest.mark.parametrize(
    ("job", "verdict", "low"),
    [
        pytest.param("j a 2", Verdict.NOW, 0.0, id="now"),
        pytest.param("j a 8 limit=9", Verdict.AFTER, 100.0, id="when r ends"),
        pytest.param("j a 9", Verdict.NEVER, None, id="never"),
        pytest.param("j a 8 model=A100", Verdict.UNKNOWN, None, id="held by a job without a limit"),
    ],
)
def test_verdicts(job: str, verdict: Verdict, low: float | None) -> None:
    board = Board("n1: 8 H100; m1: 8 A100", "a; b", "r b 4 limit=100 @n1; s b 8 @m1")
    answer = would_start(board.roster.snapshot(0.0), board.roster.policy, 0.0, job_of(job, 9), EXACT)
    assert (answer.verdict, answer.estimate.low) == (verdict, low)
    assert (answer.hold is None) == (verdict is Verdict.NOW)
    assert board.roster.waiting("j") is None
    if verdict is Verdict.AFTER:
        assert [each.message for each in answer.remedies] == ["with 4 GPUs a replica"]
