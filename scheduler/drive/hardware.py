"""The nodes of a drive: who took each out of service and why, and the state that follows for the roster."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.drive.meters import Meters
from scheduler.drive.records import NodeChange
from scheduler.engine.cluster import Node, NodeState
from scheduler.engine.roster import Roster

REMOVED = "removed"


@dataclass(slots=True)
class NodeRecord:
    """What is known of a node. The strongest of its marks is its state: down, then draining, then cordoned."""

    present: bool = False
    removed: bool = False
    cordoned: bool = False
    draining: bool = False
    down: bool = False
    history: list[NodeChange] = field(default_factory=list)

    @property
    def state(self) -> str:
        """What people see; a removed node stays one."""
        return REMOVED if self.removed else self.service

    @property
    def service(self) -> NodeState:
        """What the engine goes by."""
        if self.down:
            return NodeState.DOWN
        if self.draining:
            return NodeState.DRAINING
        return NodeState.CORDONED if self.cordoned else NodeState.READY


class Hardware:
    """Changes nodes in the roster and keeps their histories."""

    def __init__(self, roster: Roster, meters: Meters) -> None:
        self._roster = roster
        self._meters = meters
        self.nodes: dict[str, NodeRecord] = {name: NodeRecord(present=True) for name in roster.inventory.names}

    def join(self, nodes: list[Node], now: float) -> None:
        """Let nodes into the cluster, in the state in which people have already put them."""
        wanted = [node for node in nodes if not self._of(node.name).removed]
        self._roster.add_nodes(wanted)
        for node in wanted:
            record = self._of(node.name)
            record.present = True
            if record.service is not NodeState.READY:
                self._roster.set_node_state(node.name, record.service)
        self._meters.hardware_changed(now)

    def cordon(self, name: str, now: float, *, by: str, why: str) -> None:
        """Let a node take no new work."""
        self._of(name).cordoned = True
        self._changed(name, now, by=by, why=why)

    def drain(self, name: str, now: float, *, by: str, why: str) -> None:
        """Let a node take no new work; whoever calls this evicts its jobs."""
        self._of(name).draining = True
        self._changed(name, now, by=by, why=why)

    def uncordon(self, name: str, now: float, *, by: str, why: str) -> None:
        """Let a node take work again, unless something else is wrong with it."""
        record = self._of(name)
        record.cordoned = record.draining = False
        self._changed(name, now, by=by, why=why)

    def contact(self, name: str, now: float, *, lost: bool, why: str) -> None:
        """Contact with a node is lost, or there again."""
        self._of(name).down = lost
        self._changed(name, now, by="rota", why=why)

    def remove(self, name: str, now: float, *, by: str, why: str) -> None:
        """Forget a node for good."""
        record = self._of(name)
        if record.removed:
            return
        record.removed = True
        record.history.append(NodeChange(now, REMOVED, by, why))
        if record.present:
            record.present = False
            self._roster.remove_node(name)
            self._meters.hardware_changed(now)

    def _of(self, name: str) -> NodeRecord:
        return self.nodes.setdefault(name, NodeRecord())

    def _changed(self, name: str, now: float, *, by: str, why: str) -> None:
        record = self._of(name)
        before = record.history[-1].state if record.history else NodeState.READY
        if record.removed or record.service == before:
            return
        record.history.append(NodeChange(now, record.service, by, why))
        if record.present:
            self._roster.set_node_state(name, record.service)
            self._meters.hardware_changed(now)
