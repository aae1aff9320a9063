"""The roster that is kept up to date change by change is the one that all rows would make."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Attempt, Change, Job
from jobs.services import cancel, hold, release
from jobs.states import Actor
from quotas.limits import Amount, Quota
from quotas.services import set_quota
from scheduler.apply import Stale, apply
from scheduler.engine.cluster import CardState
from scheduler.engine.cycle import decide
from scheduler.engine.snapshot import Use
from scheduler.inventory.models import Allocation, Gpu, Node
from scheduler.inventory.services import cordon, set_card_state, uncordon
from scheduler.load import Live, Superseded, catch_up
from scheduler.policies import set_policy
from teams.services import change_team, create_team
from tests.integration.world import World, ended, make_world, node, runs, view

pytestmark = pytest.mark.django_db


SHAPES = [{"gpus": 1}, {"gpus": 4}, {"gpus": 2, "replicas": 2}, {"share": True, "vram_gib": 20}]


def act(world: World, live: Live, dice: random.Random) -> None:  # noqa: C901  a table of what can happen
    """Something that people, hardware or a backend do."""
    waiting = list(Job.objects.filter(cluster=world.cluster, state="queued"))
    held = list(Job.objects.filter(cluster=world.cluster, state="held"))
    alive = list(Job.objects.filter(cluster=world.cluster, state__in=("starting", "running", "stopping")))
    nodes = list(Node.objects.filter(cluster=world.cluster))
    match dice.randrange(12):
        case 0 | 1 | 2:
            shape: dict[str, Any] = dice.choice(
                [{"gpus": 1}, {"gpus": 4}, {"gpus": 2, "replicas": 2}, {"share": True, "vram_gib": 20}]
            )
            world.submit(name=f"j{dice.randrange(10**9)}", priority=dice.choice(["low", "high"]), **shape)
        case 3 | 4:
            world.cycle(live)
        case 5 if waiting:
            hold(user=world.ann, job=dice.choice(waiting), why="later")
        case 6 if held:
            release(user=world.ann, job=dice.choice(held))
        case 7 if waiting or alive:
            cancel(user=world.lead, job=dice.choice(waiting + alive))
        case 8 if alive:
            job = dice.choice(alive)
            world.launch()
            tell = runs if dice.random() < 0.5 else ended
            world.see(tell(f"{job.key}.{job.attempt_count}"))
        case 9:
            machine = dice.choice(nodes)
            if machine.cordon:
                uncordon(node=machine, actor=Actor.ADMIN, user=world.admin)
            else:
                cordon(node=machine, actor=Actor.ADMIN, user=world.admin, why="look")
        case 10:
            gpu = dice.choice(list(Gpu.objects.filter(cluster=world.cluster)))
            state = dice.choice([CardState.OK, CardState.SUSPECT])
            set_card_state(gpu=gpu, state=state, actor=Actor.HEALTH, why="test")
        case 11:
            names = [f"n{number}" for number in range(1, dice.randrange(3, 6))]
            world.nodes = tuple(node(name, gpus=dice.choice([4, 8])) for name in names)
            world.see(nodes=world.nodes)


@pytest.mark.parametrize("seed", range(4))
def test_change_by_change_equals_from_scratch(seed: int) -> None:
    world = make_world(*(node(f"n{number}", gpus=8) for number in (1, 2, 3)))
    dice = random.Random(seed)
    live = world.take_over()
    for _ in range(60):
        act(world, live, dice)
        if dice.random() < 0.4:
            catch_up(live, timezone.now())
    catch_up(live, timezone.now())
    changed, epoch = view(live), live.epoch
    fresh = world.take_over()
    assert fresh.epoch == epoch + 1
    assert changed == view(fresh)


def test_numbers_and_policies_come_in_force_with_the_next_look() -> None:
    world = make_world(node("n1", gpus=8))
    job = world.submit(gpus=2)
    live = world.take_over()
    now = timezone.now()
    plan = decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())
    assert [start.job for start in plan.starts] == [job.key]
    limit = Quota("*", Amount(0), Amount(1))
    set_quota(
        author=world.admin, team=world.team, cluster_id=world.cluster.pk, quota=limit, capacity={"H100": 8}, reason="t"
    )
    with pytest.raises(Stale):
        apply(live, plan, now)
    assert world.cycle(live).started == ()
    set_policy(author=world.admin, cluster=world.cluster, policy={"queueing": "fifo"}, reason="test")
    with pytest.raises(Stale):
        apply(live, plan, now)
    catch_up(live, now)
    assert live.roster.policy.queueing.value == "fifo"
    assert view(live) == view(world.take_over())


def test_a_renamed_team_and_a_new_one_of_its_old_name_are_kept_apart() -> None:
    world = make_world(node("n1", gpus=8))
    world.submit(gpus=2)
    live = world.take_over()
    world.cycle(live)
    old = world.team.slug
    change_team(author=world.admin, team=world.team, slug="renamed", name="Renamed")
    new = create_team(author=world.admin, name="New", slug=old)
    job = world.submit(user=world.admin, team=new, gpus=1)
    assert world.cycle(live).started == (job.key,)
    assert view(live) == view(world.take_over())
    assert live.roster.tree.index.keys() >= {"renamed", old}


def test_a_plan_of_a_leader_that_was_superseded_is_refused_as_a_whole() -> None:
    world = make_world()
    world.submit()
    live = world.take_over()
    now = timezone.now()
    plan = decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())
    successor = world.take_over()
    with pytest.raises(Superseded):
        apply(live, plan, now)
    with pytest.raises(Superseded):
        catch_up(live, now)
    assert not Allocation.objects.filter(node__cluster=world.cluster).exists()
    assert len(world.cycle(successor).started) == 1


def test_what_changed_since_the_plan_is_left_out_and_the_rest_goes_on() -> None:
    world = make_world(node("n1"), node("n2"))
    gone, held, kept = (world.submit(gpus=1) for _ in range(3))
    big = world.submit(gpus=8)
    live = world.take_over()
    now = timezone.now()
    plan = decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())
    assert len(plan.starts) == 4
    cancel(user=world.ann, job=gone)
    hold(user=world.ann, job=held, why="later")
    place = next(start for start in plan.starts if start.job == big.key).pieces[0].node
    cordon(node=Node.objects.get(name=place, cluster=world.cluster), actor=Actor.HEALTH, why="xid 79")
    applied = apply(live, plan, now)
    assert (applied.started, set(applied.left_out)) == ((kept.key,), {gone.key, held.key, big.key})
    catch_up(live, timezone.now())
    assert view(live) == view(world.take_over())


def test_an_exclusion_ends_by_itself() -> None:
    world = make_world(node("n1"))
    job = world.submit()
    until = timezone.now() + timedelta(seconds=60)
    Job.objects.filter(pk=job.pk).update(
        excluded=[{"node": "n1", "until": until.timestamp(), "why": "it failed there"}]
    )
    live = world.take_over()
    lane = Job.objects.get(pk=job.pk).lane
    assert lane != job.lane
    assert world.cycle(live).started == ()
    assert catch_up(live, until + timedelta(seconds=1))
    assert live.roster.waiting(job.key).shape.excluded == frozenset()  # type: ignore[union-attr]
    assert Job.objects.get(pk=job.pk).lane == job.lane


def test_the_number_of_queries_does_not_grow_with_what_happens() -> None:
    def queries(jobs: int) -> int:
        world = make_world(*(node(f"n{number}") for number in range(jobs)))
        live = world.take_over()
        for _ in range(jobs * 10):
            world.submit(gpus=1)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert len(world.cycle(live).started) == jobs * 8
        return len(captured)

    few, many = queries(1), queries(6)
    assert few == many
    assert many <= 30


def test_a_cycle_without_news_writes_nothing_and_finds_nothing() -> None:
    world = make_world(node("n1", gpus=1))
    world.submit(gpus=1), world.submit(gpus=1)
    live = world.take_over()
    world.cycle(live)
    assert not catch_up(live, timezone.now())
    assert world.cycle(live).reasons_written == 0
    assert not Change.objects.filter(cluster=world.cluster).exists()


def test_what_teams_have_used_is_remembered_over_a_restart() -> None:
    world = make_world(node("n1", gpus=4))
    child = create_team(author=world.admin, name="child", parent=world.team)
    jobs = [world.submit(gpus=2), world.submit(user=world.lead, team=child, gpus=1)]
    slices = world.submit(share=True, vram_gib=40)
    live = world.take_over()
    assert len(world.cycle(live).started) == 3
    world.launch()
    begin = timezone.now()
    set_back(begin - timedelta(hours=2), "started_at")
    live = world.take_over()
    world.see(*[ended(f"{job.key}.1") for job in (*jobs, slices)])
    catch_up(live, timezone.now())
    set_back(begin, "released_at")
    set_back(begin, "ended_at")
    fresh = world.take_over()
    kept, again = (
        {team.name: use.gpu_seconds for team, use in zip(each.roster.tree.teams, uses(each), strict=True)}
        for each in (live, fresh)
    )
    assert again == pytest.approx(kept, rel=1e-3)
    assert again["child"] == pytest.approx(faded(hours=2), rel=1e-3)
    assert again[world.team.slug] == pytest.approx(3.5 * faded(hours=2), rel=1e-3)


def set_back(moment: datetime, column: str) -> None:
    model = Attempt if column == "ended_at" else Allocation
    model._default_manager.update(**{column: moment})
    if column == "started_at":
        Attempt.objects.update(started_at=moment)


def uses(live: Live) -> tuple[Use, ...]:
    return live.roster.snapshot(timezone.now().timestamp()).uses


def faded(hours: float, half_life: float = 86_400.0) -> float:
    """GPU-seconds that a GPU held for the last hours counts for."""
    return float(half_life / math.log(2) * (1 - 0.5 ** (hours * 3600 / half_life)))
