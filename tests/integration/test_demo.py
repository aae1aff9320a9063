"""A first start: this machine, the demo and its trickle; and the virtual cluster behind it, from the rows alone."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.utils import timezone

from jobs.models import Attempt, Job
from jobs.services import cancel
from jobs.submission import submit as take_job_in
from rota.bootstrap import first_admin
from scheduler.backends.base import BackendError
from scheduler.connect import connect, local_options
from scheduler.demo import catalogue
from scheduler.demo.first_start import demo_cluster, look_again, this_machine
from scheduler.demo.trickle import hunger, trickle
from scheduler.inventory.models import Allocation, Cluster, ClusterAccess, Gpu, Node
from scheduler.logs import read_log
from scheduler.loop import Loop
from scheduler.models import LaneHold
from scheduler.rounds import Rounds, dispatch
from scheduler.sweeping import find_contradictions
from scheduler.targets import target_for
from scheduler.timings import Timings
from teams.models import Team, User

pytestmark = pytest.mark.django_db
START = datetime.fromisoformat("2026-03-02T09:00:00+00:00")


@pytest.fixture
def clock() -> Any:
    with time_machine.travel(START, tick=False) as clock:
        yield clock


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Rota had brought its own stores, with the demo."""
    monkeypatch.setattr(settings, "ENV", replace(settings.ENV, database=None, demo=True))


def start() -> None:
    for step in (first_admin, look_again, this_machine, demo_cluster):
        step()


def test_a_first_start_makes_this_machine_and_the_demo_once_and_leaves_alone_what_people_changed(
    embedded: None,
) -> None:
    start()
    local, demo = Cluster.objects.get(slug="local"), Cluster.objects.get(slug="simulated")
    assert (local.open_to_all, local.backend, demo.synced) == (False, "local", True)
    access = ClusterAccess.objects.get(cluster=local)
    assert (access.team.slug, access.is_default) == ("demo", True)
    assert (Node.objects.filter(cluster=demo).count(), Gpu.objects.filter(cluster=demo).count()) == (64, 512)
    assert {team.slug for team in catalogue.TEAMS} < set(Team.objects.values_list("slug", flat=True))
    access.delete()
    start()
    assert not ClusterAccess.objects.filter(cluster=local).exists()
    demo.refresh_from_db()
    assert (demo.synced, demo.sync_problem) == (False, "Rota has just started")
    assert not User.objects.get(username="vision-bot").has_usable_password()


def test_without_the_demo_and_with_given_stores_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ENV", replace(settings.ENV, demo=False))
    start()
    assert not Cluster.objects.exists()


def test_the_demo_is_busy_from_the_start_and_stays_so(embedded: None, clock: Any) -> None:
    start()
    cluster = Cluster.objects.get(slug="simulated")
    loop, rounds = Loop(timings=Timings()), Rounds(timings=Timings(), chance=lambda: 0.5)
    busy, reasons = [], set()
    for turn in range(50):
        trickle(timezone.now())
        loop.tick(cluster.pk)
        rounds.dispatch(cluster.pk)
        clock.shift(timedelta(seconds=15))
        rounds.observe(cluster.pk)
        if turn > 5:
            busy.append(Gpu.objects.filter(cluster=cluster, allocated_mib__gt=0).count() / 512)
            reasons |= set(LaneHold.objects.filter(cluster=cluster).values_list("code", flat=True))
    states = set(Job.objects.filter(cluster=cluster).values_list("state", flat=True))
    assert min(busy) > 0.6
    assert 0.7 < sum(busy) / len(busy) < 0.97
    assert {"succeeded", "running", "queued"} <= states
    assert len(reasons) >= 2
    assert Job.objects.filter(cluster=cluster, state="queued").count() < 40
    assert find_contradictions(cluster) == 0


def test_hunger_is_for_what_lacks_and_never_below_nothing() -> None:
    found = hunger({"a": 0.0, "b": 0.5, "c": 1.0}, 0.0)
    assert found["a"] == 1.0
    assert 0 < found["b"] < 1
    assert found["c"] == 0.0


# --- the virtual cluster behind rows ---


def virtual(chooses_gpu: bool = True, **config: Any) -> tuple[Cluster, User, Team, Loop, Rounds]:
    first_admin()
    admin = User.objects.get(is_superuser=True)
    team = Team.objects.create(slug="t", name="T")
    pools = [{"prefix": "v", "count": 2, "gpus": 4, "model": "H100"}]
    cluster = Cluster.objects.create(
        slug="v", name="V", backend="simulated", open_to_all=True, is_default=True, chooses_gpu=chooses_gpu,
        config={"nodes": pools, "launch_delay": 1, "stop_delay": 2} | config,
    )  # fmt: skip
    return cluster, admin, team, Loop(timings=Timings()), Rounds(timings=Timings(), chance=lambda: 0.5)


def submit(user: User, team: Team, **body: Any) -> Job:
    body = {"name": "x", "command": ["true"], "retries": 0, "labels": {"simulate/duration": "60"}} | body
    return take_job_in(user=user, team=team, target=target_for(user=user, team=team), body=body).job


def states(*jobs: Job) -> list[str]:
    return [str(Job.objects.values_list("state", flat=True).get(pk=job.pk)) for job in jobs]


