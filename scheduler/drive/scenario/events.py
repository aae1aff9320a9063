"""The ``faults`` and ``edits`` of a file: what happens to the hardware, and what people change, in between."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.reading import Reader, SpecError, duration, integer, list_of, name, nobody, number, one_of, record
from quotas.limits import QuotaTree, plural
from scheduler.drive.scenario.jobs import JobNames
from scheduler.drive.scenario.policy import changed, read_policy_change
from scheduler.drive.scenario.teams import check_models, check_promises, read_quotas
from scheduler.drive.scenario.values import (
    CancelEdit,
    Edit,
    Fault,
    FaultKind,
    NodeAction,
    NodeEdit,
    NodeSpec,
    PolicyEdit,
    QuotaEdit,
)
from scheduler.engine.policy import Policy

XID_MOST = 999
_OF_THE_NODE = frozenset({FaultKind.DRIVER_LOST, FaultKind.NODE_DOWN, FaultKind.TELEMETRY_LOST})
_OWN_KEY = {FaultKind.XID: "code", FaultKind.TEMP: "c"}
_FAULT = record(
    {
        "at": duration(),
        "node": name,
        "gpu": integer(0),
        "kind": one_of(FaultKind),
        "code": integer(1, XID_MOST),
        "c": number(0, 200),
        "for": duration(zero=False),
    },
    needs=("node", "kind"),
)
_EDIT = record(
    {
        "at": duration(),
        "policy": read_policy_change,
        "team": name,
        "quota": read_quotas,
        "cancel": name,
        **dict.fromkeys(NodeAction, name),
    },
    needs=("at",),
)


def _read_fault(value: object) -> Fault:
    values = _FAULT(value)
    kind: FaultKind = values["kind"]
    for owner, key in _OWN_KEY.items():
        if kind is owner and key not in values:
            raise SpecError(key, "is missing")
        if kind is not owner and key in values:
            raise SpecError(key, f"is only for kind {owner}")
    return Fault(
        at=values.get("at", 0.0),
        node=values["node"],
        kind=kind,
        gpu=values.get("gpu", None if kind in _OF_THE_NODE else 0),
        code=values.get("code"),
        celsius=values.get("c"),
        length=values.get("for"),
    )


read_faults: Reader[tuple[Fault, ...]] = list_of(_read_fault)
read_edits: Reader[tuple[dict[str, Any], ...]] = list_of(_EDIT)


def checked_faults(faults: Sequence[Fault], nodes: Mapping[str, NodeSpec]) -> tuple[Fault, ...]:
    """Return the faults in the order of time; refuse nodes and cards that do not exist."""
    for position, fault in enumerate(faults):
        node = nodes.get(fault.node)
        if node is None:
            raise SpecError(f"faults[{position}].node", nobody("node", fault.node, nodes))
        if fault.gpu is not None and fault.gpu >= node.gpus:
            raise SpecError(
                f"faults[{position}].gpu",
                f"must be at most {node.gpus - 1}, {fault.node} has {node.gpus} {plural('GPU', node.gpus)}",
            )
    return tuple(sorted(faults, key=lambda fault: fault.at))


class EditChecker:
    """Makes edits of what was read, in the order of time, each checked against what those before have left.

    ``nodes`` None: the hardware is not known.
    """

    def __init__(
        self,
        *,
        nodes: Collection[str] | None,
        names: JobNames,
        tree: QuotaTree,
        policy: Policy,
        capacity: Mapping[str, int] | None,
        start_unix: float,
    ) -> None:
        self.nodes = nodes
        self.names = names
        self.tree = tree
        self.policy = policy
        self.capacity = capacity
        self.start_unix = start_unix

    def check(self, rows: Sequence[Mapping[str, Any]]) -> tuple[Edit, ...]:
        """Return the edits in the order of time. Raises SpecError with a path that begins at ``edits``."""
        edits: list[Edit] = []
        for position in sorted(range(len(rows)), key=lambda row: float(rows[row]["at"])):
            try:
                edits.append(self._edit(rows[position]))
            except SpecError as error:
                raise error.under(position).under("edits") from None
        return tuple(edits)

    def _edit(self, row: Mapping[str, Any]) -> Edit:
        kinds = [key for key in row if key not in ("at", "quota")]
        if len(kinds) != 1:
            known = ", ".join(("policy", "team", "cancel", *NodeAction))
            raise SpecError("", f"must have exactly one of {known}")
        kind, at = kinds[0], row["at"]
        if ("quota" in row) != (kind == "team"):
            raise SpecError("quota", "is missing" if kind == "team" else "needs team")
        if kind == "policy":
            return self._policy(at, row["policy"])
        if kind == "team":
            return self._quota(QuotaEdit(at, row["team"], row["quota"]))
        if kind == "cancel":
            return self._cancel(at, row["cancel"])
        if self.nodes is not None and row[kind] not in self.nodes:
            raise SpecError(kind, nobody("node", row[kind], self.nodes))
        return NodeEdit(at, NodeAction(kind), row[kind])

    def _policy(self, at: float, change: Mapping[str, object]) -> PolicyEdit:
        try:
            self.policy = changed(self.policy, change)
        except SpecError as error:
            raise error.under("policy") from None
        return PolicyEdit(at, change)

    def _cancel(self, at: float, called: str) -> CancelEdit:
        try:
            return CancelEdit(at, self.names.meant_by(called))
        except SpecError as error:
            raise error.under("cancel") from None

    def _quota(self, edit: QuotaEdit) -> QuotaEdit:
        if edit.team not in self.tree.index:
            raise SpecError("team", nobody("team", edit.team, self.tree.index))
        check_models(edit.quotas, self.capacity, "quota")
        self.tree = with_quota(self.tree, edit)
        check_promises(self.tree, self.capacity, self.start_unix + edit.at, lambda _: "quota")
        return edit


def with_quota(tree: QuotaTree, edit: QuotaEdit) -> QuotaTree:
    """Return the tree in which the team of ``edit`` has its new numbers; its windows stay."""
    teams = list(tree.teams)
    position = tree.index[edit.team]
    teams[position] = replace(teams[position], quotas=edit.quotas)
    return QuotaTree(tuple(teams), tree.timezone)
