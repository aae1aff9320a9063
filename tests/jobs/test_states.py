"""The state machine as tables: who may move a job where, and what follows the end of an attempt."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.states import (
    INFRASTRUCTURE_MOST,
    LIVE,
    TERMINAL,
    TRANSITIONS,
    Actor,
    AttemptEnd,
    Blame,
    Event,
    IllegalTransition,
    JobState,
    Tally,
    after_attempt,
    backoff,
    transition,
)
from scheduler.engine.policy import Retry

S, E, A = JobState, Event, Actor
PEOPLE = {A.USER, A.LEAD, A.ADMIN}
STOPS = {
    E.PREEMPT: {A.ENGINE},
    E.RECLAIM: {A.ENGINE},
    E.EVICT: {A.HEALTH, A.DRIVER, A.ADMIN},
    E.HANG: {A.HEALTH, A.DRIVER},
    E.IDLE: {A.HEALTH, A.DRIVER},
    E.TIME_LIMIT: {A.BACKEND, A.DRIVER},
    E.CANCEL: PEOPLE,
}
VERDICTS = {
    E.SUCCEED: S.SUCCEEDED,
    E.FAIL: S.FAILED,
    E.REQUEUE: S.QUEUED,
    E.STOPPED: S.CANCELLED,
    E.HOLD: S.HELD,
}
# Written out here a second time on purpose: the table of the code must say exactly this.
ALLOWED: dict[tuple[JobState | None, Event], tuple[JobState, set[Actor]]] = {
    (None, E.SUBMIT): (S.QUEUED, PEOPLE),
    (None, E.REJECT): (S.REJECTED, {A.ENGINE, A.DRIVER}),
    (S.QUEUED, E.PLACE): (S.STARTING, {A.ENGINE}),
    (S.QUEUED, E.CANCEL): (S.CANCELLED, PEOPLE),
    (S.QUEUED, E.HOLD): (S.HELD, PEOPLE | {A.HEALTH, A.DRIVER}),
    (S.QUEUED, E.EXPIRE): (S.FAILED, {A.DRIVER}),
    (S.HELD, E.RELEASE): (S.QUEUED, PEOPLE),
    (S.HELD, E.CANCEL): (S.CANCELLED, PEOPLE),
    (S.STARTING, E.RUN): (S.RUNNING, {A.BACKEND, A.DRIVER}),
    **{(S.STARTING, event): (S.STOPPING, actors) for event, actors in STOPS.items()},
    **{(S.RUNNING, event): (S.STOPPING, actors) for event, actors in STOPS.items()},
    (S.STOPPING, E.CANCEL): (S.STOPPING, PEOPLE),
    **{(origin, event): (to, {A.BACKEND, A.DRIVER}) for origin in LIVE for event, to in VERDICTS.items()},
}


@pytest.mark.parametrize(("state", "event"), list(product([None, *JobState], Event)))
def test_every_pair_of_state_and_event(state: JobState | None, event: Event) -> None:
    for actor in Actor:
        to, actors = ALLOWED.get((state, event), (None, set[Actor]()))
        if to is not None and actor in actors:
            assert transition(state, event, actor) is to
        else:
            with pytest.raises(IllegalTransition) as caught:
                transition(state, event, actor)
            assert "\n" not in str(caught.value)
            assert (caught.value.state, caught.value.event, caught.value.actor) == (state, event, actor)


def test_the_table_has_one_row_for_a_cause_and_reaches_every_state() -> None:
    causes = [(row.origin, row.event) for row in TRANSITIONS]
    assert len(causes) == len(set(causes))
    assert {row.to for row in TRANSITIONS} == set(JobState)
    assert not [row for row in TRANSITIONS if row.origin in TERMINAL]


def test_a_refusal_says_who_may() -> None:
    with pytest.raises(IllegalTransition, match=r"^preempt is for engine, not for user$"):
        transition(S.RUNNING, E.PREEMPT, A.USER)
    with pytest.raises(IllegalTransition, match=r"^a job that is succeeded does not take the event fail$"):
        transition(S.SUCCEEDED, E.FAIL, A.BACKEND)


@given(st.lists(st.tuples(st.sampled_from(Event), st.sampled_from(Actor)), max_size=60))
def test_a_terminal_state_never_changes(causes: list[tuple[Event, Actor]]) -> None:
    state: JobState | None = None
    for event, actor in causes:
        before = state
        try:
            state = transition(state, event, actor)
        except IllegalTransition:
            assert state is before
        if before is not None and before.terminal:
            assert state is before
        if state is S.STARTING and before is not S.STARTING:
            assert before is S.QUEUED, "cards are only given to a job that waits"


RETRY = Retry(max=3, backoff=60.0, max_backoff=1_800.0)


@pytest.mark.parametrize(
    ("end", "state", "pause"),
    [
        (AttemptEnd.COMPLETED, S.SUCCEEDED, False),
        (AttemptEnd.FAILED, S.QUEUED, True),
        (AttemptEnd.HUNG, S.QUEUED, True),
        (AttemptEnd.EVICTED, S.QUEUED, False),
        (AttemptEnd.LOST, S.QUEUED, False),
        (AttemptEnd.PREEMPTED, S.QUEUED, False),
        (AttemptEnd.RECLAIMED, S.QUEUED, False),
        (AttemptEnd.TIME_LIMIT, S.FAILED, False),
        (AttemptEnd.CANCELLED, S.CANCELLED, False),
        (AttemptEnd.IDLE, S.CANCELLED, False),
    ],
)
def test_what_follows_the_first_end(end: AttemptEnd, state: JobState, pause: bool) -> None:
    tally = Tally().after(end)
    verdict = after_attempt(end, **tally._asdict(), retries=None, retry=RETRY, jitter=0.5)
    assert verdict.state is state
    assert (verdict.backoff_s > 0) is pause
    assert verdict.why
    for live in LIVE:
        assert transition(live, verdict.event, A.DRIVER) is state


def follow(ends: list[AttemptEnd], retries: int | None, retry: Retry = RETRY) -> list[JobState]:
    """The states that a job goes through while its attempts end like that."""
    tally, states = Tally(), []
    for end in ends:
        tally = tally.after(end)
        states.append(after_attempt(end, **tally._asdict(), retries=retries, retry=retry, jitter=0.0).state)
    return states


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (2, 3), (3, 4), (None, 4), (99, 4)])
def test_own_failures_use_up_the_retries_which_the_policy_bounds(retries: int | None, tries: int) -> None:
    ends = [AttemptEnd.FAILED, AttemptEnd.HUNG] * 5
    assert follow(ends, retries).index(S.FAILED) == tries - 1


def test_the_infrastructure_uses_up_no_retries_but_ten_in_a_row_hold_the_job() -> None:
    ends = [AttemptEnd.EVICTED, AttemptEnd.LOST] * 5
    assert follow(ends, 0) == [S.QUEUED] * (INFRASTRUCTURE_MOST - 1) + [S.HELD]
    broken = [*ends[:9], AttemptEnd.PREEMPTED, *ends[:9]]
    assert set(follow(broken, 0)) == {S.QUEUED}


def test_victims_of_the_scheduler_come_back_for_ever() -> None:
    assert set(follow([AttemptEnd.PREEMPTED, AttemptEnd.RECLAIMED] * 50, 0)) == {S.QUEUED}


def test_every_end_has_a_blame_and_only_own_ones_use_up_retries() -> None:
    assert {end for end in AttemptEnd if end.uses_up_retries} == {AttemptEnd.FAILED, AttemptEnd.HUNG}
    assert {end.blame for end in AttemptEnd} == set(Blame)


C57 = Retry(max=5_000, backoff=10.0, max_backoff=3_600.0)


@pytest.mark.parametrize(
    ("failures", "planned"),
    [(1, 10), (2, 20), (5, 160), (9, 2560), (10, 3600), (64, 3600), (65, 3600), (1075, 3600), (5000, 3600)],
)
def test_backoff_doubles_to_its_cap_and_never_overflows(failures: int, planned: float) -> None:
    """Case C57: the power is bounded before it is taken, and the cap keeps its jitter."""
    delays = [backoff(failures, C57, step / 100) for step in range(100)]
    assert min(delays) == pytest.approx(0.75 * planned)
    assert max(delays) <= min(1.25 * planned, 3600)
    assert all(1 <= delay <= 3600 for delay in delays)
    assert len({round(delay, 3) for delay in delays}) >= 50


@given(
    st.integers(1, 10_000),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.floats(0, 1, exclude_max=True),
)
def test_backoff_stays_between_a_second_and_the_cap(failures: int, base: float, cap: float, jitter: float) -> None:
    delay = backoff(failures, Retry(max=3, backoff=base, max_backoff=cap), jitter)
    assert min(1.0, cap) <= delay <= cap


@given(st.integers(1, 4), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_below_the_cap_each_pause_is_longer_than_the_one_before(failures: int, first: float, second: float) -> None:
    assert backoff(failures, RETRY, first) < backoff(failures + 1, RETRY, second)


@pytest.mark.parametrize(("failures", "jitter"), [(0, 0.0), (1, 1.0), (1, -0.1)])
def test_backoff_refuses_what_makes_no_sense(failures: int, jitter: float) -> None:
    with pytest.raises(ValueError, match="backoff"):
        backoff(failures, RETRY, jitter)
