"""The driver where the backend is moody, and the figures where the last thing that happens is not a job's end."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jobs.states import AttemptEnd, JobState
from scheduler.backends.base import Launch, PermanentError, TransientError
from scheduler.drive.driver import Driver
from scheduler.drive.records import attempt_key
from scheduler.drive.result import Result, Spread, result_of
from scheduler.drive.scenario import parse_scenario
from scheduler.drive.simulate import prepare, simulate

ONE_CARD = """
nodes: [{name: n0, gpus: 1, model: H100, vram_gib: 80}]
teams: [{name: a}]
policy: {retry: {backoff: 10s}}
jobs: [{name: j, team: a, gpus: 1, duration: 10m}]
"""


def play(text: str) -> Result:
    return simulate(parse_scenario(text))


def played(driver: Driver) -> Result:
    while driver.step():
        pass
    return result_of(driver, until=None, wall_seconds=0.0)


def moody(driver: Driver, errors: list[Exception]) -> Callable[[Launch], None]:
    """A `launch` that raises these first."""
    launch = driver.backend.launch

    def first_raise(order: Launch) -> None:
        if errors:
            raise errors.pop(0)
        launch(order)

    return first_raise


def test_a_launch_that_fails_for_the_moment_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepare(parse_scenario(ONE_CARD))
    monkeypatch.setattr(driver.backend, "launch", moody(driver, [TransientError("busy")] * 3))
    job = played(driver).jobs["j"]
    assert (job.state, len(job.attempts), job.started, job.ended) == (JobState.SUCCEEDED, 1, 0.0, 603.0)


def test_a_launch_that_is_refused_ends_the_job_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepare(parse_scenario(ONE_CARD))
    monkeypatch.setattr(driver.backend, "launch", moody(driver, [PermanentError("no such right")] * 9))
    job = played(driver).jobs["j"]
    assert (job.state, [attempt.end for attempt in job.attempts]) == (JobState.FAILED, [AttemptEnd.FAILED])
    assert job.attempt.note == "no such right"


def test_a_job_cancelled_before_it_could_be_launched_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepare(parse_scenario(ONE_CARD + "edits: [{at: 1.5s, cancel: j}]"))
    monkeypatch.setattr(driver.backend, "launch", moody(driver, [TransientError("busy")] * 99))
    job = played(driver).jobs["j"]
    assert (job.state, job.ended, job.message) == (JobState.CANCELLED, 2.0, "cancelled")


def test_observing_again_makes_up_for_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepare(parse_scenario(ONE_CARD))
    observe, looks = driver.backend.observe, iter(range(10_000))

    def every_other(cursor: int | None = None) -> object:
        if next(looks) % 2:
            raise TransientError("busy")
        return observe(cursor)

    monkeypatch.setattr(driver.backend, "observe", every_other)
    assert played(driver).jobs["j"].state is JobState.SUCCEEDED


def test_nothing_counts_after_the_last_end() -> None:
    result = play(
        ONE_CARD.replace("duration: 10m}]", "duration: 10m}, {name: w, team: a, gpus: 1, duration: 1s, model: B200}]")
        + "edits: [{at: 5h, cordon: n0}, {at: 6h, uncordon: n0}]"
    )
    assert (result.end, result.readings.allocated_ratio, result.readings.idle_nodes) == (600.0, 1.0, 0.0)
    assert result.readings.teams["a"].gpu_hours == pytest.approx(1 / 6)


def test_until_goes_on_where_nothing_happens_and_cuts_where_something_does() -> None:
    longer, shorter = play(ONE_CARD + "until: 20m"), play(ONE_CARD + "until: 5m")
    assert (longer.end, longer.readings.allocated_ratio, longer.readings.idle_nodes) == (1_200.0, 0.5, 0.5)
    assert (shorter.end, shorter.readings.allocated_ratio) == (300.0, 1.0)
    assert shorter.jobs["j"].state is JobState.RUNNING


def test_a_play_ends_after_sixty_days() -> None:
    result = play(ONE_CARD.replace("10m", "100d") + "edits: [{at: 61d, cancel: j}]")
    assert result.jobs["j"].state is JobState.RUNNING


def test_jitter_belongs_to_the_attempt_and_not_to_the_order_of_events() -> None:
    failing = ONE_CARD.replace("duration: 10m}", "duration: 10m, exit_codes: [1, 0]}").replace(
        "gpus: 1, model", "gpus: 2, model"
    )
    alone = play(failing)
    crowd = play(
        failing.replace("jobs: [", "jobs: [{name: other, team: a, gpus: 1, duration: 9m, exit_codes: [1, 0]}, ")
    )
    other = play("seed: 7\n" + failing)
    starts = [result.jobs["j"].attempts[1].started for result in (alone, crowd, other)]
    assert starts[0] == starts[1] != starts[2]


def test_slices_and_shared_memory_are_measured() -> None:
    result = play("""
nodes: [{name: n0, gpus: 2, model: A100, vram_gib: 41, reserve_gib: 1}]
teams: [{name: a}]
jobs: [{name: s, team: a, share: true, vram_gib: 20.5, duration: 1h}]
""")
    assert result.readings.allocated_ratio == pytest.approx(0.25)
    assert result.readings.fragmentation_ratio == 1.0
    assert result.readings.vram_fragmentation_ratio == pytest.approx(19.5 / 59.5)


def test_a_window_changes_what_is_borrowed() -> None:
    result = play("""
start: 2026-03-02T00:00:00
nodes: [{name: n0, gpus: 4, model: H100, vram_gib: 80}]
teams:
  - name: a
    quota: [{model: H100, guaranteed: 1}]
    windows: [{days: [mon], from: "01:00", to: "03:00", model: H100, guaranteed: 3}]
jobs: [{name: j, team: a, gpus: 4, duration: 4h}]
""")
    assert result.readings.teams["a"].borrowed_gpu_hours == pytest.approx(3 + 2 * 1 + 3)


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([], Spread(0, 0, 0, 0)),
        ([4.0], Spread(4, 4, 4, 4)),
        ([float(n) for n in range(101)], Spread(50, 50, 95, 100)),
        ([10.0, 0.0], Spread(5, 5, 9.5, 10)),
    ],
)
def test_percentiles_lie_between_the_nearest_ranks(values: list[float], spread: Spread) -> None:
    assert Spread.of(values) == pytest.approx(spread)


@pytest.mark.parametrize("job", ["a b", "a.b", ".hidden", "ü" * 200, "x" * 200])
def test_every_name_makes_a_key_that_backends_take(job: str) -> None:
    made = attempt_key(job, 2)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", made)
    assert made.endswith(".2")
    assert made not in (attempt_key(job[:-1] + "y", 2), attempt_key(job, 3))


def test_a_plain_name_is_its_own_key() -> None:
    assert attempt_key("train-7_b", 3) == "train-7_b.3"
