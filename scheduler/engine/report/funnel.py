"""The funnel: how many nodes and cards each gate leaves to a waiting job, and which nodes it takes away."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from scheduler.engine.cluster import Inventory, members
from scheduler.engine.demand import Topology
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, GroupFit
from scheduler.engine.snapshot import Lane, Snapshot

NAMED = 3

_Cards = Callable[[int], int]


class Gate(StrEnum):
    """The gates in order; each leaves some of the nodes that the one before has left."""

    MODEL = "model"
    HEALTHY = "healthy"
    LABELS = "labels"
    TAINTS = "taints"
    EXCLUDED = "excluded"
    HOST = "host"
    FREE = "free"
    MEMORY = "memory"
    TOGETHER = "together"
    TOPOLOGY = "topology"


class Step(NamedTuple):
    """What is left after a gate.

    ``cards`` are those on ``nodes`` nodes that count at this gate: all of them; from HEALTHY on the working ones; from
    FREE on those with anything free; from MEMORY on those with enough; from TOGETHER on those that whole replicas
    would take. ``most`` is the largest such number on one node. ``lost`` nodes went at this gate, the first of them
    ``named``.
    """

    gate: Gate
    nodes: int
    cards: int
    most: int
    lost: int
    named: tuple[str, ...]


class Funnel(NamedTuple):
    """The funnel of one group of a job: ``replicas`` × ``gpus`` are needed, ``fit`` replicas fit at the end."""

    group: str
    replicas: int
    gpus: int
    fit: int
    steps: tuple[Step, ...]


def funnels(snapshot: Snapshot, lane: Lane) -> tuple[Funnel, ...]:
    """A funnel for each group of a lane's jobs, in the order of the job, as things stand in the snapshot.

    Each group is looked at as if it were alone. Quota, reservations and the line are no gates of hardware: the job's
    reason tells of them.
    """
    by_name = {each.group.name: each for each in lane.fit.groups}
    return tuple(_Sieve(snapshot.ledger, lane.fit, by_name[group.name]).funnel() for group in lane.shape.groups)


class _Sieve:
    """One group against one state of the cluster."""

    def __init__(self, ledger: Ledger, fit: Fit, each: GroupFit) -> None:
        self._ledger = ledger
        self._inventory: Inventory = ledger.inventory
        self._fit = fit
        self._each = each
        self._steps: list[Step] = []
        self._nodes = self._inventory.all
        self._room: dict[int, int] = {}

    def funnel(self) -> Funnel:
        """All steps."""
        inventory, group = self._inventory, self._each.group
        self._nodes = inventory.of_model(group.models)
        self._note(Gate.MODEL, self._nodes, lambda node: inventory.nodes[node].gpus)
        self._note(Gate.HEALTHY, self._ledger.ready & self._that(lambda node: self._working(node) > 0), self._working)
        self._note(Gate.LABELS, inventory.with_labels(group.selector), self._working)
        self._note(Gate.TAINTS, inventory.tolerated(group.tolerations), self._working)
        self._note(Gate.EXCLUDED, ~self._fit.excluded, self._working)
        self._note(Gate.HOST, self._that(self._host), self._working)
        self._note(Gate.FREE, self._that(lambda node: self._free(node) > 0), self._free)
        self._note(Gate.MEMORY, self._that(lambda node: self._enough(node) > 0), self._enough)
        self._room = {node: room for node in members(self._nodes) if (room := self._replicas(node))}
        self._note(Gate.TOGETHER, self._that(lambda node: node in self._room), self._taken)
        fitting = sum(self._room.values())
        if self._fit.shape.topology != Topology():
            domain, fitting = self._best_domain()
            self._note(Gate.TOPOLOGY, domain, self._taken)
        return Funnel(group.name, group.replicas, group.gpus, min(fitting, group.replicas), tuple(self._steps))

    def _note(self, gate: Gate, leaves: int, cards: _Cards) -> None:
        lost = self._nodes & ~leaves
        self._nodes &= leaves
        counts = [cards(node) for node in members(self._nodes)]
        names = tuple(self._inventory.names[node] for node, _ in zip(members(lost), range(NAMED), strict=False))
        self._steps.append(Step(gate, len(counts), sum(counts), max(counts, default=0), lost.bit_count(), names))

    def _that(self, test: _Cards) -> int:
        found = 0
        for node in members(self._nodes):
            if test(node):
                found |= self._inventory.bits[node]
        return found

    def _working(self, node: int) -> int:
        return self._ledger.working[node].bit_count()

    def _host(self, node: int) -> bool:
        group, ledger = self._each.group, self._ledger
        return ledger.cpus[node] >= group.cpus_milli and ledger.memory[node] >= group.memory_mib

    def _lefts(self, node: int) -> Iterator[int]:
        """MiB left on each card of a node that has any."""
        for gpu in range(self._inventory.nodes[node].gpus):
            left = self._ledger.slice_left(node, gpu)
            if left > 0:
                yield left

    def _free(self, node: int) -> int:
        """Whole free cards; with slices those with anything left."""
        return sum(1 for _ in self._lefts(node)) if self._each.mib else self._ledger.free[node].bit_count()

    def _enough(self, node: int) -> int:
        """Those with the memory that is asked for."""
        if self._each.mib:
            return sum(left >= self._each.mib for left in self._lefts(node))
        return self._free(node) if self._inventory.nodes[node].vram_mib >= self._each.group.vram_mib else 0

    def _replicas(self, node: int) -> int:
        """Whole replicas that the node would take."""
        group, ledger = self._each.group, self._ledger
        if self._each.mib:
            slots = [left // self._each.mib for left in self._lefts(node)]
            room = 0
            while sum(min(slot, room + 1) for slot in slots) >= (room + 1) * group.gpus and room < group.replicas:
                room += 1
        else:
            room = ledger.free[node].bit_count() // group.gpus if group.gpus else group.replicas
        if group.cpus_milli:
            room = min(room, ledger.cpus[node] // group.cpus_milli)
        if group.memory_mib:
            room = min(room, ledger.memory[node] // group.memory_mib)
        return max(0, room)

    def _taken(self, node: int) -> int:
        """Cards that whole replicas would take."""
        return self._room.get(node, 0) * self._each.group.gpus

    def _best_domain(self) -> tuple[int, int]:
        """The nodes that the topology leaves, and the replicas that fit there.

        For ``require`` those of the roomiest domain; for ``spread`` all, but of each domain only its share counts.
        """
        topology = self._fit.shape.topology
        if topology.require is not None:
            domains = self._inventory.domains(topology.require)
            best = max(domains, key=self._room_of, default=0)
            return best, self._room_of(best)
        if topology.spread is not None and topology.max_per_domain is not None:
            most = max(1, int(topology.max_per_domain * self._fit.shape.replicas + 1e-9))
            rooms = [min(most, self._room_of(domain)) for domain in self._inventory.domains(topology.spread)]
            return self._inventory.all, sum(rooms)
        return self._inventory.all, sum(self._room.values())

    def _room_of(self, domain: int) -> int:
        return sum(room for node, room in self._room.items() if domain >> node & 1)
