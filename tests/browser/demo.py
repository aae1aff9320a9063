"""A lively hour of a cluster for tests and screenshots: 64 nodes × 8, teams in a tree, jobs in every state.

All of it goes through the services, on a clock that is set back and let run up to now, so that times look like times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine

from frontend import live
from jobs.models import Attempt, Job
from jobs.services import cancel, hold
from jobs.states import Actor
from quotas.models import TeamQuota
from scheduler.backends.base import NodeReport
from scheduler.engine.cluster import CardState
from scheduler.inventory.models import Cluster, Gpu, Node
from scheduler.inventory.services import cordon, create_cluster, open_to, set_card_state
from teams.models import Role, Team, User
from teams.services import add_member, create_team
from tests.integration.world import World, ended, node, runs

PASSWORD = "a long enough one"
NODES, HOUR = 64, 3600


@dataclass
class Demo:
    """What there is to look at; ``jobs`` by name."""

    world: World
    admin: User
    lead: User
    member: User
    stranger: User
    teams: dict[str, Team]
    local: Cluster
    jobs: dict[str, Job]


def make_demo(now: datetime | None = None) -> Demo:
    """Fill an empty database; takes a few seconds."""
    end = now or datetime.now(UTC)
    with _clock(end - timedelta(seconds=HOUR)) as clock:
        demo = _people()
        world, live_state = demo.world, demo.world.take_over()

        def step(seconds: float) -> None:
            """Let time pass, decide, launch, and let what was launched run."""
            clock.shift(seconds)
            world.cycle(live_state)
            for key in world.launch():
                world.see(runs(key))
            live.publish(datetime.now(UTC))

        _first_jobs(demo)
        for _ in range(20):
            step(60)
        _trouble(demo)
        for number in range(38):
            _trickle(demo, number)
            step(60)
        _last_jobs(demo)
        step(45)
        _endings(demo)
        step(15)
        step(45)
    demo.jobs = {job.name: job for job in Job.objects.select_related("team", "user", "cluster")}
    live.watch()
    live.publish(datetime.now(UTC))
    return demo


@contextmanager
def _clock(start: datetime) -> Iterator[Any]:
    with time_machine.travel(start, tick=False) as clock:
        yield clock


def _nodes() -> tuple[NodeReport, ...]:
    def one(number: int) -> NodeReport:
        place: dict[str, Any] = {"rack": f"rack-{number // 8 + 1}", "switch": f"leaf-{number // 16 + 1}"}
        if number < 40:
            return node(f"gpu-{number + 1:03}", model="H100-80G", labels={"zone": "a"}, **place)
        more: dict[str, Any] = {"taints": ("maintenance",)} if number == 63 else {}
        return node(f"gpu-{number + 1:03}", model="A100-40G", gpu_mib=40_960, labels={"zone": "b"}, **place, **more)

    return tuple(one(number) for number in range(NODES))


def _people() -> Demo:
    admin = User.objects.create_superuser("admin", "admin@example.org", PASSWORD)
    lead, member, stranger = (
        User.objects.create_user(name, f"{name}@example.org", PASSWORD) for name in ("grace", "ada", "tom")
    )
    research = create_team(author=admin, name="Research", slug="research")
    teams = {"research": research}
    for slug, name, parent in (
        ("vision", "Vision", research), ("language", "Language", research), ("robotics", "Robotics", None),
        ("demo", "Demo", None),
    ):  # fmt: skip
        teams[slug] = create_team(author=admin, name=name, slug=slug, parent=parent)
    add_member(author=admin, team=research, user=lead, role=Role.LEAD)
    for slug in ("vision", "language", "demo"):
        add_member(author=admin, team=teams[slug], user=member)
    add_member(author=admin, team=teams["robotics"], user=stranger)
    add_member(author=admin, team=teams["vision"], user=stranger, until=datetime.now(UTC) + timedelta(days=30))
    cluster = create_cluster(
        slug="aurora", name="Aurora", backend="simulated", is_default=True, open_to_all=True, config={}
    )
    local = create_cluster(slug="local", name="This machine", backend="local")
    open_to(author=admin, cluster=local, team=teams["demo"], default=True)
    for slug, guaranteed, limit in (("vision", 120, 256), ("language", 160, None), ("robotics", 40, 64)):
        TeamQuota.objects.create(team=teams[slug], cluster=cluster, guaranteed=guaranteed, limit=limit)
    world = World(admin, lead, member, stranger, teams["vision"], cluster, _nodes())
    world.see(complete=True)
    here = World(admin, lead, member, stranger, teams["demo"], local, (node("workstation", 4, "RTX-4090"),))
    here.see(complete=True)
    return Demo(world, admin, lead, member, stranger, teams, local, {})


def _submit(demo: Demo, user: User, team: str, name: str, **body: Any) -> Job:
    command = ["python", "train.py", "--config", f"configs/{name}.yaml"]
    return demo.world.submit(user, demo.teams[team], **{"name": name, "command": command} | body)


def _first_jobs(demo: Demo) -> None:
    ada, grace, tom = demo.member, demo.lead, demo.stranger
    for number, (gpus, replicas) in enumerate(((8, 8), (8, 4), (8, 4), (8, 2))):
        _submit(demo, ada, "language", f"pretrain-7b-{number + 1}", gpus=gpus, replicas=replicas, model="H100-80G",
                priority="high", time_limit="3d")  # fmt: skip
    for number in range(12):
        _submit(demo, ada, "vision", f"detector-sweep-{number + 1}", gpus=4, model="H100-80G", time_limit="12h")
    for number in range(9):
        _submit(demo, grace, "vision", f"segment-{number + 1}", gpus=3, model="A100-40G")
    for number in range(6):
        _submit(
            demo, tom, "robotics", f"grasp-policy-{number + 1}", gpus=8, model="A100-40G", retries=3 if number else 0
        )
    for number in range(10):
        _submit(demo, ada, "language", f"notebook-{number + 1}", gpus=1, vram_gib=10, share=True, kind="interactive")


def _trouble(demo: Demo) -> None:
    nodes = {each.name: each for each in Node.objects.filter(cluster=demo.world.cluster)}
    cordon(node=nodes["gpu-037"], actor=Actor.ADMIN, why="Fan swap, ticket 4711", user=demo.admin)
    cordon(node=nodes["gpu-038"], actor=Actor.ADMIN, why="Firmware update", user=demo.admin, drain=True)
    cards = Gpu.objects.filter(node=nodes["gpu-052"]).order_by("index")
    set_card_state(gpu=cards[3], state=CardState.OUT, actor=Actor.HEALTH, why="Xid 79: fallen off the bus")
    set_card_state(gpu=cards[5], state=CardState.SUSPECT, actor=Actor.HEALTH, why="Xid 94: contained ECC error")
    lost = tuple(
        NodeReport(each.name, each.model, each.gpus, each.cpus, each.memory_mib, each.labels, each.taints, each.rack,
                   each.switch, ready=each.name != "gpu-061",
                   note="no word from its agent for 120 s" if each.name == "gpu-061" else "")
        for each in demo.world.nodes
    )  # fmt: skip
    demo.world.nodes = lost
    demo.world.see(complete=False, nodes=[each for each in lost if not each.ready])


def _trickle(demo: Demo, number: int) -> None:
    _submit(demo, demo.member, "vision", f"ablation-{number + 1}", gpus=2 + number % 3, time_limit="2h")
    if number % 3 == 0:
        _submit(demo, demo.stranger, "robotics", f"sim-rollout-{number + 1}", gpus=1 + number % 4)
    if number % 4 == 1:
        attempt = Attempt.objects.filter(ended_at=None, job__name__startswith="ablation").order_by("id").first()
        if attempt is not None:
            demo.world.see(ended(attempt, 0))


def _last_jobs(demo: Demo) -> None:
    ada, grace, tom = demo.member, demo.lead, demo.stranger
    _submit(demo, ada, "language", "pretrain-70b", gpus=8, replicas=16, model="H100-80G", priority="high")
    _submit(demo, ada, "vision", "detector-large", gpus=8, replicas=28)
    _submit(demo, grace, "vision", "needs-b200", gpus=8, model="B200")
    _submit(demo, ada, "vision", "zone-c-only", gpus=1, node_selector={"zone": "c"})
    _submit(demo, tom, "robotics", "fleet-eval", gpus=8, replicas=6)
    _submit(demo, ada, "language", "tonight", gpus=8, not_before="6h")
    _submit(demo, ada, "language", "evaluate-7b", gpus=4, after=["pretrain-7b-1"])
    _submit(demo, grace, "language", "tokenizer", gpus=1, cpus=900)
    held = _submit(demo, ada, "vision", "waits-for-data", gpus=4)
    hold(user=demo.lead, job=held, why="The data set is still being copied")
    gone = _submit(demo, ada, "vision", "wrong-branch", gpus=4)
    cancel(user=ada, job=gone, why="wrong branch")


def _endings(demo: Demo) -> None:
    for name, code, note in (("grasp-policy-1", 1, ""), ("segment-2", 137, "killed by signal 9"), ("segment-3", 0, "")):
        attempt = Attempt.objects.filter(job__name=name, ended_at=None).first()
        if attempt is not None:
            demo.world.see(ended(attempt, code, note=note))
    running = Job.objects.filter(name="detector-sweep-3").first()
    if running is not None and running.state == "running":
        cancel(user=demo.member, job=running, why="a better one is on its way")
