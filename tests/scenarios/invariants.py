"""What must hold of every answer, worked out from the scenario and the attempts alone; and what a file may expect."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from scheduler.drive.scenario import NodeSpec, QuotaEdit, Scenario
from scheduler.drive.script import node_of
from scheduler.engine.demand import MIB_PER_GIB, Group
from scheduler.engine.reasons import Reason

Answer = dict[str, Any]
TINY = 1e-5


class Hold(NamedTuple):
    """One piece of an attempt over the time in which it held its cards; ``new`` where the piece is, since ``begin``."""

    job: str
    team: str
    begin: float
    end: float
    group: Group
    piece: dict[str, Any]
    node: NodeSpec
    new: bool


def faults(scenario: Scenario, answer: Answer) -> list[str]:
    """Everything that is wrong with an answer."""
    holds = list(_holds(scenario, answer))
    return [
        *_gangs(scenario, answer),
        *_topology(scenario, answer),
        *(fault for hold in holds for fault in _place(hold)),
        *_cards(holds),
        *_lives(answer),
        *_limits(scenario, holds),
        *_figures(scenario, answer, holds),
        *_service(answer),
    ]


def _holds(scenario: Scenario, answer: Answer) -> Iterator[Hold]:
    nodes = {node.name: node for node in scenario.nodes}
    for job in scenario.jobs:
        groups = {group.name: group for group in job.spec.groups}
        for attempt in answer["jobs"][job.spec.name]["attempts"]:
            before: list[dict[str, Any]] = []
            for begin, end, placement in _stages(attempt, answer["end"]):
                for piece in placement:
                    group, node = groups[piece["group"]], nodes[piece["node"]]
                    yield Hold(job.spec.name, job.spec.team, begin, end, group, piece, node, piece not in before)
                before = placement


def _stages(attempt: dict[str, Any], over: float) -> Iterator[tuple[float, float, list[dict[str, Any]]]]:
    """From when to when an attempt had which placement."""
    begin, placement = attempt["started"], attempt["placement"]
    for resize in attempt["resizes"]:
        yield begin, resize["at"], placement
        begin, placement = resize["at"], resize["placement"]
    yield begin, over if attempt["ended"] is None else attempt["ended"], placement


def _gangs(scenario: Scenario, answer: Answer) -> Iterator[str]:
    """Every replica has its place: all of them, or of an elastic job as many as it may have."""
    for job in scenario.jobs:
        for attempt in answer["jobs"][job.spec.name]["attempts"]:
            for number, (_, _, placement) in enumerate(_stages(attempt, answer["end"])):
                found = Counter(piece["group"] for piece in placement)
                for group in job.spec.groups:
                    least = group.replicas if group.min_replicas is None else group.min_replicas
                    most = max(group.replicas, (group.max_replicas or 0) if number else 0)
                    least = min([least, *(one.replicas for one in job.spec.scale if one.replicas is not None)])
                    most = max([most, *(one.replicas for one in job.spec.scale if one.replicas is not None)])
                    if not least <= found[group.name] <= most:
                        yield f"{job.spec.name}: attempt {attempt['number']} is not whole"
                if len({(piece["group"], piece["replica"]) for piece in placement}) != len(placement):
                    yield f"{job.spec.name}: attempt {attempt['number']} has a replica twice"


def _topology(scenario: Scenario, answer: Answer) -> Iterator[str]:
    nodes = {node.name: node_of(node) for node in scenario.nodes}
    for job in scenario.jobs:
        topology = job.spec.topology
        for attempt in answer["jobs"][job.spec.name]["attempts"]:
            size = 0
            for _, _, placement in _stages(attempt, answer["end"]):
                grown, size = len(placement) > size, len(placement)
                where = [nodes[piece["node"]] for piece in placement]
                if topology.require is not None and len({node.domain(topology.require) for node in where}) > 1:
                    yield f"{job.spec.name}: lies in more than one {topology.require}"
                if grown and topology.spread is not None and topology.max_per_domain is not None:
                    found = Counter(node.domain(topology.spread) for node in where)
                    if max(found.values()) > max(1, int(topology.max_per_domain * len(where) + TINY)):
                        yield f"{job.spec.name}: too much of it lies in one {topology.spread}"


def _place(hold: Hold) -> Iterator[str]:
    group, node, gpus = hold.group, hold.node, hold.piece["gpus"]
    if len(set(gpus)) != group.gpus or any(not 0 <= gpu < node.gpus for gpu in gpus):
        yield f"{hold.job}: has cards {gpus} of {node.name}, asked for {group.gpus}"
    if group.models and node.model not in group.models:
        yield f"{hold.job}: is on a {node.model}"
    if group.vram_mib > node.vram_mib or not set(group.selector) <= set(node.labels):
        yield f"{hold.job}: is on {node.name}, which does not fit it"
    if not set(node.taints) <= set(group.tolerations):
        yield f"{hold.job}: is on {node.name} in spite of its taints"
    if hold.begin < node.at:
        yield f"{hold.job}: is on {node.name} before it joined"


def _cards(holds: list[Hold]) -> Iterator[str]:
    """No card is held twice, and the memory of shared ones and the CPUs and memory of hosts suffice."""
    by_card: dict[tuple[str, int], list[tuple[float, int, float]]] = defaultdict(list)
    hosts: dict[str, list[tuple[float, int, float, float]]] = defaultdict(list)
    capacity: dict[tuple[str, int], float] = {}
    for hold in holds:
        usable = float(hold.node.vram_mib - hold.node.reserve_mib)
        taken = hold.piece["vram_gib"] * MIB_PER_GIB if hold.group.share else usable
        for gpu in hold.piece["gpus"]:
            capacity[hold.node.name, gpu] = usable
            by_card[hold.node.name, gpu] += [(hold.begin, 1, taken), (hold.end, 0, -taken)]
        cpus, memory = hold.group.cpus_milli, hold.group.memory_mib
        hosts[hold.node.name] += [(hold.begin, 1, cpus, memory), (hold.end, 0, -cpus, -memory)]
    for card, changes in by_card.items():
        if _peak([(at, kind, by) for at, kind, by in changes]) > capacity[card] + TINY:
            yield f"{card}: more is held of it than there is"
    nodes = {hold.node.name: hold.node for hold in holds}
    for name, rows in hosts.items():
        if _peak([(at, kind, cpus) for at, kind, cpus, _ in rows]) > nodes[name].cpus_milli:
            yield f"{name}: too many CPUs are held"
        if _peak([(at, kind, memory) for at, kind, _, memory in rows]) > nodes[name].memory_mib:
            yield f"{name}: too much host memory is held"


def _peak(changes: list[tuple[float, int, float]]) -> float:
    level = most = 0.0
    for _, _, by in sorted(changes):
        level += by
        most = max(most, level)
    return most


def _lives(answer: Answer) -> Iterator[str]:
    """Each job's time from submission to its end is made of waits and attempts, each wait with a reason."""
    known = {reason.value for reason in Reason}
    for name, job in answer["jobs"].items():
        for wait in job["waits"]:
            if wait["reason"] not in known or not wait["message"] or wait["from"] == wait["to"]:
                yield f"{name}: a wait that says nothing: {wait}"
        over = answer["end"] if job["ended"] is None else job["ended"]
        spans = [(wait["from"], over if wait["to"] is None else wait["to"]) for wait in job["waits"]]
        spans += [(one["started"], over if one["ended"] is None else one["ended"]) for one in job["attempts"]]
        at = job["submitted"]
        for begin, end in sorted(spans):
            if abs(begin - at) > TINY:
                yield f"{name}: nothing, or two things, said of {at} to {begin}"
            at = end
        if job["state"] != "rejected" and at < over - TINY:
            yield f"{name}: nothing said of {at} to {over}"
        begun = {attempt["started"] for attempt in job["attempts"]}
        reasons = {(wait["to"], wait["reason"]) for wait in job["waits"] if wait["to"] not in begun}
        starts = {(wait["from"], wait["reason"]) for wait in job["waits"]}
        if reasons & starts:
            yield f"{name}: two waits for one reason that should be one"


