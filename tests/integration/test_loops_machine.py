"""Everything that can happen to the loops, in any order, with a death between any two steps: I1 to I6 always hold.

A Hypothesis state machine over the real services, the real tables and the simulated backend. A *process* (a loop, a
dispatcher, an observer) is killed by an exception that nothing catches before a statement to the database or on either
side of a call to the backend; whoever takes over knows nothing but the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobs.models import LIVE_STATES, TERMINAL_STATES, WAITING_STATES, Attempt, Job
from jobs.services import cancel, hold, release
from jobs.states import Actor
from quotas.limits import Amount, Quota
from quotas.services import set_quota
from scheduler.apply import NotApplied, apply
from scheduler.backends.base import Observation
from scheduler.engine.cluster import CardState
from scheduler.engine.cycle import decide
from scheduler.inventory.models import Allocation, Gpu, Node
from scheduler.inventory.selectors import capacity_of
from scheduler.inventory.services import cordon, set_card_state, uncordon
from scheduler.load import Superseded, catch_up
from scheduler.sweeping import find_contradictions, sweep_cluster
from teams.problems import Problem
from tests.integration.loop_world import Killed, Play, Stage, make_stage
from tests.integration.world import view

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(7200)]

START = datetime.fromisoformat("2026-03-02T09:00:00+00:00")
SHAPES: tuple[dict[str, Any], ...] = (
    {"gpus": 1}, {"gpus": 3}, {"gpus": 4}, {"gpus": 2, "replicas": 2}, {"gpus": 4, "replicas": 2},
    {"share": True, "vram_gib": 30}, {"share": True, "vram_gib": 50, "gpus": 2},
)  # fmt: skip
NODES = ("n1", "n2", "n3")
STEPS = st.integers(1, 60)
DEEP = settings.get_current_profile_name() == "deep"


class Loops(RuleBasedStateMachine):
    """See the module."""

    stage: Stage

    @initialize(chooses_gpu=st.booleans(), shapes=st.lists(st.sampled_from(SHAPES), min_size=3, max_size=6))
    def begin(self, chooses_gpu: bool, shapes: list[dict[str, Any]]) -> None:
        self.traveller = time_machine.travel(START, tick=False)
        self.clock = self.traveller.start()
        self.stage = make_stage(nodes=3, gpus=4, chooses_gpu=chooses_gpu)
        self.accepted: dict[str, str] = {}
        self.usage: Counter[int] = Counter()
        self.limits: dict[int, float] = {}
        self.seen: list[tuple[Observation, datetime]] = []
        for shape in shapes:
            self.submit_one(shape, "normal", 0, 40.0, 1)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        try:
            self.converges()
        finally:
            self.traveller.stop()

    # -- people -------------------------------------------------------------------------------------------------------

    @rule(shape=st.sampled_from(SHAPES), priority=st.sampled_from(["low", "normal", "high"]), code=st.integers(0, 1),
          lasts=st.sampled_from([5.0, 40.0, 400.0, None]), retries=st.integers(0, 2))  # fmt: skip
    def submit(self, shape: dict[str, Any], priority: str, code: int, lasts: float | None, retries: int) -> None:
        self.submit_one(shape, priority, code, lasts, retries)

    def submit_one(self, shape: dict[str, Any], priority: str, code: int, lasts: float | None, retries: int) -> None:
        job = self.stage.world.submit(**shape, priority=priority, retries=retries, time_limit="20m")
        self.stage.backend.plays[job.key] = Play(lasts, code)
        self.accepted[job.key] = job.state

    @rule(data=st.data(), steps=st.none() | STEPS)
    def cancel(self, data: st.DataObject, steps: int | None) -> None:
        jobs = self.jobs(*WAITING_STATES, *LIVE_STATES)
        if len(jobs) > 2:
            job = data.draw(st.sampled_from(jobs))
            self.maybe_killed(steps, lambda: cancel(user=self.stage.world.ann, job=job))

    @rule(data=st.data())
    def hold_or_release(self, data: st.DataObject) -> None:
        jobs = self.jobs(*WAITING_STATES)
        if jobs:
            job = data.draw(st.sampled_from(jobs))
            with suppress(Problem):
                if job.state == "held":
                    release(user=self.stage.world.ann, job=job)
                else:
                    hold(user=self.stage.world.ann, job=job, why="a look")

    @rule(limit=st.sampled_from([0, 3, 6, 12]))
    def edit_limit(self, limit: int) -> None:
        world = self.stage.world
        set_quota(
            author=world.admin, team=world.team, cluster_id=world.cluster.pk,
            quota=Quota("*", Amount(0), Amount(limit)),
            capacity=capacity_of(world.cluster.pk), reason="an edit",
        )  # fmt: skip
        self.limits[world.team.pk] = limit

    # -- hardware -----------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NODES))
    def cordon_or_not(self, name: str) -> None:
        machine = Node.objects.get(cluster=self.stage.world.cluster, name=name)
        if machine.cordon:
            uncordon(node=machine, actor=Actor.ADMIN, user=self.stage.world.admin)
        else:
            cordon(node=machine, actor=Actor.ADMIN, user=self.stage.world.admin, why="a look")

    @rule(name=st.sampled_from(NODES), down=st.booleans())
    def contact(self, name: str, down: bool) -> None:
        (self.stage.backend.real.node_down if down else self.stage.backend.real.node_up)(name)

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 3), state=st.sampled_from([CardState.OK, CardState.OUT]))
    def card(self, name: str, index: int, state: CardState) -> None:
        gpu = Gpu.objects.get(node__name=name, node__cluster=self.stage.world.cluster, index=index)
        set_card_state(gpu=gpu, state=state, actor=Actor.HEALTH, why="a look")

    @rule(seconds=st.sampled_from([1, 5, 15, 70, 150]))
    def time_passes(self, seconds: int) -> None:
        self.clock.shift(timedelta(seconds=seconds))

    # -- the loops ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 6, 50]), killed=st.none() | st.tuples(st.integers(0, 2), STEPS))
    def turn(self, seconds: int, killed: tuple[int, int] | None) -> None:
        """All three in their usual order, with a death in at most one of them."""
        for place, act in enumerate((self.stage.tick, self.stage.dispatch, self.stage.observe)):
            if self.maybe_killed(killed[1] if killed and killed[0] == place else None, act):
                self.stage.loops.clear()
            self.clock.shift(timedelta(seconds=seconds / 2))

    @rule(seconds=st.sampled_from([3, 30]))
    def another_turn(self, seconds: int) -> None:
        self.turn(seconds, None)

    @rule(number=st.integers(0, 1), steps=st.none() | STEPS, twice=st.booleans())
    def tick(self, number: int, steps: int | None, twice: bool) -> None:
        def act() -> None:
            self.stage.tick(number)
            if twice:
                self.stage.tick(number)

        if self.maybe_killed(steps, act):
            del self.stage.loops[number:]

    @rule(steps=st.none() | STEPS, fail=st.sampled_from(["", "", "before", "after"]))
    def dispatch(self, steps: int | None, fail: str) -> None:
        self.stage.backend.fail = fail
        self.maybe_killed(steps, self.stage.dispatch)
        self.stage.backend.fail = ""

    @rule(steps=st.none() | STEPS, complete=st.booleans())
    def observe(self, steps: int | None, complete: bool) -> None:
        self.maybe_killed(steps, lambda: self.stage.observe(complete=complete))

    @rule(complete=st.booleans())
    def look_without_writing(self, complete: bool) -> None:
        """An observer that has asked and is then paused: what it has heard comes late, or never."""
        begun = timezone.now()
        self.seen.append((self.stage.backend.real.observe(None if complete else self.stage.cursor), begun))

    @precondition(lambda self: bool(getattr(self, "seen", None)))
    @rule(data=st.data(), steps=st.none() | STEPS)
    def late_observation(self, data: st.DataObject, steps: int | None) -> None:
        seen, begun = data.draw(st.sampled_from(self.seen))
        self.maybe_killed(steps, lambda: self.stage.take_in(seen, begun))

    @rule(complete=st.booleans(), then=st.sampled_from(["tick", "dispatch", "all"]))
    def slow_observer(self, complete: bool, then: str) -> None:
        """Others go on while an observer has its answer and has not written it down yet."""
        begun = timezone.now()
        seen = self.stage.backend.real.observe(None if complete else self.stage.cursor)
        self.clock.shift(timedelta(seconds=1))
        if then != "dispatch":
            self.stage.tick()
        if then != "tick":
            self.stage.dispatch()
        self.clock.shift(timedelta(seconds=1))
        if then == "all":
            self.stage.observe()
        self.stage.take_in(seen, begun)

    @rule(then=st.sampled_from(["other", "observe", "limit", "dispatch"]), number=st.integers(0, 1))
    def paused_leader(self, then: str, number: int) -> None:
        """A leader is paused between its decision and its commit, and others go on meanwhile."""
        live = self.stage.world.take_over()
        now = timezone.now()
        plan = decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())
        self.clock.shift(timedelta(seconds=1))
        if then == "other":
            self.submit_one({"gpus": 4}, "high", 0, 40.0, 0)  # which takes what the plan has given to others
            self.stage.tick(number)
            self.stage.tick(number)
        elif then == "observe":
            self.stage.observe()
        elif then == "limit":
            self.edit_limit(3)
        else:
            self.stage.dispatch()
        self.stage.world.cluster.refresh_from_db()
        superseded = self.stage.world.cluster.epoch != live.epoch
        try:
            apply(live, plan, timezone.now())
        except (Superseded, NotApplied):
            return
        assert not superseded, "a late leader has written"

    @rule()
    def sweep(self) -> None:
        sweep_cluster(self.stage.world.cluster, self.stage.backend, timezone.now())

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def i1_no_card_is_promised_twice(self) -> None:
        if not hasattr(self, "stage"):
            return
        cluster = self.stage.world.cluster
        held: dict[int, list[int]] = {}
        live = Allocation.objects.filter(node__cluster=cluster, released_at=None, gpu__isnull=False)
        for pk, mib in live.values_list("gpu_id", "mib"):
            held.setdefault(pk or 0, []).append(mib)
        for gpu in Gpu.objects.filter(cluster=cluster):
            slices = held.get(gpu.pk, [])
            if 0 in slices:
                assert slices == [0], gpu
                assert gpu.whole, gpu
            else:
                assert sum(slices) == gpu.allocated_mib <= gpu.capacity_mib, gpu
        if self.stage.backend.chooses_gpu:
            doubled = {card: who for card, who in self.stage.backend.holders().items() if len(who) > 1}
            assert not doubled, "really held twice, over there"
        by_node = Allocation.objects.filter(node__cluster=cluster, released_at=None, mib=0, slot__isnull=False)
        assert all(number <= 4 for number in Counter(by_node.values_list("node_id", flat=True)).values())

    @invariant()
    def i2_no_accepted_job_vanishes_or_leaves_its_end(self) -> None:
        if not hasattr(self, "stage"):
            return
        now = dict(Job.objects.filter(key__in=list(self.accepted)).values_list("key", "state"))
        assert now.keys() == self.accepted.keys()
        for key, before in self.accepted.items():
            assert before not in TERMINAL_STATES or now[key] == before, key
        self.accepted = now

    @invariant()
    def i3_i5_a_job_and_its_one_attempt_belong_together(self) -> None:
        if not hasattr(self, "stage"):
            return
        cluster = self.stage.world.cluster
        assert find_contradictions(cluster) == 0
        live = Counter(Attempt.objects.filter(job__cluster=cluster, ended_at=None).values_list("job_id", flat=True))
        assert all(number == 1 for number in live.values())
        there = Counter(key.rpartition(".")[0] for key in self.stage.backend.alive())
        assert all(number == 1 for number in there.values()), "one job runs twice over there"
        given_up = Attempt.objects.filter(key__in=self.stage.backend.alive(), end="lost")
        assert not given_up.exists(), "given up as lost while it runs"

    @invariant()
    def i4_no_start_goes_over_a_limit(self) -> None:
        if not hasattr(self, "stage"):
            return
        cluster = self.stage.world.cluster
        usage: Counter[int] = Counter()
        held = Allocation.objects.filter(node__cluster=cluster, released_at=None, slot__isnull=False)
        for team, mib in held.values_list("attempt__job__team_id", "mib"):
            usage[team] += 1000 if not mib else 1000 * mib // 81_920
        for team, used in usage.items():
            limit = self.limits.get(team)
            assert limit is None or used <= self.usage[team] or used <= 1000 * limit, "a limit was exceeded"
        self.usage = usage

    @invariant()
    def i6_all_replicas_or_none(self) -> None:
        if not hasattr(self, "stage"):
            return
        cluster = self.stage.world.cluster
        for attempt in Attempt.objects.filter(job__cluster=cluster, ended_at=None).select_related("job"):
            held = Allocation.objects.filter(attempt=attempt, released_at=None)
            assert held.count() == attempt.job.gpus, attempt
            assert held.values("group", "replica").distinct().count() == attempt.job.spec.get("replicas", 1), attempt
        ended = Allocation.objects.filter(node__cluster=cluster, released_at=None, attempt__ended_at__isnull=False)
        assert not ended.exists()

    def converges(self) -> None:
        """When the faults stop, rows and cluster agree, the roster is what the rows say, and what can run does."""
        for name in NODES:
            self.stage.backend.real.node_up(name)
        for _ in range(4):
            self.clock.shift(timedelta(seconds=70))
            self.stage.tick()
            self.stage.dispatch()
            self.clock.shift(timedelta(seconds=5))
            self.stage.observe(complete=True)
        rows = Attempt.objects.filter(job__cluster=self.stage.world.cluster, ended_at=None)
        launched = set(rows.filter(launched_at__isnull=False).values_list("key", flat=True))
        assert self.stage.backend.alive() == launched
        live = self.stage.loop().live(self.stage.world.cluster.pk)
        if live is not None:
            catch_up(live, timezone.now())
            kept = view(live)
            assert kept == view(self.stage.world.take_over())

    # -- help ---------------------------------------------------------------------------------------------------------

    def jobs(self, *states: str) -> list[Job]:
        return list(Job.objects.filter(cluster=self.stage.world.cluster, state__in=states).order_by("pk"))

    def maybe_killed(self, steps: int | None, act: Callable[[], Any]) -> bool:
        """Do it, as a process that is killed after so many steps; whether it was."""
        if steps is None:
            act()
            return False
        try:
            with self.stage.fuse.lit(steps):
                act()
        except Killed:
            return True
        return False


def test_whatever_happens_in_whatever_order_the_invariants_hold() -> None:
    run_state_machine_as_test(
        Loops,
        settings=settings(
            max_examples=400 if DEEP else 20,
            stateful_step_count=80 if DEEP else 50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
