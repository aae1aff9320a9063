"""What a scenario file says will happen, written into a driver's agenda: arrivals, edits, and for a virtual cluster
nodes that join and hardware that breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from scheduler.backends.base import CardReport, NodeReport
from scheduler.backends.simulated import SimulatedBackend
from scheduler.drive.agenda import Rank
from scheduler.drive.driver import Driver
from scheduler.drive.records import JobRecord
from scheduler.drive.scenario import (
    CancelEdit,
    Edit,
    Fault,
    FaultKind,
    NodeAction,
    NodeEdit,
    NodeSpec,
    PolicyEdit,
    QuotaEdit,
    Scenario,
    changed,
    with_quota,
)
from scheduler.engine.cluster import Node

PERSON = "admin"
"""By whose hand the edits of a file are made."""


def schedule(driver: Driver, scenario: Scenario) -> None:
    """Write arrivals and edits into the agenda, those of nodes left out: they are for virtual clusters."""
    for sequence, job in enumerate(scenario.jobs):
        record = JobRecord(job.spec, job.profile, sequence, submitted=job.at)
        driver.expect(record)
        driver.agenda.add(job.at, Rank.ARRIVAL, partial(driver.submit, record))
    for edit in scenario.edits:
        if not isinstance(edit, NodeEdit):
            driver.agenda.add(edit.at, Rank.EDIT, partial(_edit, driver, edit))


def _edit(driver: Driver, edit: Edit, now: float) -> None:
    """A person changes rules or numbers, or cancels jobs."""
    if isinstance(edit, PolicyEdit):
        driver.roster.set_policy(changed(driver.roster.policy, edit.change))
    elif isinstance(edit, QuotaEdit):
        driver.roster.set_tree(with_quota(driver.roster.tree, edit))
        driver.meters.quotas_changed(now)
    elif isinstance(edit, CancelEdit):
        for name in edit.jobs:
            driver.cancel(driver.jobs[name], "cancelled", now)
    driver.stale = True


class World:
    """The virtual cluster of a scenario: what its file does to nodes and cards."""

    def __init__(self, driver: Driver, backend: SimulatedBackend) -> None:
        self._driver = driver
        self._backend = backend
        self._actions: Mapping[NodeAction, Callable[[str, float], None]] = {
            NodeAction.CORDON: self._cordon,
            NodeAction.UNCORDON: self._uncordon,
            NodeAction.DRAIN: self._drain,
            NodeAction.REMOVE_NODE: self._remove,
        }
        # A kind of fault that is not here has no effect yet; `not_yet` tells whoever plays the file.
        self._faults: Mapping[FaultKind, Callable[[Fault, float], None]] = {FaultKind.NODE_DOWN: self._node_down}

    def schedule(self, scenario: Scenario) -> None:
        """Write into the agenda which nodes join, what people do to nodes, and what breaks."""
        agenda = self._driver.agenda
        joins: dict[float, list[NodeSpec]] = {}
        for spec in scenario.nodes:
            if spec.at > 0.0:
                joins.setdefault(spec.at, []).append(spec)
        for at, specs in joins.items():
            agenda.add(at, Rank.JOIN, partial(self._join, specs))
        for edit in scenario.edits:
            if isinstance(edit, NodeEdit):
                agenda.add(edit.at, Rank.EDIT, partial(self._act, edit))
            elif isinstance(edit, PolicyEdit):
                agenda.add(edit.at, Rank.EDIT, self._change_delays)
        for fault in scenario.faults:
            breaks = self._faults.get(fault.kind)
            if breaks is not None:
                agenda.add(fault.at, Rank.FAULT, partial(breaks, fault))

    def _join(self, specs: list[NodeSpec], now: float) -> None:
        for spec in specs:
            self._backend.add_node(report_of(spec))
        self._driver.hardware.join([node_of(spec) for spec in specs], now)
        self._driver.stale = True

    def _act(self, edit: NodeEdit, now: float) -> None:
        self._actions[edit.action](edit.node, now)
        self._driver.stale = True

    def _cordon(self, node: str, now: float) -> None:
        self._driver.hardware.cordon(node, now, by=PERSON, why="cordoned")

    def _uncordon(self, node: str, now: float) -> None:
        self._driver.hardware.uncordon(node, now, by=PERSON, why="uncordoned")

    def _drain(self, node: str, now: float) -> None:
        self._driver.hardware.drain(node, now, by=PERSON, why="drained")
        self._driver.evict(node, f"{node} is drained", now)

    def _remove(self, node: str, now: float) -> None:
        self._backend.remove_node(node)
        self._driver.observe()  # its jobs are lost: their cards are given back while the node is still known
        self._driver.hardware.remove(node, now, by=PERSON, why="removed")

    def _node_down(self, fault: Fault, now: float) -> None:
        self._backend.node_down(fault.node)
        if fault.length is not None:
            back = now + fault.length
            self._driver.agenda.add(back, Rank.FAULT, lambda _: self._backend.node_up(fault.node))

    def _change_delays(self, now: float) -> None:
        policy = self._driver.roster.policy
        self._backend.launch_delay, self._backend.stop_delay = policy.launch_delay, policy.stop_delay


def node_of(spec: NodeSpec) -> Node:
    """A node of a file as the engine knows it."""
    return Node(
        name=spec.name,
        gpus=spec.gpus,
        model=spec.model,
        vram_mib=spec.vram_mib,
        reserve_mib=spec.reserve_mib,
        cpus_milli=spec.cpus_milli,
        memory_mib=spec.memory_mib,
        rack=spec.rack,
        switch=spec.switch,
        nvlink=spec.nvlink,
        labels=spec.labels,
        taints=spec.taints,
    )


def report_of(spec: NodeSpec) -> NodeReport:
    """A node of a file as the simulated backend reports it."""
    cards = tuple(
        CardReport(uuid=f"GPU-{spec.name}-{index}", index=index, memory_mib=spec.vram_mib, virtual=True)
        for index in range(spec.gpus)
    )
    return NodeReport(
        name=spec.name,
        model=spec.model,
        gpus=cards,
        cpus=spec.cpus_milli // 1000,
        memory_mib=spec.memory_mib,
        labels=dict(spec.labels),
        taints=spec.taints,
        rack=spec.rack,
        switch=spec.switch,
        nvlink=spec.nvlink,
    )
