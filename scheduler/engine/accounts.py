"""The books of one decision: what each team holds, what it may still have, and what it has had before."""

from quotas.limits import NANO, Bound
from scheduler.engine.fairshare import HELD_COUNTS_FOR, settle
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, replica_nano
from scheduler.engine.placement.gang import Placed
from scheduler.engine.policy import Policy
from scheduler.engine.snapshot import Lane, Snapshot

UNLIMITED = 1 << 62
"""Head room, in nano-GPU, where there is no limit."""


class Accounts:
    """Use per account in nano-GPU, growing with each start of the decision; ``version`` counts the starts."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float) -> None:
        self.table = snapshot.limits.at(snapshot.epoch + now)
        self.tree = self.table.tree
        self.used = list(snapshot.used)
        self.totals = [self.table.slot(team, "*") for team in range(len(self.tree.teams))]
        half_life = policy.fair.half_life
        self._faded = [
            settle(use, self.used[total] / NANO, now, half_life).gpu_seconds
            for use, total in zip(snapshot.uses, self.totals, strict=True)
        ]
        self._weights = [team.weight for team in self.tree.teams]
        self.version = 0
        self._headroom: dict[tuple[int, str], int] = {}
        self._shares: dict[tuple[int, tuple[str, ...]], tuple[tuple[int, ...], int]] = {}

    def fair_standing(self, team: int) -> float:
        """Decayed GPU-seconds per weight, with the cards held at this moment counted at once."""
        return (self._faded[team] + self.used[self.totals[team]] * (HELD_COUNTS_FOR / NANO)) / self._weights[team]

    def guaranteed_share(self, lane: Lane) -> float | None:
        """Used ÷ guaranteed on the models that a lane may use, None where its team has no guaranteed share of them."""
        key = (lane.team, lane.fit.models)
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = self._share(lane.team, lane.fit.models)
        slots, guaranteed = share
        if not guaranteed:
            return None
        return sum([self.used[slot] for slot in slots]) / guaranteed

    def _share(self, team: int, models: tuple[str, ...]) -> tuple[tuple[int, ...], int]:
        """The accounts that make up a team's guaranteed share, of the nearest ancestor that has one."""
        for member in self.tree.lineage[team]:
            slots = tuple(self.table.slot(member, model) for model in models)
            guaranteed = sum(self.table.guaranteed[slot] for slot in slots)
            if not guaranteed:
                slots = (self.totals[member],)
                guaranteed = self.table.guaranteed[slots[0]]
            if guaranteed:
                return slots, guaranteed
        return (), 0

    def barred(self, fit: Fit, team: int, models: tuple[str, ...]) -> list[str]:
        """Those of ``models`` on which one more job of this fit would break a limit."""
        if fit.mixed:
            return [model for model in models if self._broken(fit, team, model)]
        return [model for model in models if fit.needs(model) > self.headroom(team, model)]

    def headroom(self, team: int, model: str) -> int:
        """Nano-GPU of ``model`` that all limits leave to a team; less than zero where a limit was lowered below use."""
        left = self._headroom.get((team, model))
        if left is None:
            bounds = self.table.bounds[team][model]
            left = min([bound.limit - self.used[bound.slot] for bound in bounds], default=UNLIMITED)
            self._headroom[team, model] = left
        return left

    def broken_bound(self, fit: Fit, team: int, model: str) -> Bound:
        """The first limit that a start on a barred ``model`` would break."""
        return self._broken(fit, team, model)[0]

    def _broken(self, fit: Fit, team: int, model: str) -> list[Bound]:
        bounds = self.table.bounds[team][model]
        return [bound for bound in bounds if self.used[bound.slot] + fit.needs(model, bound.model) > bound.limit]

    def allowed_nodes(self, lane: Lane) -> int:
        """The nodes that a lane's next job may use without breaking a limit, whatever is free on them."""
        return nodes_without(lane.fit, self.barred(lane.fit, lane.team, lane.fit.models))

    def charge(self, team: int, ledger: Ledger, placed: list[Placed]) -> None:
        """Enter a start."""
        self.version += 1
        self._headroom.clear()
        used, charges, nodes = self.used, self.table.charges[team], ledger.inventory.nodes
        for each, _, position, gpus in placed:
            node = nodes[position]
            amount = replica_nano(len(gpus), each.mib, node.vram_mib)
            for slot in charges[node.model]:
                used[slot] += amount


def nodes_without(fit: Fit, barred: list[str]) -> int:
    """The nodes of a fit whose model is not barred."""
    return fit.nodes & ~fit.inventory.of_model(tuple(barred)) if barred else fit.nodes
