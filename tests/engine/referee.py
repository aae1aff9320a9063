"""The rules once more, written for clearness alone: the properties measure the engine against them.

Nothing here is shared with the engine but its values. Sets are sets, shares are counted anew each time, and whether a
job fits is answered by trying everything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import ceil

from quotas.limits import NANO, QuotaTree
from scheduler.engine.cluster import CardState, Node, NodeState
from scheduler.engine.demand import Group, Kind, PendingJob
from scheduler.engine.plan import Piece

Use = Mapping[str, int]
"""Nano-GPU per model."""


@dataclass
class State:
    """What is so at one moment: hardware with its health, the jobs on it, teams."""

    nodes: dict[str, Node]
    tree: QuotaTree
    headroom: float = 0.0
    node_states: dict[str, NodeState] = field(default_factory=dict)
    card_states: dict[tuple[str, int], CardState] = field(default_factory=dict)
    running: dict[str, tuple[PendingJob, tuple[Piece, ...], Use]] = field(default_factory=dict)

    def emptied(self, *, whole: bool = False) -> "State":
        """The same without jobs, and with ``whole`` in perfect health."""
        return State(
            self.nodes, self.tree, self.headroom, {} if whole else self.node_states, {} if whole else self.card_states
        )

    def ready(self, name: str) -> bool:
        return self.node_states.get(name, NodeState.READY) is NodeState.READY

    def works(self, name: str, gpu: int) -> bool:
        return self.card_states.get((name, gpu), CardState.OK) is CardState.OK

    def left_on(self, name: str) -> "Left":
        """What new work may have of a node."""
        node = self.nodes[name]
        left = Left([node.usable_mib] * node.gpus, [True] * node.gpus, node.cpus_milli, node.memory_mib)
        for job, pieces, _ in self.running.values():
            for piece in pieces:
                if piece.node == name:
                    left.take(group_of(job, piece.group), piece.gpus, piece.mib)
        for gpu in range(node.gpus):
            if not self.works(name, gpu):
                left.mib[gpu], left.whole[gpu] = 0, False
        return left

    def use_of(self, pieces: Iterable[Piece]) -> dict[str, int]:
        """What pieces count for."""
        use: dict[str, int] = {}
        for piece in pieces:
            node = self.nodes[piece.node]
            each = piece.mib * NANO // node.vram_mib if piece.mib else NANO
            use[node.model] = use.get(node.model, 0) + each * len(piece.gpus)
        return use

    def used(self, team: str, model: str) -> int:
        """What a team and those below it hold of a model, or of all (``*``)."""
        return sum(
            amount
            for job, _, use in self.running.values()
            for of, amount in use.items()
            if team in lineage(self.tree, job.team) and model in (of, "*")
        )

    def headroom_of(self, team: str, model: str) -> int:
        """The least that any limit of a team or those above it leaves on a model."""
        cards = {"*": 0}
        for node in self.nodes.values():
            cards[node.model] = cards.get(node.model, 0) + node.gpus
            cards["*"] += node.gpus
        return min(
            (
                quota.limit.nano(cards.get(quota.model, 0)) - self.used(name, quota.model)
                for name in lineage(self.tree, team)
                for quota in self.tree.teams[self.tree.index[name]].quotas
                if quota.model in (model, "*") and quota.limit is not None
            ),
            default=1 << 60,
        )


@dataclass
class Left:
    """Of one node: MiB left of each card, which are wholly free, CPUs and host memory."""

    mib: list[int]
    whole: list[bool]
    cpus_milli: int
    memory_mib: int

    def take(self, group: Group, gpus: tuple[int, ...], mib: int) -> None:
        self.cpus_milli -= group.cpus_milli
        self.memory_mib -= group.memory_mib
        for gpu in gpus:
            if gpu < len(self.mib):
                self.mib[gpu] = self.mib[gpu] - mib if mib else 0
                self.whole[gpu] = False

    def takes(self, group: Group, gpus: tuple[int, ...], mib: int) -> bool:
        if group.cpus_milli > self.cpus_milli or group.memory_mib > self.memory_mib:
            return False
        return all(self.mib[gpu] >= mib if mib else self.whole[gpu] for gpu in gpus)

    def most(self, group: Group, mib: int, wanted: int) -> int:
        """How many replicas a node takes, ``wanted`` at most: every choice of cards is tried."""
        if not wanted:
            return 0
        best = 0
        for gpus in combinations(range(len(self.mib)), group.gpus):
            if self.takes(group, gpus, mib):
                rest = Left(self.mib[:], self.whole[:], self.cpus_milli, self.memory_mib)
                rest.take(group, gpus, mib)
                best = max(best, 1 + rest.most(group, mib, wanted - 1))
                if best == wanted or not mib:
                    return best
        return best


def lineage(tree: QuotaTree, team: str | None) -> list[str]:
    """A team and those above it."""
    names: list[str] = []
    while team is not None:
        names.append(team)
        team = tree.teams[tree.index[team]].parent
    return names


def group_of(job: PendingJob, name: str) -> Group:
    return next(group for group in job.shape.groups if group.name == name)


def slice_of(group: Group, headroom: float) -> int:
    """MiB of each card with head room; 0 for whole cards."""
    if not group.share:
        return 0
    return ceil(group.vram_mib * (1 + headroom) - 1e-9) if group.kind is Kind.INFERENCE else group.vram_mib


def has_model(group: Group, node: Node, headroom: float) -> bool:
    """Whether a node has the model, and its cards the memory, that a group asks for."""
    memory = node.usable_mib >= slice_of(group, headroom) if group.share else node.vram_mib >= group.vram_mib
    return memory and (not group.models or node.model in group.models)


def matches(group: Group, node: Node, headroom: float) -> bool:
    """Whether a node is one that a group may lie on, whatever is on it."""
    labelled = all(pair in node.labels for pair in group.selector)
    return has_model(group, node, headroom) and labelled and all(taint in group.tolerations for taint in node.taints)


def fits(state: State, job: PendingJob, allowed: Callable[[Node], bool]) -> bool:
    """Whether a job of one group fits on the ready nodes that ``allowed`` lets it use, found by trying everything."""
    (group,) = job.shape.groups
    mib = slice_of(group, state.headroom)
    missing = group.replicas
    for name, node in state.nodes.items():
        if state.ready(name) and name not in job.shape.excluded and allowed(node):
            missing -= state.left_on(name).most(group, mib, missing)
    return missing <= 0


def barred(state: State, job: PendingJob, node: Node) -> bool:
    """Whether limits keep a job of one group off a node's model, all of it being there."""
    (group,) = job.shape.groups
    mib = slice_of(group, state.headroom)
    smallest = min(other.vram_mib for other in state.nodes.values() if other.model == node.model)
    need = group.total_gpus * (mib * NANO // smallest if mib else NANO)
    return need > state.headroom_of(job.team, node.model)


def check_start(state: State, job: PendingJob, pieces: tuple[Piece, ...]) -> None:
    """Every rule that a start has to keep. Raises AssertionError."""
    asked = sorted((group.name, replica) for group in job.shape.groups for replica in range(group.replicas))
    assert sorted((piece.group, piece.replica) for piece in pieces) == asked, "a gang is whole"
    left = {piece.node: state.left_on(piece.node) for piece in pieces}
    for piece in pieces:
        group, node = group_of(job, piece.group), state.nodes[piece.node]
        assert len(piece.gpus) == len(set(piece.gpus)) == group.gpus
        assert piece.mib == slice_of(group, state.headroom)
        assert state.ready(piece.node), "only a ready node takes work"
        assert all(state.works(piece.node, gpu) for gpu in piece.gpus), "only a working card does"
        assert matches(group, node, state.headroom), "model, memory, labels, taints"
        assert piece.node not in job.shape.excluded
        assert left[piece.node].takes(group, piece.gpus, piece.mib), "no card twice, no memory, CPU or GiB too much"
        left[piece.node].take(group, piece.gpus, piece.mib)
    for model, amount in state.use_of(pieces).items():
        assert amount <= state.headroom_of(job.team, model), "the limits of the team and of each above it"
    total = sum(state.use_of(pieces).values())
    assert total <= state.headroom_of(job.team, "*"), "and those over all models"
