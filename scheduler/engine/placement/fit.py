"""A shape prepared for one inventory: which nodes could ever take each of its groups, and how much it needs there."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from quotas.limits import ANY_MODEL, NANO
from scheduler.engine.cluster import Inventory
from scheduler.engine.demand import Group, Kind, Shape, Topology
from scheduler.engine.reasons import Hold


def slice_mib(group: Group, headroom: float) -> int:
    """MiB that each card gives to a replica of ``group``, head room included; 0 for whole cards."""
    if not group.share:
        return 0
    factor = 1 + headroom if group.kind is Kind.INFERENCE else 1.0
    return math.ceil(group.vram_mib * factor - 1e-9)


def eligible(inventory: Inventory, group: Group, mib: int) -> int:
    """The nodes that match model, memory (a slice of ``mib``, or whole cards), labels and taints of a group."""
    return (
        inventory.of_model(group.models)
        & inventory.with_memory(group, mib)
        & inventory.with_labels(group.selector)
        & inventory.tolerated(group.tolerations)
    )


@dataclass(frozen=True, slots=True)
class GroupFit:
    """One group: ``nodes`` that match model, memory, labels and taints, whatever their state.

    ``mib`` is 0 for whole cards. ``packs`` is whether it asks for less than half a node: see the hybrid strategy.
    """

    group: Group
    mib: int
    nodes: int
    packs: bool


class Fit:
    """A shape against an inventory. ``nodes`` are those of any group, ``groups`` the most demanding first."""

    def __init__(self, shape: Shape, inventory: Inventory, headroom: float) -> None:
        self.shape = shape
        self.headroom = headroom
        self.verdict: tuple[int, Hold | None] | None = None  # kept by Feasibility, with the health it holds for
        self.inventory = inventory
        self.solo = shape.replicas == 1
        groups = [self._group(group, headroom) for group in shape.groups]
        self.groups = tuple(sorted(groups, key=lambda each: (not each.group.share, each.group.gpus), reverse=True))
        self.slices = any(each.mib for each in self.groups)
        self.mixed = len(shape.groups) > 1
        self.cards = shape.total_gpus
        self.avoided = inventory.named(shape.avoided)
        self.excluded = inventory.named(shape.excluded)
        self.nodes = 0
        for each in self.groups:
            self.nodes |= each.nodes

    def _group(self, group: Group, headroom: float) -> GroupFit:
        inventory, mib = self.inventory, slice_mib(group, headroom)
        nodes = eligible(inventory, group, mib)
        beyond_twice = min(2 * group.gpus, inventory.width) + 1
        return GroupFit(group, mib, nodes, packs=self.solo and bool(nodes & inventory.at_least[beyond_twice]))

    @cached_property
    def anywhere(self) -> "Fit":
        """The same job without its topology."""
        return Fit(replace(self.shape, topology=Topology()), self.inventory, self.headroom)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The models of the nodes that could take it, by the lowest name of their nodes."""
        return self.inventory.models_of(self.nodes)

    def needs(self, model: str, account: str = ANY_MODEL) -> int:
        """Nano-GPU the job adds to ``account`` (``model`` or ``"*"``) when all that may lie on ``model`` does.

        A slice counts by its share of the model's smallest card. A group that cannot lie on ``model`` counts for
        ``"*"`` alone, at the most that it may need elsewhere.
        """
        if self.mixed:
            return self._needs_mixed[model][account == ANY_MODEL]
        return self.cards * NANO if not self.slices else self._needs_slices(model)

    @cached_property
    def _needs_mixed(self) -> dict[str, tuple[int, int]]:
        smallest = self.inventory.smallest_card
        needs = dict.fromkeys(smallest, (0, 0))
        for each in self.groups:
            models = self.inventory.models_of(each.nodes) or each.group.models or tuple(smallest)
            amounts = {
                model: each.group.replicas * replica_nano(each.group.gpus, each.mib, smallest[model])
                for model in models
                if model in smallest
            }
            most = max(amounts.values(), default=each.group.total_gpus * NANO)
            for model, (here, in_all) in needs.items():
                needs[model] = (here + amounts.get(model, 0), in_all + amounts.get(model, most))
        return needs

    def _needs_slices(self, model: str) -> int:
        vram = self.inventory.smallest_card[model]
        return sum(each.group.replicas * replica_nano(each.group.gpus, each.mib, vram) for each in self.groups)


def replica_nano(gpus: int, mib: int, vram_mib: int) -> int:
    """Nano-GPU that a replica counts for: its cards, or the share that its slices are of their memory."""
    return gpus * (mib * NANO // vram_mib) if mib else gpus * NANO