def test_a_virtual_job_lives_in_its_row_and_every_process_says_the_same_of_it(clock: Any) -> None:
    cluster, admin, team, loop, rounds = virtual(speed=2.0)
    good = submit(admin, team)
    bad = submit(admin, team, labels={"simulate/duration": "20s", "simulate/exit": "3"})
    stopped = submit(admin, team, labels={"simulate/duration": "1d"})
    rounds.observe(cluster.pk)
    loop.tick(cluster.pk)
    rounds.dispatch(cluster.pk)
    assert states(good, bad) == ["starting", "starting"]
    clock.shift(timedelta(seconds=1))
    Rounds(timings=Timings()).observe(cluster.pk)  # of another process
    assert states(good, bad, stopped) == ["running"] * 3
    cancel(user=admin, job=stopped)
    rounds.dispatch(cluster.pk)
    clock.shift(timedelta(seconds=11))
    rounds.observe(cluster.pk)
    assert states(good, bad, stopped) == ["running", "failed", "cancelled"]
    bad.refresh_from_db()
    assert bad.exit_code == 3
    first = read_log("simulated", f"{good.key}.1", limit=100)
    second = read_log("simulated", f"{good.key}.1", offset=first.next_offset, limit=1 << 20)
    assert (len(first.data), first.eof, second.eof) == (100, False, False)
    whole = read_log("simulated", f"{good.key}.1", limit=1 << 20)
    assert first.data + second.data == whole.data
    assert all(line.startswith("step") for line in whole.data.decode().splitlines())
    clock.shift(timedelta(seconds=20))
    rounds.observe(cluster.pk)
    assert states(good) == ["succeeded"]
    ended = read_log("simulated", f"{good.key}.1", limit=1 << 20)
    assert ended.eof
    assert ended.data.startswith(whole.data)
    clock.shift(timedelta(hours=1))
    assert read_log("simulated", f"{good.key}.1", limit=1 << 20) == ended
    assert Allocation.objects.filter(released_at=None).count() == 0


def test_where_nodes_choose_their_cards_allocations_are_provisional_and_then_confirmed(clock: Any) -> None:
    cluster, admin, team, loop, rounds = virtual(chooses_gpu=False)
    jobs = [submit(admin, team, gpus=gpus, labels={"simulate/duration": "1h"}) for gpus in (1, 2, 3, 1)]
    rounds.observe(cluster.pk)
    loop.tick(cluster.pk)
    live = Allocation.objects.filter(released_at=None)
    assert live.filter(gpu=None, slot__isnull=False).count() == live.count() == 7
    rounds.dispatch(cluster.pk)
    clock.shift(timedelta(seconds=2))
    for _ in range(3):
        rounds.observe(cluster.pk)
    assert live.exclude(gpu=None).count() == live.values("gpu").distinct().count() == 7
    assert Gpu.objects.filter(whole=True).count() == 7
    assert not live.exclude(gpu__index=0).filter(gpu=None).exists()
    before = dict(live.values_list("pk", "gpu"))
    later = submit(admin, team, gpus=1, labels={"simulate/duration": "1h"})
    loop.tick(cluster.pk)
    rounds.dispatch(cluster.pk)
    clock.shift(timedelta(seconds=2))
    rounds.observe(cluster.pk)
    assert states(*jobs, later) == ["running"] * 5
    after = dict(live.values_list("pk", "gpu"))
    assert before.items() <= after.items(), "what was confirmed stays where it is"
    assert find_contradictions(cluster) == 0


def test_a_node_that_goes_dark_on_demand_loses_its_jobs_after_the_fence(clock: Any) -> None:
    cluster, admin, team, loop, rounds = virtual()
    job = submit(admin, team, gpus=4, labels={"simulate/duration": "1h"})
    rounds.observe(cluster.pk)
    loop.tick(cluster.pk)
    rounds.dispatch(cluster.pk)
    clock.shift(timedelta(seconds=2))
    rounds.observe(cluster.pk)
    at = timezone.now().timestamp() + 10
    where = Allocation.objects.filter(released_at=None)[0].node.name
    cluster.config["faults"] = [{"node": where, "at": at, "until": at + 600}]
    cluster.save(update_fields=["config"])
    rounds.observe(cluster.pk)
    for seconds, contact, state in ((11, "down", "running"), (100, "down", "running"), (20, "down", "queued")):
        clock.shift(timedelta(seconds=seconds))
        rounds.observe(cluster.pk)
        assert (Node.objects.get(name=where).contact, *states(job)) == (contact, state)
    assert Attempt.objects.get(job=job).end == "lost"
    clock.shift(timedelta(seconds=500))
    rounds.observe(cluster.pk)
    assert Node.objects.get(name=where).contact == "ready"


def test_a_cluster_whose_configuration_makes_no_sense_says_so_and_starts_nothing(clock: Any) -> None:
    cluster, admin, team, loop, rounds = virtual(speed=-1)
    submit(admin, team)
    rounds.observe(cluster.pk)
    loop.tick(cluster.pk)
    cluster.refresh_from_db()
    assert (cluster.synced, cluster.sync_problem) == (False, "config.speed: must be more than 0")
    assert LaneHold.objects.get(cluster=cluster).code == "syncing"


def test_what_the_simulated_cluster_refuses_ends_with_the_reason(clock: Any) -> None:
    cluster, admin, team, loop, rounds = virtual()
    job = submit(admin, team)
    rounds.observe(cluster.pk)
    loop.tick(cluster.pk)
    Job.objects.filter(pk=job.pk).update(spec={**job.spec, "env": {"LD_PRELOAD": "x"}})
    dispatch(cluster, connect(cluster), clock=timezone.now, chance=lambda: 0.5)
    job.refresh_from_db()
    assert (job.state, job.state_why.endswith("env.LD_PRELOAD: set by Rota, a job may not set it")) == ("failed", True)


def test_commands_of_a_root_run_as_somebody_without_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    options = local_options(None)
    assert options["run_as"].uid == 65534
    assert options["cwd"] == "/tmp"
    with pytest.raises(BackendError, match="ROTA_LOCAL_USER: 'root' is root"):
        local_options("root")
    with pytest.raises(BackendError, match="no user"):
        local_options("nobody-of-that-name")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert local_options("daemon")["run_as"] is None
