"""The books of one decision: what each team holds, what it may still have, and what it has had before."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from quotas.limits import ANY_MODEL, NANO, Bound, Quota
from scheduler.engine.fairshare import HELD_COUNTS_FOR, settle
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, replica_nano
from scheduler.engine.placement.gang import Placed
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold
from scheduler.engine.snapshot import Lane, Snapshot
from scheduler.engine.watermark import asking, lent

UNLIMITED = 1 << 62
"""Head room, in nano-GPU, where there is no limit."""


class Share(NamedTuple):
    """A guaranteed number: ``amount`` nano-GPU over the accounts ``slots`` together, given to the team ``member``."""

    slots: tuple[int, ...]
    amount: int
    member: int


class Accounts:
    """Use per account in nano-GPU, growing with each start of the decision.

    ``version`` counts the changes, ``versions`` per team those that its standing may depend on.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, gated: Mapping[str, Hold]) -> None:
        self.table = snapshot.limits.at(snapshot.epoch + now)
        if policy.watermark.enabled:
            self.table = lent(self.table, snapshot, asking(snapshot, gated, now), policy.watermark, now)
        self.tree = self.table.tree
        self.used = list(snapshot.used)
        self.totals = [self.table.slot(team, "*") for team in range(len(self.tree.teams))]
        half_life = policy.fair.half_life
        self._faded = [
            settle(use, self.used[total] / NANO, now, half_life).gpu_seconds
            for use, total in zip(snapshot.uses, self.totals, strict=True)
        ]
        self._weights = [team.weight for team in self.tree.teams]
        self._epoch = snapshot.epoch
        self._clock: dict[float, str] = {}
        self.version = 0
        self.versions = [0] * len(self.totals)
        self._headroom: dict[tuple[int, str], int] = {}
        self._least: dict[tuple[int, tuple[str, ...]], int] = {}
        self._bound: dict[int, bool] = {}
        self._ratios: dict[tuple[int, tuple[str, ...]], tuple[int, float | None]] = {}
        self._affected: dict[int, tuple[int, ...]] = {}
        self._entitlements: dict[tuple[int, tuple[str, ...]], int] = {}
        self._shares: dict[tuple[int, tuple[str, ...]], Share | None] = {}
        self._owed: dict[tuple[int, tuple[str, ...], tuple[int, ...]], Share | None] = {}

    def clock(self, at: float) -> str:
        """The wall clock at ``at`` (seconds on the clock of the snapshot)."""
        told = self._clock.get(at)
        if told is None:
            told = self._clock[at] = self.tree.moment(self._epoch + at).strftime("%Y-%m-%d %H:%M:%S")
        return told

    def fair_standing(self, team: int) -> float:
        """Decayed GPU-seconds per weight, with the cards held at this moment counted at once."""
        return (self._faded[team] + self.used[self.totals[team]] * (HELD_COUNTS_FOR / NANO)) / self._weights[team]

    def guaranteed_share(self, lane: Lane) -> float | None:
        """Used ÷ guaranteed on the models that a lane may use, None where its team has no guaranteed share of them."""
        key = (lane.team, lane.fit.models)
        known = self._ratios.get(key)
        if known is not None and known[0] == self.versions[lane.team]:
            return known[1]
        share = self.guaranteed(*key)
        ratio = None if share is None or not share.amount else self.total(share.slots) / share.amount
        self._ratios[key] = (self.versions[lane.team], ratio)
        return ratio

    def entitlement(self, team: int, models: tuple[str, ...]) -> int:
        """Nano-GPU that a team is owed on some models and does not hold; 0 or less where it holds it all."""
        key = (team, models)
        left = self._entitlements.get(key)
        if left is None:
            share = self.owed(team, models)
            left = self._entitlements[key] = 0 if share is None else share.amount - self.total(share.slots)
        return left

    def guaranteed(self, team: int, models: tuple[str, ...]) -> Share | None:
        """The guaranteed number of a team on some models: its nearest ancestor's where it has no numbers itself."""
        key = (team, models)
        if key not in self._shares:
            self._shares[key] = self._share(team, models, self.table.numbers, self.table.guaranteed)
        return self._shares[key]

    def owed(self, team: int, models: tuple[str, ...], beside: tuple[int, ...] = ()) -> Share | None:
        """The same as it counts for reclaim, where windows that open soon count already.

        The numbers of the ancestors ``beside`` are left out.
        """
        key = (team, models, beside)
        if key not in self._owed:
            self._owed[key] = self._share(team, models, self.table.near, self.table.owed, beside)
        return self._owed[key]

    def total(self, slots: tuple[int, ...]) -> int:
        """Nano-GPU held on some accounts."""
        return sum([self.used[slot] for slot in slots])

    def promised_by(self, team: int, model: str) -> tuple[int, ...]:
        """The ancestors out of whose numbers the guaranteed number of a team on a model is promised."""
        share = self.owed(team, (model,))
        return () if share is None else self.tree.lineage[share.member][1:]

    def borrowed(self, team: int, model: str, used: list[int], beside: tuple[int, ...] = ()) -> int:
        """Nano-GPU that a team holds above its guaranteed number on a model, going by ``used``.

        What ``beside`` are guaranteed is promised to somebody else: nobody below them may call it his own.
        """
        share = self.owed(team, (model,), beside)
        if share is None:
            return used[self.table.slot(team, model)]
        return max(0, sum(used[slot] for slot in share.slots) - share.amount)

    def _share(
        self,
        team: int,
        models: tuple[str, ...],
        numbers: Sequence[Mapping[str, Quota]],
        amounts: Sequence[int],
        beside: tuple[int, ...] = (),
    ) -> Share | None:
        for member in self.tree.lineage[team]:
            if member in beside and member != team:
                continue
            own = [model for model in models if model in numbers[member]] or [ANY_MODEL]
            if own[0] in numbers[member]:
                slots = tuple(self.table.slot(member, model) for model in own)
                return Share(slots, sum(amounts[slot] for slot in slots), member)
        return None

    def copy_used(self) -> list[int]:
        """The books as they stand, to be changed at will."""
        return self.used[:]

    def add(self, used: list[int], team: int, amounts: tuple[tuple[str, int], ...], sign: int) -> None:
        """Enter amounts per model, or take them out with ``sign`` -1, in books of one's own."""
        charges = self.table.charges[team]
        for model, amount in amounts:
            for slot in charges.get(model, ()):
                used[slot] += sign * amount

    def allowed_after(self, fit: Fit, team: int, given_up: Iterable[tuple[int, tuple[tuple[str, int], ...]]]) -> int:
        """The nodes that limits leave to one more job of a team once others have given up what they hold."""
        used = self.copy_used()
        for other, amounts in given_up:
            self.add(used, other, amounts, -1)
        return self.allowed_by(fit, team, used)

    def allowed_by(self, fit: Fit, team: int, used: list[int]) -> int:
        """The nodes that limits leave to one more job of a team, going by books of one's own."""
        barred = []
        for model in fit.models:
            bounds = self.table.bounds[team][model]
            lent = self.table.left_by_lenders(team, model, used)
            if any(used[bound.slot] + fit.needs(model, bound.model) > bound.limit for bound in bounds) or (
                lent is not None and fit.needs(model, model) > lent
            ):
                barred.append(model)
        return nodes_without(fit, barred)

    def barred(self, fit: Fit, team: int, models: tuple[str, ...]) -> list[str]:
        """Those of ``models`` on which one more job of this fit would break a limit."""
        if fit.mixed:
            return [m for m in models if self._broken(fit, team, m) or fit.needs(m, m) > self.headroom(team, m)]
        if fit.slices and self._least_headroom(team, models) < UNLIMITED:
            return [model for model in models if fit.needs(model) > self.headroom(team, model)]
        need = fit.cards * NANO
        if need <= self._least_headroom(team, models):
            return []
        return [model for model in models if need > self.headroom(team, model)]

    def _least_headroom(self, team: int, models: tuple[str, ...]) -> int:
        """What the limits leave to a team on each of some models."""
        left = self._least.get((team, models))
        if left is None:
            if team not in self._bound:
                self._bound[team] = self.table.binds(team)
            if not self._bound[team]:
                return UNLIMITED
            left = min((self.headroom(team, model) for model in models), default=UNLIMITED)
            self._least[team, models] = left
        return left

    def headroom(self, team: int, model: str) -> int:
        """Nano-GPU of ``model`` that all limits leave to a team; less than zero where a limit was lowered below use."""
        left = self._headroom.get((team, model))
        if left is None:
            bounds = self.table.bounds[team][model]
            left = min([bound.limit - self.used[bound.slot] for bound in bounds]) if bounds else UNLIMITED
            lent = self.table.left_by_lenders(team, model, self.used)
            if lent is not None:
                left = min(left, lent)
            self._headroom[team, model] = left
        return left

    def broken_bound(self, fit: Fit, team: int, model: str) -> Bound | None:
        """The first limit that a start on a barred ``model`` would break; None where it is what others do not lend."""
        return next(iter(self._broken(fit, team, model)), None)

    def _broken(self, fit: Fit, team: int, model: str) -> list[Bound]:
        bounds = self.table.bounds[team][model]
        return [bound for bound in bounds if self.used[bound.slot] + fit.needs(model, bound.model) > bound.limit]

    def allowed_nodes(self, lane: Lane) -> int:
        """The nodes that a lane's next job may use without breaking a limit, whatever is free on them."""
        return nodes_without(lane.fit, self.barred(lane.fit, lane.team, lane.fit.models))

    def affords(self, team: int, amounts: tuple[tuple[str, int], ...]) -> bool:
        """Whether all limits, and what others do not lend, leave these amounts per model to a team."""
        used = self.copy_used()
        self.add(used, team, amounts, 1)
        lent = ((amount, self.table.left_by_lenders(team, model, self.used)) for model, amount in amounts)
        bounds = [bound for model, _ in amounts for bound in self.table.bounds[team][model]]
        return all(used[bound.slot] <= bound.limit for bound in bounds) and all(
            left is None or amount <= left for amount, left in lent
        )

    def enter(self, team: int, amounts: tuple[tuple[str, int], ...]) -> None:
        """Enter what a start, or a claim, counts for."""
        self._forget(team)
        self.add(self.used, team, amounts, 1)

    def charge(self, team: int, ledger: Ledger, placed: list[Placed]) -> None:
        """Enter a start."""
        self._forget(team)
        used, charges, nodes = self.used, self.table.charges[team], ledger.inventory.nodes
        for each, _, position, gpus in placed:
            node = nodes[position]
            amount = replica_nano(len(gpus), each.mib, node.vram_mib)
            for slot in charges[node.model]:
                used[slot] += amount

    def _forget(self, team: int) -> None:
        """The books of a team change: what was worked out from them no longer holds."""
        self.version += 1
        if team not in self._affected:
            self._affected[team] = tuple(self._whose_standing(team))
        for other in self._affected[team]:
            self.versions[other] += 1
        self._headroom.clear()
        self._least.clear()
        self._entitlements.clear()

    def _whose_standing(self, team: int) -> Iterator[int]:
        """The teams whose standing may depend on what ``team`` holds: it, and who goes by the numbers of its line."""
        line = set(self.tree.lineage[team])
        for other, lineage in enumerate(self.tree.lineage):
            for member in lineage:
                if member in line:
                    yield other
                    break
                if ANY_MODEL in self.table.numbers[member]:
                    break  # nobody above it is asked


def nodes_without(fit: Fit, barred: list[str]) -> int:
    """The nodes of a fit whose model is not barred."""
    return fit.nodes & ~fit.inventory.of_model(tuple(barred)) if barred else fit.nodes
