"""When the waiting jobs will start: by hand, on generated histories, and against what the simulator then does."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.drive.scenario import parse_scenario
from scheduler.drive.simulate import prepare, simulate
from scheduler.engine.cluster import NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.report.forecast import Effort, Estimate, Forecast, Play, forecast
from scheduler.engine.report.runtimes import TO_THE_LIMIT, History, RuntimeModel
from tests.engine import test_properties as properties
from tests.engine.board import Board, job_of
from tests.engine.generated import histories

EXACT = RuntimeModel(TO_THE_LIMIT)
FAR = Effort(500)


def forecast_of(board: Board, now: float = 0.0, model: RuntimeModel = EXACT, effort: Effort = FAR) -> Forecast:
    return forecast(board.roster.snapshot(now), board.roster.policy, now, model, effort=effort)


def times(board: Board, now: float = 0.0, model: RuntimeModel = EXACT) -> dict[str, tuple[float | None, float | None]]:
    return {key: each[:2] for key, each in forecast_of(board, now, model).estimates.items()}


def test_one_after_the_other() -> None:
    board = Board("n1: 8 H100", "a; b", "r a 8 limit=100 @n1; j a 8 limit=50; k b 4 limit=30; l b 4 limit=10")
    assert times(board) == {"j": (100.0, 100.0), "k": (150.0, 150.0), "l": (150.0, 150.0)}
    assert times(board, now=40.0) == {"j": (100.0, 100.0), "k": (150.0, 150.0), "l": (150.0, 150.0)}


def test_a_history_makes_a_range() -> None:
    """r has run for 20 s of 100; at the 10 % and 90 % of those that last so long it runs 0.28 and 0.92 of its limit."""
    even = History(fractions=(0.0, 1.0))
    board = Board("n1: 8 H100", "a; b", "r a 8 limit=100 @n1; j b 8 limit=50")
    assert times(board, 20.0, RuntimeModel(teams={"a": even}))["j"] == pytest.approx((28.0, 92.0))
    assert times(board, 20.0, RuntimeModel(jobs={"r": History(fractions=(0.5,))}))["j"] == pytest.approx((50.0, 50.0))
    assert times(board, 20.0, RuntimeModel(teams={"b": even}))["j"] == pytest.approx((30.5, 100.0))


@pytest.mark.parametrize(
    ("history", "limit", "elapsed", "quantile", "left"),
    [
        pytest.param(History(fractions=(0.5,)), 100.0, 20.0, 0.9, 30.0, id="one knot is certain"),
        pytest.param(History(fractions=(0.0, 1.0)), 100.0, 0.0, 0.25, 25.0, id="even"),
        pytest.param(History(fractions=(0.0, 1.0)), 100.0, 60.0, 0.5, 20.0, id="even, and it has lasted so long"),
        pytest.param(History(fractions=(0.0, 0.1)), 100.0, 60.0, 0.5, 40.0, id="longer than any before"),
        pytest.param(History(seconds=(10.0, 30.0)), None, 0.0, 0.5, 20.0, id="seconds, without a limit"),
        pytest.param(History(seconds=(10.0, 30.0)), None, 40.0, 0.5, None, id="nobody knows"),
        pytest.param(History(seconds=(10.0, 30.0)), 15.0, 0.0, 1.0, 15.0, id="never beyond its limit"),
        pytest.param(History(fractions=(0.2, 0.2, 1.0)), 10.0, 0.0, 0.5, 2.0, id="many alike"),
        pytest.param(History(fractions=(0.2, 0.2, 1.0)), 10.0, 2.0, 0.5, 4.0, id="many alike have ended"),
        pytest.param(History(fractions=(0.2, 1.0, 1.0)), 10.0, 10.0, 0.5, 0.0, id="at its limit"),
        pytest.param(History(), None, 0.0, 0.5, None, id="nothing known"),
    ],
)  # fmt: skip
def test_what_is_left(
    history: History, limit: float | None, elapsed: float, quantile: float, left: float | None
) -> None:
    found = RuntimeModel(history).left("j", "a", limit, quantile, elapsed)
    assert found == (None if left is None else pytest.approx(left))


def test_a_history_of_runs() -> None:
    runs = [(float(n), 100.0) for n in range(101)]
    assert History.of(runs, knots=3) == History((0.0, 0.5, 1.0), (0.0, 50.0, 100.0))
    assert History.of([(5.0, None), (3.0, None)]) == History((), (3.0, 5.0))
    assert History.of([]) == History()


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        pytest.param("r a 8 @n1; j b 2", {"reason": "gpus", "gpus": 8, "jobs": "r"}, id="no limit"),
        pytest.param("j b 9", {"reason": "impossible"}, id="impossible"),
        pytest.param("j b 2 held=audit", {"reason": "held", "why": "audit"}, id="held"),
        pytest.param("j b 2 after=x_is_running", {"reason": "not_before", "jobs": "x is running"}, id="after another"),
        pytest.param("r a 8 limit=9e6 @n1; j b 2", {"reason": "gpus", "days": 60.0}, id="beyond the horizon"),
        pytest.param("r a 8 limit=10 @n1; k a 8 prio=900; j b 2", {"gpus": 8, "jobs": "k"}, id="one that waits itself"),
    ],
)
def test_null_with_a_reason(jobs: str, why: dict[str, object]) -> None:
    estimate = forecast_of(Board("n1: 8 H100", "a; b", jobs)).estimates["j"]
    assert (estimate.low, estimate.high) == (None, None)
    assert estimate.why is not None
    assert {"reason": str(estimate.why.reason), **dict(estimate.why.facts)}.items() >= why.items()
    assert estimate.why.message


def test_a_low_end_may_be_known_alone() -> None:
    """Where a history reaches beyond the horizon only late."""
    board = Board("n1: 8 H100", "a; b", "r a 8 @n1; j b 2")
    model = RuntimeModel(teams={"a": History(seconds=(0.0, 1e7))})
    estimate = forecast_of(board, model=model).estimates["j"]
    assert (estimate.low, estimate.high) == (1e6, None)
    assert estimate.why is not None


def test_times_that_open_by_themselves() -> None:
    board = Board("n1: 8 H100", "a", "j a 2 not_before=60; k a 2 backoff=40; l a 8 limit=5 not_before=90")
    assert times(board) == {"j": (60.0, 60.0), "k": (40.0, 40.0), "l": (None, None)}


def test_a_job_that_becomes_eligible_takes_the_place_of_another() -> None:
    """C41: J is head and expects 500; D with a higher priority becomes eligible at 100: J moves, D has the interval."""
    jobs = "r a 8 limit=500 @n1; s a 8 limit=500 @n2; J a 2x8 limit=100; D b 2x8 limit=200 prio=900 "
    board = Board("n1 n2: 8 H100", "a; b", jobs + "after=x_is_running", backfill=True)
    assert times(board, 50.0) == {"J": (500.0, 500.0), "D": (None, None)}
    board.add("D b 2x8 limit=200 prio=900")
    assert times(board, 100.0) == {"D": (500.0, 500.0), "J": (700.0, 700.0)}
    assert times(board, 600.0) == {"D": (600.0, 600.0), "J": (800.0, 800.0)}, "none lies in the past"


def test_a_reservation_waits_for_a_node_that_is_down() -> None:
    """C31: nobody can know until the node is back, and then it is 200."""
    jobs = "s1 a 8 limit=100 @n1; s2 a 8 limit=100 @n2; B b 3x8 limit=100 prio=900; s3 a 8 limit=100"
    board = Board("n1 n2 n3: 8 H100", "a; b", jobs, backfill=True)
    board.roster.set_node_state("n3", NodeState.DOWN)
    assert times(board) == {"B": (None, None), "s3": (100.0, 100.0)}
    board.roster.set_node_state("n3", NodeState.READY)
    assert times(board) == {"B": (100.0, 100.0), "s3": (0.0, 0.0)}


def test_few_decisions_give_about_the_same_as_many() -> None:
    board = Board("n1 n2 n3 n4: 8 H100", "a; b; c", backfill=True, queueing="fair")
    dice = Random(5)
    for number in range(400):
        line = f"j{number} {dice.choice('abc')} {dice.choice((1, 2, 4, 8))} limit={dice.randrange(60, 600)}"
        board.roster.submit(job_of(line, number))
    exact, rough = (forecast_of(board, effort=Effort(n)) for n in (5000, 120))
    assert rough.decides <= 240 < exact.decides
    pairs = [
        (each.low, rough.estimates[key].low) for key, each in exact.estimates.items() if each.low and each.low > 300
    ]
    known = [(a, b) for a, b in pairs if b is not None]
    assert len(known) > 0.9 * len(pairs)
    errors = sorted(abs(a - b) / a for a, b in known)
    mean = sum(a for a, _ in known) / sum(b for _, b in known)
    assert 0.75 < mean < 1.05, "it errs on the late side: gangs wait for cards that single jobs would have had before"
    assert errors[len(errors) // 2] < 0.3


@given(histories)
def test_of_every_history(history: properties.History) -> None:
    """All are told, in order of sense: none in the past, what starts now starts now, no card is promised twice."""
    world = list(properties.played(history))[-1]
    roster, now = world.roster, world.now
    for running in list(roster.snapshot(now).running.values()):
        roster.submit(replace(running.job, time_limit=30.0))
        roster.release(running.job.key, now)
    snapshot = roster.snapshot(now)
    found = forecast(snapshot, roster.policy, now, RuntimeModel(), effort=Effort(60)).estimates
    assert found.keys() == {job.key for lane in snapshot.lanes for job in lane.jobs}
    starts = {start.job for start in decide(snapshot, roster.policy, now).starts}
    for key, estimate in found.items():
        _makes_sense(estimate, now)
        assert (estimate[:2] == (now, now)) or key not in starts


def _makes_sense(estimate: Estimate, now: float) -> None:
    low, high, why = estimate
    if high is None:
        assert why is not None
        assert why.message
        assert low is None or low >= now
    else:
        assert why is None
        assert low is not None
        assert now <= low <= high


def a_scenario(seed: int) -> dict[str, Any]:
    """A small cluster, and jobs that all are there at the start and run as long as they say."""
    dice = Random(seed)
    jobs = []
    for number in range(dice.randrange(3, 14)):
        seconds = dice.randrange(1, 60) * 10
        jobs.append(
            {
                "name": f"j{number}", "team": dice.choice("abc"), "replicas": dice.choice((1, 1, 2, 3)),
                "gpus": dice.choice((1, 2, 3, 4)), "duration": f"{seconds}s", "time_limit": f"{seconds}s",
                "priority": dice.choice((100, 500, 900)), "at": "0s",
            }
        )  # fmt: skip
    return {
        "nodes": [{"prefix": "n", "count": dice.randrange(2, 5), "gpus": 4, "model": "H100", "vram_gib": 80}],
        "teams": [{"name": name} for name in "abc"],
        "policy": {
            "queueing": dice.choice(("fifo", "fair", "capacity")), "backfill": dice.random() < 0.7,
            "launch_delay": dice.choice(("0s", "15s")), "placement": dice.choice(("binpack", "hybrid")),
            "preemption": {"enabled": dice.random() < 0.5, "min_runtime": "60s"},
        },
        "jobs": jobs,
    }  # fmt: skip


@given(st.integers(0, 1 << 24))
def test_it_is_what_the_simulator_then_does(seed: int) -> None:
    """With exact run times and nobody new, the forecast is the future."""
    scenario = parse_scenario(json.dumps(a_scenario(seed)))
    driver = prepare(scenario)
    driver.agenda.do_due(0.0)
    snapshot, policy = driver.roster.snapshot(0.0), driver.roster.policy
    assert snapshot.lanes
    found = forecast(snapshot, policy, 0.0, EXACT, effort=FAR).estimates
    told = {key: (each.low, each.high) for key, each in found.items()}
    played = simulate(scenario)
    assert told == {name: (job.started, job.started) for name, job in played.jobs.items() if name in told}


def test_the_bounds_hold() -> None:
    board = Board("n1: 8 H100", "a", "; ".join(f"j{n} a 8 limit=10" for n in range(30)))
    play = Play(board.roster.snapshot(0.0), board.roster.policy, 0.0, EXACT, 0.5, Effort(7))
    play.to_the_end()
    assert (play.decides, play.stopped) == (7, "effort")
    why = forecast_of(board, effort=Effort(7)).estimates["j29"].why
    assert why is not None
    assert why.message.startswith("later than could be worked out")
    small = Effort.for_snapshot(board.roster.snapshot(0.0))
    assert (small.decides, small.taking) == (2_000, True)