def _limits(scenario: Scenario, holds: list[Hold]) -> Iterator[str]:
    """No start or growth takes a team, or its parent, above the limit of that moment (edits of it are respected)."""
    parents = {team.name: team.parent for team in scenario.quotas.teams}
    edits = [edit for edit in scenario.edits if isinstance(edit, QuotaEdit)]
    for team in scenario.quotas.teams:
        for model in {quota.model for quota in team.quotas}:
            mine = [
                hold for hold in holds
                if _under(hold.team, team.name, parents) and model in ("*", hold.node.model)
            ]  # fmt: skip
            for moment in sorted({hold.begin for hold in mine if hold.new}):
                quotas = [edit.quotas for edit in edits if edit.team == team.name and edit.at <= moment]
                limit = next((one.limit for one in (quotas or [team.quotas])[-1] if one.model == model), None)
                if limit is None or limit.percent:
                    continue
                held = sum(_weight(hold) for hold in mine if hold.begin <= moment < hold.end)
                if held > limit.value + TINY:
                    yield f"{team.name}: holds {held} of {model} at {moment}, its limit is {limit.value}"


def _under(team: str | None, top: str, parents: dict[str, str | None]) -> bool:
    while team is not None and team != top:
        team = parents[team]
    return team == top


def _weight(hold: Hold) -> float:
    if not hold.group.share:
        return float(len(hold.piece["gpus"]))
    return float(hold.piece["vram_gib"]) * MIB_PER_GIB / hold.node.vram_mib * len(hold.piece["gpus"])


