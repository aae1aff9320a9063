"""What was held, free and broken up over time: exact integrals, kept up with at a cost of what changes.

All rates are piecewise constant: whoever changes one first lets the meters run up to that moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from quotas.limits import ANY_MODEL, NANO, LimitTable
from scheduler.engine.cluster import members
from scheduler.engine.placement.fit import replica_nano
from scheduler.engine.plan import Piece
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import RunningJob

HOUR = 3_600.0


class _Share(NamedTuple):
    """What one node adds to the rates: cards in nano-GPU, memory in MiB."""

    service: int = 0  # cards in service
    idle: int = 0  # 1 where no job is on it
    free: int = 0  # free whole cards
    broken: int = 0  # those of them on nodes that are not wholly free
    free_mib: int = 0  # card memory that a slice could have
    shared_mib: int = 0  # that of it on cards already shared


@dataclass(slots=True)
class _Held:
    """What jobs hold on one node."""

    nano: int = 0
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class TeamUse:
    """GPU-hours of a team and its children together, and those above its guaranteed number."""

    gpu_hours: float
    borrowed_gpu_hours: float


@dataclass(frozen=True, slots=True)
class Readings:
    """Averages over the time from 0 to the end; see the scenario reference for each."""

    allocated_ratio: float
    idle_nodes: float
    fragmentation_ratio: float
    vram_fragmentation_ratio: float
    teams: dict[str, TeamUse]


class Meters:
    """Told of each change of the roster *after* it was made, with the time at which it was."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._at = 0.0
        self._shares: dict[str, _Share] = {}
        self._rate = _Share()
        self._nodes: dict[str, _Held] = {}
        self._held = 0
        self._table: LimitTable | None = None
        self._uses: list[dict[str, int]] = [{} for _ in roster.tree.teams]  # nano-GPU per team and model
        self._use = [0.0] * len(roster.tree.teams)  # GPUs
        self._borrowed = [0.0] * len(roster.tree.teams)
        # GPU-seconds held and in service, node-seconds idle, seconds of the two shares; then one number per team.
        self._sums = [0.0, 0.0, 0.0, 0.0, 0.0]
        self._team_sums = [0.0] * len(roster.tree.teams)
        self._borrowed_sums = [0.0] * len(roster.tree.teams)
        self._marked = True
        self._kept = (self._sums[:], self._team_sums[:], self._borrowed_sums[:])
        self._kept_at = 0.0
        self.hardware_changed(0.0)

    # -- what happens -------------------------------------------------------------------------------------------------

    def took(self, running: RunningJob, now: float) -> None:
        """A job has got its cards."""
        self._change(running, 1, now)

    def gave(self, running: RunningJob, now: float) -> None:
        """A job has given its cards back."""
        self._change(running, -1, now)

    def hardware_changed(self, now: float) -> None:
        """Nodes or cards have joined, left or changed their state."""
        self.run_to(now)
        names = self._roster.inventory.names
        for gone in self._shares.keys() - set(names):
            self._refresh(gone)
        for name in names:
            self._refresh(name)
        self.quotas_changed(now)

    def quotas_changed(self, now: float) -> None:
        """Guaranteed numbers may be others from now on; costs nothing where the table is still the same."""
        table = self._roster.limits.at(self._roster.epoch + now)
        if table is not self._table:
            self.run_to(now)
            self._table = table
            for team in range(len(self._use)):
                self._rate_team(team)

    def mark(self, now: float) -> None:
        """Remember the integrals up to now: this may turn out to have been the end."""
        self.run_to(now)
        self._marked = True

    def run_to(self, now: float) -> None:
        """Let time pass with the rates as they are."""
        passed = now - self._at
        if passed <= 0.0:
            return
        if self._marked:
            self._kept = (self._sums[:], self._team_sums[:], self._borrowed_sums[:])
            self._kept_at = self._at
            self._marked = False
        sums, rate = self._sums, self._rate
        sums[0] += self._held / NANO * passed
        sums[1] += rate.service / NANO * passed
        sums[2] += rate.idle * passed
        if rate.free:
            sums[3] += rate.broken / rate.free * passed
        if rate.free_mib:
            sums[4] += rate.shared_mib / rate.free_mib * passed
        for team, use in enumerate(self._use):
            if use:
                self._team_sums[team] += use * passed
                self._borrowed_sums[team] += self._borrowed[team] * passed
        self._at = now

    def read(self, end: float) -> Readings:
        """The averages from 0 to `end`, which is now, later, or the last moment that was marked."""
        if end < self._at and not self._marked:
            sums, used, borrowed = self._kept
        else:
            self.run_to(end)
            sums, used, borrowed = self._sums, self._team_sums, self._borrowed_sums
        span = end or 1.0
        return Readings(
            allocated_ratio=sums[0] / sums[1] if sums[1] else 0.0,
            idle_nodes=sums[2] / span,
            fragmentation_ratio=sums[3] / span,
            vram_fragmentation_ratio=sums[4] / span,
            teams={
                team.name: TeamUse(used[position] / HOUR, borrowed[position] / HOUR)
                for position, team in enumerate(self._roster.tree.teams)
            },
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    def _change(self, running: RunningJob, sign: int, now: float) -> None:
        self.run_to(now)
        for model, amount in running.amounts:
            self._held += sign * amount
            for team in self._roster.tree.lineage[self._roster.tree.index[running.job.team]]:
                uses = self._uses[team]
                uses[model] = uses.get(model, 0) + sign * amount
        for team in self._roster.tree.lineage[self._roster.tree.index[running.job.team]]:
            self._rate_team(team)
        for name in self._count(running.pieces, sign):
            self._refresh(name)

    def _count(self, pieces: tuple[Piece, ...], sign: int) -> Iterable[str]:
        """Enter a job's pieces into the nodes' counts; answers the nodes."""
        inventory = self._roster.inventory
        seen: dict[str, None] = {}
        for piece in pieces:
            held = self._nodes.setdefault(piece.node, _Held())
            if piece.node not in seen:
                seen[piece.node] = None
                held.jobs += sign
            node = inventory.index.get(piece.node)
            if node is not None:
                held.nano += sign * replica_nano(len(piece.gpus), piece.mib, inventory.nodes[node].vram_mib)
        return seen

    def _rate_team(self, team: int) -> None:
        """Use and loan of a team at this moment. What `*` guarantees covers what the models' own numbers do not."""
        uses, table = self._uses[team], self._table
        total = sum(uses.values())
        covered = 0
        if table is not None:
            for model, use in uses.items():
                if model in table.column:
                    covered += min(use, table.guaranteed[table.slot(team, model)])
            covered = max(covered, min(total, table.guaranteed[table.slot(team, ANY_MODEL)]))
        self._use[team] = total / NANO
        self._borrowed[team] = (total - covered) / NANO

    def _refresh(self, name: str) -> None:
        before, after = self._shares.get(name, _Share()), self._share(name)
        if before != after:
            self._shares[name] = after
            self._rate = _Share(*(rate - old + new for rate, old, new in zip(self._rate, before, after, strict=True)))

    def _share(self, name: str) -> _Share:
        inventory, ledger = self._roster.inventory, self._roster.ledger
        position = inventory.index.get(name)
        if position is None:
            self._nodes.pop(name, None)
            return _Share()
        held = self._nodes.get(name, _Held())
        idle = int(held.jobs == 0)
        if not ledger.ready >> position & 1:
            return _Share(service=held.nano, idle=idle)
        working, free = ledger.working[position], ledger.free[position]
        count = free.bit_count()
        whole = free == working
        shared = 0
        if ledger.shared and not whole:
            shared = sum(ledger.slice_left(position, gpu) for gpu in members(working & ~free))
        usable = inventory.nodes[position].usable_mib
        return _Share(
            service=max(working.bit_count() * NANO, held.nano),
            idle=idle,
            free=count,
            broken=0 if whole else count,
            free_mib=count * usable + shared,
            shared_mib=shared,
        )
