"""Why a lane waits: the gates in the order of the table of reasons, asked of what is left after the starts."""

from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quotas.limits import NANO, Bound, label, plural
from scheduler.engine.accounts import Accounts, nodes_without
from scheduler.engine.cluster import flags, members
from scheduler.engine.demand import MIB_PER_GIB, PendingJob, Topology
from scheduler.engine.feasibility import Feasibility, parts, parts_in_brackets, what, what_of
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, GroupFit
from scheduler.engine.placement.gang import place, undo
from scheduler.engine.placement.strategy import Strategy
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.engine.snapshot import Lane
from scheduler.engine.throttle import Throttle

PLENTY = 1 << 62
"""CPUs or MiB of host memory that no job uses up."""

OTHERS_FIRST = (Reason.RESERVED, Reason.TURN, Reason.BACKPRESSURE)
PROBES = 24
"""Nodes looked at one by one before all are looked at together."""


class Stop(NamedTuple):
    """Where the walk stopped a lane: its first job and the kind of gate.

    ``ahead`` is the job that goes first, if that was it; ``opens`` when a loan may be taken back, or that job starts.
    """

    job: PendingJob
    reason: Reason
    ahead: PendingJob | None = None
    opens: float = 0.0


class Explainer:
    """Gives each stopped lane its hold. Remembers what lanes have in common."""

    def __init__(
        self, ledger: Ledger, accounts: Accounts, throttle: Throttle, feasibility: Feasibility, strategy: Strategy
    ) -> None:
        self.ledger = ledger
        self.accounts = accounts
        self.throttle = throttle
        self.feasibility = feasibility
        self.strategy = strategy
        self._free: dict[int, tuple[int, int]] = {}
        self._left: dict[int, NDArray[np.int64]] = {}
        self._plenty: Ledger | None = None
        self._cards_left: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def why(self, lane: Lane, stop: Stop) -> Hold:
        """The first gate that blocks the lane."""
        fit = lane.fit
        never = self.feasibility.hold_of(fit)
        if never is not None and never.reason is Reason.IMPOSSIBLE:
            return never
        models = fit.models or self._asked_for(fit)
        barred = self.accounts.barred(fit, lane.team, models)
        if barred and (by_limit := self._quota(lane, models, barred, never)) is not None:
            return by_limit
        if never is not None:
            return never
        allowed = nodes_without(fit, barred)
        if barred and not self.feasibility.holds(fit, allowed):
            return self.feasibility.out_of_service(fit, allowed)
        nodes = allowed & self.ledger.ready & ~fit.excluded
        if stop.reason in OTHERS_FIRST and self._fits(fit, nodes):
            return self._others_first(lane, stop)
        by_host = self._host(fit, nodes)
        if by_host is None and stop.reason is Reason.RECLAIM:
            return self._lent_out(lane, stop)
        return by_host or self._cards(fit, nodes) or self._memory(fit, nodes) or self._apart(fit, nodes)

    def _asked_for(self, fit: Fit) -> tuple[str, ...]:
        """The models that a job asks for where none of their nodes would take it."""
        asked = [each.group.models for each in fit.groups]
        return tuple(m for m in sorted(fit.inventory.cards) if any(not some or m in some for some in asked))

    def _quota(self, lane: Lane, models: tuple[str, ...], barred: list[str], never: Hold | None) -> Hold | None:
        """Impossible where even an idle team may not have so much, else a limit reached; None if the rest will do."""
        fit, accounts = lane.fit, self.accounts
        by_hardware = never is not None and never.reason is not Reason.UNHEALTHY

        def will_do_without(some: list[str]) -> bool:
            rest = nodes_without(fit, some)
            return len(some) < len(models) and (by_hardware or self.feasibility.could_ever(fit, rest))

        if will_do_without(barred):
            return None
        over: dict[str, Bound] = {}
        for model in barred:
            for ceiling in accounts.table.ceilings[lane.team][model]:
                if fit.needs(model, ceiling.model) > ceiling.limit:
                    over.setdefault(model, ceiling)
        if over and not will_do_without(list(over)):
            model, ceiling = next(iter(over.items()))
            need = fit.needs(model, ceiling.model) / NANO
            return hold(
                Reason.IMPOSSIBLE, "needs {need:g} {what}{parts}, {team} may never hold more than {limit:g}",
                need=need, what=label(ceiling.model, need),
                parts=parts_in_brackets(fit.shape), team=ceiling.team, limit=ceiling.limit / NANO,
            )  # fmt: skip
        model = next((model for model in barred if model not in over), barred[0])
        bound = accounts.broken_bound(fit, lane.team, model)
        if bound is None:
            return self._not_lent(lane, model)
        return self._limit_reached(bound, fit.needs(model, bound.model))

    def _not_lent(self, lane: Lane, model: str) -> Hold:
        return hold(
            Reason.QUOTA, "what is idle of {what} is not lent: {team} may have {left:g} more, this job needs {need:g}",
            what=label(model), team=self.accounts.tree.teams[lane.team].name,
            left=max(0, round(self.accounts.headroom(lane.team, model) / NANO, 3)),
            need=round(lane.fit.needs(model, model) / NANO, 3),
        )  # fmt: skip

    def _limit_reached(self, bound: Bound, need: int) -> Hold:
        return hold(
            Reason.QUOTA, "{team} holds {used:g} of its limit of {limit:g} {what}, this job needs {need:g}",
            team=bound.team, used=round(self.accounts.used[bound.slot] / NANO, 3), limit=bound.limit / NANO,
            what=label(bound.model, bound.limit / NANO), need=round(need / NANO, 3),
        )  # fmt: skip

    def _fits(self, fit: Fit, nodes: int, *, any_host: bool = False) -> bool:
        """Whether the job fits as things stand, with ``any_host`` if CPUs and host memory were plenty."""
        ledger = self._with_plenty() if any_host else self.ledger
        placed = place(ledger, fit, self.strategy, nodes)
        if placed is not None:
            undo(ledger, placed)
        return placed is not None

    def _with_plenty(self) -> Ledger:
        if self._plenty is None:
            self._plenty = self.ledger.copy()
            self._plenty.cpus = self._plenty.memory = [PLENTY] * len(self.ledger.inventory)
        return self._plenty

    def _others_first(self, lane: Lane, stop: Stop) -> Hold:
        """It would fit, but for those ahead of it or for the limits on starts."""
        if stop.ahead is None:
            team = self.accounts.tree.teams[lane.team].name
            return self.throttle.hold_all() or self.throttle.hold_team(lane.team, team) or _out_of_luck()
        if stop.reason is Reason.TURN:
            return hold(Reason.TURN, "{ahead} of {team} goes first", ahead=stop.ahead.key, team=stop.ahead.team)
        return hold(
            Reason.RESERVED, "the free {what} are held for {ahead} of {team}, to start by {at}",
            what=what(lane.shape), ahead=stop.ahead.key, team=stop.ahead.team, at=self.accounts.clock(stop.opens),
        )  # fmt: skip

    def _lent_out(self, lane: Lane, stop: Stop) -> Hold:
        return hold(
            Reason.RECLAIM, "the guaranteed share of {team} is lent out, and still protected until {at}",
            team=self.accounts.tree.teams[lane.team].name, at=self.accounts.clock(stop.opens),
        )  # fmt: skip

    def _host(self, fit: Fit, nodes: int) -> Hold | None:
        """CPUs and host memory, as if all cards were free."""
        for each in fit.groups:
            if not self._host_holds(each, nodes & each.nodes):
                return self._host_short(each, list(members(nodes & each.nodes)))
        return None

    def _host_short(self, each: GroupFit, spots: list[int]) -> Hold:
        group = each.group
        cpus, memory = self.ledger.host_arrays()
        for short, need, best, unit in (
            (plural("CPU", group.cpus_milli / 1000), group.cpus_milli, int(cpus[spots].max(initial=0)), 1000),
            ("GiB of host memory", group.memory_mib, int(memory[spots].max(initial=0)), MIB_PER_GIB),
        ):
            if need > best:
                return hold(
                    Reason.HOST, "a replica needs {need:g} {short}, the most free on one node is {best:g}",
                    need=need / unit, short=short, best=round(best / unit, 3),
                )  # fmt: skip
        return hold(
            Reason.HOST,
            "needs {replicas} × ({cpus:g} CPU, {memory:g} GiB of host memory), there is room for {room}",
            replicas=group.replicas, cpus=group.cpus_milli / 1000, memory=group.memory_mib / MIB_PER_GIB,
            room=self._host_room(each, spots),
        )  # fmt: skip

    def _host_holds(self, each: GroupFit, nodes: int) -> bool:
        ledger, group = self.ledger, each.group
        left = group.replicas
        for node in islice(members(nodes & ledger.inventory.at_least[group.gpus]), PROBES):
            left -= ledger.cpus[node] >= group.cpus_milli and ledger.memory[node] >= group.memory_mib
            if left <= 0:
                return True
        return self._host_room(each, list(members(nodes))) >= group.replicas

    def _host_room(self, each: GroupFit, spots: list[int]) -> int:
        """Replicas for which these nodes have CPUs and host memory, as if all cards were free."""
        ledger, group = self.ledger, each.group
        cpus, memory = ledger.host_arrays()
        by_cards = group.gpus and not each.mib
        room = ledger.inventory.gpus[spots] // group.gpus if by_cards else cpus[spots] * 0 + group.replicas
        if group.cpus_milli:
            room = room.clip(max=cpus[spots] // group.cpus_milli)
        if group.memory_mib:
            room = room.clip(max=memory[spots] // group.memory_mib)
        return int(room.sum())

    def _cards(self, fit: Fit, nodes: int) -> Hold | None:
        """Free whole cards, wherever they are: of all groups together, then of each."""
        whole = [each for each in fit.groups if not each.mib]
        if len(whole) == 1:
            return self._too_few_for(fit, whole[0], nodes)
        if not whole:
            return None
        everywhere = 0
        for each in whole:
            everywhere |= each.nodes & nodes
        together = self._too_few(fit, sum(each.group.total_gpus for each in whole), everywhere, what(fit.shape))
        alone = (self._too_few_for(fit, each, nodes) for each in whole)
        return together or next((why for why in alone if why), None)

    def _too_few_for(self, fit: Fit, each: GroupFit, nodes: int) -> Hold | None:
        need = each.group.total_gpus
        return self._too_few(fit, need, each.nodes & nodes, what_of(each.group, need))

    def _too_few(self, fit: Fit, need: int, nodes: int, name: str) -> Hold | None:
        free, total = self._free_on(nodes)
        if free >= need:
            return None
        return hold(
            Reason.GPUS, "needs {need} {what}{parts}, {free} of {total} free",
            need=need, what=name, parts=parts_in_brackets(fit.shape), free=free, total=total,
        )  # fmt: skip

    def _free_on(self, nodes: int) -> tuple[int, int]:
        """Free cards and cards in all on a set of nodes."""
        found = self._free.get(nodes)
        if found is None:
            total = sum((held & nodes).bit_count() for held in self.ledger.inventory.at_least[1:])
            found = self._free[nodes] = (self.ledger.free_count(nodes), total)
        return found

    def _memory(self, fit: Fit, nodes: int) -> Hold | None:
        """Cards, free or shared, with enough memory left."""
        for each in fit.groups:
            if not each.mib:
                continue
            lefts = self._lefts(nodes & each.nodes)
            room = int((lefts // each.mib).sum())
            if room < each.group.total_gpus:
                return hold(
                    Reason.VRAM, "needs {need} × {mib} MiB, room for {room}: the most left on one card is {most} MiB",
                    need=each.group.total_gpus, mib=each.mib, room=room, most=int(lefts.max(initial=0)),
                )  # fmt: skip
        return None

    def _lefts(self, nodes: int) -> NDArray[np.int64]:
        """MiB left on each card with any."""
        found = self._left.get(nodes)
        if found is None:
            if self._cards_left is None:
                self._cards_left = self.ledger.card_arrays()
            on, left = self._cards_left
            found = self._left[nodes] = left[flags(nodes, len(self.ledger.inventory))[on]]
        return found

    def _apart(self, fit: Fit, nodes: int) -> Hold:
        """Enough in all, not together: for its topology, or for any; or together where the host has too little."""
        if self._fits(fit, nodes, any_host=True):
            group = fit.groups[0].group
            return hold(
                Reason.HOST,
                "{what} are free, but not where a replica finds {cpus:g} {short} and {memory:g} GiB of host memory",
                what=what(fit.shape), cpus=group.cpus_milli / 1000, short=plural("CPU", group.cpus_milli / 1000),
                memory=group.memory_mib / MIB_PER_GIB,
            )  # fmt: skip
        if fit.shape.topology != Topology() and self._fits(fit.anywhere, nodes):
            level = fit.shape.topology.require or fit.shape.topology.spread
            return hold(
                Reason.TOPOLOGY, "{free} {what} are free and would do, but not within its topology by {level}",
                free=self._free_on(fit.nodes & nodes)[0], what=what(fit.shape), level=str(level),
            )  # fmt: skip
        among = fit.nodes & nodes
        free, _ = self._free_on(among)
        most = max((count for count, held in enumerate(self.ledger.by_free) if held & among), default=0)
        each = fit.groups[0]
        facts = {"replicas": each.group.replicas, "gpus": each.group.gpus}
        if len(fit.groups) > 1:
            template = "each group may fit alone, but {parts} GPUs do not together: {free} are free, {most} on one node"
            return hold(Reason.FRAGMENTED, template, parts=parts(fit.shape), free=free, most=most)
        if each.mib:
            room = int((self._lefts(among) // each.mib).sum())
            template = (
                "there is room for {room} × {mib} MiB, not for {replicas} × {gpus} of them on the cards of one node"
            )
            return hold(Reason.FRAGMENTED, template, room=room, mib=each.mib, **facts)
        template = "{free} {what} are free, not {replicas} × {gpus} together: the most on one node is {most}"
        return hold(Reason.FRAGMENTED, template, free=free, what=what(fit.shape), **facts, most=most)


def _out_of_luck() -> Hold:
    return hold(Reason.TURN, "others go first")