def _figures(scenario: Scenario, answer: Answer, holds: list[Hold]) -> Iterator[str]:
    metrics, end = answer["metrics"], answer["end"]
    waits = [job["started"] - job["submitted"] for job in answer["jobs"].values() if job["started"] is not None]
    if waits and abs(metrics["wait_seconds"]["mean"] - sum(waits) / len(waits)) > TINY:
        yield "wait_seconds.mean is wrong"
    held = sum(_weight(hold) * (hold.end - hold.begin) for hold in holds)
    hours = sum(
        team["gpu_hours"] for name, team in answer["teams"].items()
        if next(one for one in scenario.quotas.teams if one.name == name).parent is None
    )  # fmt: skip
    if abs(hours * 3600 - held) > 0.01 * max(1, len(holds)):
        yield f"the teams had {hours} GPU-hours, the attempts show {held / 3600}"
    if any(node["history"] for node in answer["nodes"].values()) or end <= 0:
        return
    service = sum(node.gpus * max(0.0, end - node.at) for node in scenario.nodes)
    if abs(metrics["allocated_ratio"] - held / service) > TINY:
        yield f"allocated_ratio is {metrics['allocated_ratio']}, the attempts show {held / service}"
    busy = sum(_union([hold for hold in holds if hold.node is node]) for node in scenario.nodes)
    idle = sum(max(0.0, end - node.at) for node in scenario.nodes) - busy
    if abs(metrics["idle_nodes"] - idle / end) > TINY:
        yield f"idle_nodes is {metrics['idle_nodes']}, the attempts show {idle / end}"


def _union(holds: list[Hold]) -> float:
    total = reach = 0.0
    for begin, end in sorted((hold.begin, hold.end) for hold in holds):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def _service(answer: Answer) -> Iterator[str]:
    """Nothing starts on a node while it is out of service."""
    for name, node in answer["nodes"].items():
        history = node["history"]
        for position, change in enumerate(history):
            until = history[position + 1]["at"] if position + 1 < len(history) else float("inf")
            for job, row in answer["jobs"].items():
                for attempt in row["attempts"]:
                    here = any(piece["node"] == name for piece in attempt["placement"])
                    if here and change["state"] != "ready" and change["at"] < attempt["started"] < until:
                        yield f"{job}: started on {name} while it was {change['state']}"


def words(answer: Answer) -> dict[str, Any]:
    """What the lines of a file's `expect` may say."""
    jobs = answer["jobs"]

    def reason(job: str, at: float) -> str | None:
        return next(
            (wait["reason"] for wait in jobs[job]["waits"] if wait["from"] <= at < (wait["to"] or float("inf"))), None
        )

    def where(job: str, attempt: int = 1) -> list[str]:
        return [piece["node"] for piece in jobs[job]["attempts"][attempt - 1]["placement"]]

    def pause(job: str, attempt: int) -> float:
        tries = jobs[job]["attempts"]
        return float(tries[attempt]["started"] - tries[attempt - 1]["ended"])

    return {
        **answer,
        "reason": reason,
        "where": where,
        "pause": pause,
        "piece": lambda job: jobs[job]["attempts"][0]["placement"][0],
        "ends": lambda job: [attempt["end"] for attempt in jobs[job]["attempts"]],
    }
