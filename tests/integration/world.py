"""A small world of rows for tests: people, teams, a cluster with nodes, and the steps of a loop one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from jobs.models import Attempt, Job
from jobs.submission import submit
from scheduler.apply import Applied, apply
from scheduler.backends.base import AttemptReport, CardReport, Cause, NodeReport, Observation, Phase, ReplicaReport
from scheduler.engine.cycle import decide
from scheduler.inventory.models import Cluster
from scheduler.inventory.services import create_cluster
from scheduler.load import Live, catch_up, take_over
from scheduler.observing import Found, take_in
from scheduler.reconcile import begin_launches, note_launched, orders_for
from scheduler.targets import target_for
from teams.models import Role, Team, User
from teams.services import add_member, create_team

_numbers = count(1)


def node(name: str, gpus: int = 8, model: str = "H100", **more: Any) -> NodeReport:
    """A node as a backend reports it."""
    memory = more.pop("gpu_mib", 81_920)
    cards = tuple(CardReport(f"GPU-{name}-{index}", index, memory, virtual=True) for index in range(gpus))
    return NodeReport(name, model, more.pop("cards", cards), more.pop("cpus", 64), 1_000_000, **more)


@dataclass
class World:
    """One cluster, one admin, one team with a lead and two members."""

    admin: User
    lead: User
    ann: User
    bob: User
    team: Team
    cluster: Cluster
    nodes: tuple[NodeReport, ...]
    now: datetime = field(default_factory=timezone.now)

    def submit(self, user: User | None = None, team: Team | None = None, **body: Any) -> Job:
        """Take a job in."""
        user, team = user or self.ann, team or self.team
        body = {"name": f"job-{next(_numbers)}", "command": ["true"]} | body
        return submit(user=user, team=team, target=target_for(user=user, team=team), body=body).job

    def take_over(self) -> Live:
        """Schedule from here on."""
        return take_over(self.cluster.pk, timezone.now())

    def cycle(self, live: Live) -> Applied:
        """One cycle: catch up, decide, apply."""
        now = timezone.now()
        catch_up(live, now)
        plan = decide(live.roster.snapshot(now.timestamp()), live.roster.policy, now.timestamp())
        return apply(live, plan, now)

    def launch(self) -> list[str]:
        """Tell an imagined backend what there is to launch; returns the attempts."""
        now = timezone.now()
        keys = [launch.attempt for launch in orders_for(self.cluster.pk, now).launches]
        begun = begin_launches(keys, now)
        note_launched(begun, now)
        return sorted(begun)

    def see(
        self, *reports: AttemptReport, complete: bool = False, nodes: Iterable[NodeReport] | None = None,
        begun: datetime | None = None, chance: float = 0.5,
    ) -> Found:  # fmt: skip
        """Take in what a backend says; a complete observation lists the nodes of the world."""
        seen = tuple(nodes) if nodes is not None else (self.nodes if complete else ())
        observation = Observation(complete, 1, seen, tuple(reports))
        now = timezone.now()
        return take_in(self.cluster.pk, observation, begun=begun or now, now=now, chance=lambda: chance)


def make_world(*nodes: NodeReport, chooses_gpu: bool = True, synced: bool = True) -> World:
    """Make the rows of a world, by the services alone."""
    number = next(_numbers)
    admin = User.objects.create_superuser(f"root-{number}")
    lead, ann, bob = (User.objects.create_user(f"{name}-{number}") for name in ("lead", "ann", "bob"))
    team = create_team(author=admin, name=f"Team {number}", slug=f"team-{number}")
    for user, role in ((lead, Role.LEAD), (ann, Role.MEMBER), (bob, Role.MEMBER)):
        add_member(author=admin, team=team, user=user, role=role)
    cluster = create_cluster(
        slug=f"c{number}", name="C", backend="simulated", chooses_gpu=chooses_gpu, is_default=True, open_to_all=True
    )
    world = World(admin, lead, ann, bob, team, cluster, nodes or (node("n1"),))
    if synced:
        world.see(complete=True)
    return world


def runs(attempt: Attempt | str, *, cards: Iterable[str] | None = None, node_name: str = "n1") -> AttemptReport:
    """A backend's word that an attempt runs, with the cards of its only replica."""
    key = attempt if isinstance(attempt, str) else attempt.key
    replicas = () if cards is None else (
        ReplicaReport(0, "main", 0, node_name, Phase.RUNNING, 1.0, gpus=tuple(cards)),
    )  # fmt: skip
    return AttemptReport(key, Phase.RUNNING, 1.0, started=1.0, replicas=replicas)


def ended(
    attempt: Attempt | str,
    code: int | None = 0,
    *,
    phase: Phase = Phase.EXITED,
    cause: Cause = Cause.SELF,
    note: str = "",
) -> AttemptReport:
    """A backend's word that an attempt has ended."""
    key = attempt if isinstance(attempt, str) else attempt.key
    return AttemptReport(key, phase, 2.0, started=1.0, exit_code=code, cause=cause, note=note)


def live_attempt(job: Job) -> Attempt:
    """The live attempt of a job."""
    return Attempt.objects.get(job=job, ended_at=None)


def long_ago() -> datetime:
    """Before anything in a test."""
    return timezone.now() - timedelta(days=1)


def view(live: Live) -> dict[str, object]:
    """What a roster says, to be compared with that of another one made from the same rows."""
    snapshot = live.roster.snapshot(timezone.now().timestamp())
    ledger = live.roster.ledger
    return {
        "books": (ledger.free, ledger.cpus, ledger.memory, ledger.ready, ledger.working, dict(ledger.shared)),
        "nodes": snapshot.inventory.nodes,
        "used": snapshot.used,
        "running": {key: (each.job, each.pieces, each.phase) for key, each in snapshot.running.items()},
        "waiting": {(lane.shape, lane.team, lane.jobs) for lane in snapshot.lanes},
        "gateable": {job.key for job in snapshot.gateable},
        "tree": live.roster.tree,
        "policy": live.roster.policy,
        "starting": snapshot.starting,
    }
