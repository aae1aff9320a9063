"""Whether a job could run at all, on empty hardware and on what is in service: if not, no end of others helps.

The gates are asked in the order of the table of reasons, each with those before it open:
model and memory, size (``impossible``), labels, taints, nodes and cards out of service, nodes it may not use again.
"""

from dataclasses import replace
from functools import lru_cache

from quotas.limits import ANY_MODEL, label, plural
from scheduler.engine.cluster import Inventory, members
from scheduler.engine.demand import MIB_PER_GIB, Group, Shape, Topology
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.binpack import Binpack
from scheduler.engine.placement.fit import Fit
from scheduler.engine.placement.gang import place, undo
from scheduler.engine.reasons import Hold, Reason, hold, listed

_BINPACK = Binpack()


class Feasibility:
    """Answers for one state of health. The answer for a fit is kept on it until the health changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._in_service: Ledger | None = None

    def hold_of(self, fit: Fit) -> Hold | None:
        """Why the job could not run even if nothing else did; None if it could."""
        if fit.verdict is None or fit.verdict[0] != self._ledger.health:
            fit.verdict = (self._ledger.health, self._ask(fit))
        return fit.verdict[1]

    def holds(self, fit: Fit, nodes: int) -> bool:
        """Whether these of its nodes, as far as they are in service, hold the job when nothing else runs."""
        if self.hold_of(fit) is not None:
            return False
        return not fit.nodes & ~fit.excluded & ~nodes or could_hold(self._serving(), fit, nodes)

    def could_ever(self, fit: Fit, nodes: int) -> bool:
        """Whether these of its nodes hold the job when all of them are whole and empty."""
        return could_hold(_empty(fit.inventory), fit, nodes)

    def _ask(self, fit: Fit) -> Hold | None:
        if could_hold(self._serving(), fit, fit.nodes):
            return None
        return _by_hardware(fit) or self._by_service(fit)

    def _serving(self) -> Ledger:
        """The hardware in service, with nothing on it."""
        if self._in_service is None:
            self._in_service = self._ledger.emptied()
        return self._in_service

    def _by_service(self, fit: Fit) -> Hold:
        """The hardware would do, what is in service does not."""
        serving, inventory = self._serving(), fit.inventory
        if not could_hold(serving, fit.anywhere, fit.nodes):
            again = Fit(replace(fit.anywhere.shape, excluded=frozenset()), inventory, fit.headroom)
            return _excluded(fit) if could_hold(serving, again, fit.nodes) else self.out_of_service(fit, fit.nodes)
        level = fit.shape.topology.require or fit.shape.topology.spread
        template = "no choice of the nodes in service that fit keeps to its topology by {level}"
        return hold(Reason.TOPOLOGY, template, level=str(level))

    def out_of_service(self, fit: Fit, nodes: int) -> Hold:
        """What is missing of the nodes that a job may use."""
        serving, inventory = self._serving(), fit.inventory
        gone = nodes & ~serving.ready
        cards = sum(inventory.nodes[node].gpus - serving.working[node].bit_count() for node in members(nodes & ~gone))
        if not gone:
            return hold(Reason.UNHEALTHY, "cards that fit, but are out of service: {cards}", cards=cards)
        facts = {"gone": gone.bit_count(), "total": nodes.bit_count(), "names": _names(inventory, gone)}
        template = "nodes that fit, but are out of service: {gone} of {total} ({names})"
        if not cards:
            return hold(Reason.UNHEALTHY, template, **facts)
        template = (
            "nodes that fit, but are out of service: {gone} of {total} ({names}), and besides them cards: {cards}"
        )
        return hold(Reason.UNHEALTHY, template, **facts, cards=cards)


def could_hold(ledger: Ledger, fit: Fit, nodes: int) -> bool:
    """Whether the ready nodes among ``nodes`` hold the job on a ledger that nobody uses."""
    if not all(each.nodes & nodes for each in fit.groups):
        return False
    if _obviously(ledger, fit, nodes):
        return True
    placed = place(ledger, fit, _BINPACK, nodes)
    if placed is None:
        return False
    undo(ledger, placed)
    return True


def _obviously(ledger: Ledger, fit: Fit, nodes: int) -> bool:
    """Whether a job of one group fits with a node of its own for each replica: enough for most, and cheap to see."""
    if len(fit.groups) > 1 or fit.shape.topology != Topology():
        return False
    each = fit.groups[0]
    cpus, memory = ledger.inventory.weakest_host
    if each.group.cpus_milli > cpus or each.group.memory_mib > memory:
        return False
    able = 0
    for having in ledger.by_free[each.group.gpus :]:
        able |= having
    return (able & each.nodes & nodes & ledger.ready & ~fit.excluded).bit_count() >= each.group.replicas


@lru_cache(maxsize=4)
def _empty(inventory: Inventory) -> Ledger:
    return Ledger(inventory)


def _by_hardware(fit: Fit) -> Hold | None:
    """The first gate that blocks on hardware that is whole and empty; None if it fits there."""
    inventory, empty = fit.inventory, _empty(fit.inventory)
    taints = tuple(sorted({taint for node in inventory.nodes for taint in node.taints}))
    loose = Fit(_relaxed(fit.shape, selector=(), tolerations=taints), inventory, fit.headroom)
    if not all(each.nodes for each in loose.groups):
        return _no_model(loose)
    if not could_hold(empty, loose.anywhere, inventory.all):
        return _too_much(loose)
    if not could_hold(empty, loose, inventory.all):
        return _too_far_apart(loose)
    labelled = Fit(_relaxed(fit.anywhere.shape, tolerations=taints), inventory, fit.headroom)
    if not could_hold(empty, labelled, inventory.all):
        return _no_labels(labelled, loose)
    tolerated = Fit(_relaxed(fit.anywhere.shape), inventory, fit.headroom)
    return None if could_hold(empty, tolerated, inventory.all) else _tainted(tolerated, labelled)


def _relaxed(shape: Shape, **changes: tuple[object, ...]) -> Shape:
    """A shape that may use any node again, its groups changed."""
    groups = tuple(replace(group, **changes) for group in shape.groups)  # type: ignore[arg-type]
    return replace(shape, groups=groups, excluded=frozenset(), avoided=frozenset())


def _excluded(fit: Fit) -> Hold:
    names = _names(fit.inventory, fit.excluded & fit.nodes)
    return hold(Reason.EXCLUDED, "may not use {names} again, and no other node could hold it", names=names)


def _no_labels(labelled: Fit, loose: Fit) -> Hold:
    wanted = sorted({f"{key}={value}" for each in labelled.groups for key, value in each.group.selector})
    return hold(
        Reason.LABELS, "nodes with {what} and the labels {labels}: {having} of {total}",
        having=labelled.nodes.bit_count(), total=loose.nodes.bit_count(), what=what(loose.shape),
        labels=", ".join(wanted),
    )  # fmt: skip


def _tainted(tolerated: Fit, labelled: Fit) -> Hold:
    shut = labelled.nodes & ~tolerated.nodes
    found = sorted({taint for node in members(shut) for taint in labelled.inventory.nodes[node].taints})
    return hold(
        Reason.TAINTS, "nodes that fit, but with taints it does not tolerate ({taints}): {shut} of {total}",
        shut=shut.bit_count(), total=labelled.nodes.bit_count(), taints=", ".join(found),
    )  # fmt: skip


def _too_far_apart(loose: Fit) -> Hold:
    """It would fit, but never as its topology demands."""
    topology = loose.shape.topology
    if topology.require is not None:
        most = max(_empty(loose.inventory).free_count(domain) for domain in loose.inventory.domains(topology.require))
        return hold(
            Reason.IMPOSSIBLE, "needs {need} {what} in one {level}, the largest has {most}",
            need=loose.cards, what=what(loose.shape), level=str(topology.require), most=most,
        )  # fmt: skip
    return hold(
        Reason.IMPOSSIBLE, "there are too few domains by {level} to spread {replicas} replicas over",
        level=str(topology.spread), replicas=loose.shape.replicas,
    )  # fmt: skip


def _no_model(loose: Fit) -> Hold:
    """No node has the model, or none of that model has the memory, that some group asks for."""
    each = next(each for each in loose.groups if not each.nodes)
    having = loose.inventory.of_model(each.group.models)
    if not having:
        return hold(Reason.MODEL, "no node has {what}", what=what_of(each.group))
    column = loose.inventory.usable_mib if each.mib else loose.inventory.vram_mib
    most = max(int(column[node]) for node in members(having))
    return hold(
        Reason.MODEL, "needs {need:g} GiB on each card, no {what} has more than {most:g} GiB for it",
        need=_gib(each.mib or each.group.vram_mib), what=what_of(each.group, 1), most=_gib(most),
    )  # fmt: skip


def _too_much(loose: Fit) -> Hold:
    """The model exists; there is not enough of it, or no node is large enough."""
    inventory = loose.inventory
    for each in loose.groups:
        group, nodes = each.group, [inventory.nodes[node] for node in members(each.nodes)]
        for need, largest, unit in (
            (group.gpus, max(node.gpus for node in nodes), what_of(group, group.gpus)),
            (
                group.cpus_milli / 1000,
                max(node.cpus_milli for node in nodes) / 1000,
                plural("CPU", group.cpus_milli / 1000),
            ),
            (_gib(group.memory_mib), _gib(max(node.memory_mib for node in nodes)), "GiB of host memory"),
        ):
            if need > largest:
                return hold(
                    Reason.IMPOSSIBLE, "one replica needs {need:g} {unit}, the largest node has {largest:g}",
                    need=need, unit=unit, largest=largest,
                )  # fmt: skip
    need, have = loose.shape.total_gpus, sum(inventory.nodes[node].gpus for node in members(loose.nodes))
    if need > have and not any(each.mib for each in loose.groups):
        return hold(
            Reason.IMPOSSIBLE, "needs {need} {what}{parts}, the cluster has {have}",
            need=need, what=what(loose.shape, need), parts=parts_in_brackets(loose.shape), have=have,
        )  # fmt: skip
    return hold(
        Reason.IMPOSSIBLE, "does not fit on the nodes with {what}, even with all of them empty", what=what(loose.shape)
    )


def what_of(group: Group, count: float | None = None) -> str:
    """How the cards of a group are named in a sentence; ``count``: behind that number."""
    return " or ".join(group.models) if group.models else label(ANY_MODEL, count)


def what(shape: Shape, count: float | None = None) -> str:
    """How the cards of a job are named in a sentence; ``count``: behind that number."""
    return ", ".join(dict.fromkeys(what_of(group, count) for group in shape.groups))


def parts(shape: Shape) -> str:
    """``16 + 8`` for a job of two groups; empty for one group."""
    return " + ".join(str(group.total_gpus) for group in shape.groups) if len(shape.groups) > 1 else ""


def parts_in_brackets(shape: Shape) -> str:
    """The same to follow a number: `` (16 + 8)``, or nothing."""
    return f" ({parts(shape)})" if len(shape.groups) > 1 else ""


def _gib(mib: int) -> float:
    return round(mib / MIB_PER_GIB, 3)


def _names(inventory: Inventory, nodes: int) -> str:
    return listed([inventory.names[node] for node in members(nodes)])
