"""The elastic jobs of one decision: what the hour takes from them, what they ask for, and what idles for them."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from scheduler.engine.accounts import Accounts
from scheduler.engine.elastic import Growth, Size, growths, reshaped, shrunk, size_at
from scheduler.engine.placement.fit import replica_nano
from scheduler.engine.plan import Piece, Resize, Start
from scheduler.engine.policy import Policy
from scheduler.engine.snapshot import Lane, Phase, RunningJob, Snapshot


class Resizing:
    """See the module. ``resizes`` are those due by the clock; ``lanes`` the demand that joins the line."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, accounts: Accounts) -> None:
        self._snapshot = snapshot
        self._headroom = policy.inference_headroom
        self._now = now
        self._accounts = accounts
        self.enabled = policy.elastic.enabled
        self.moment = snapshot.limits.tree.moment(snapshot.epoch + now)
        live = [each for each in snapshot.elastic if each.phase is not Phase.STOPPING] if self.enabled else []
        self._sizes = {running.job.key: size_at(running.job, self.moment) for running in live}
        self.resizes = {resize.job: resize for running in live for resize in self._due(running)}
        self.surplus = {
            running.job.key: len(running.pieces) - size.wanted
            for running, size in self._sized(live)
            if len(running.pieces) > size.wanted and running.job.key not in self.resizes
        }
        self._running = live
        self._asked: dict[str, Growth] = {}
        self.lanes = [growth.lane for running, size in self._sized(live) for growth in self._ask(running, size.wanted)]

    def idle_lanes(self, busy: Iterable[str]) -> list[Lane]:
        """What elastic jobs of full size would take of cards that nobody else wants; those of ``busy`` left out."""
        skip = {*busy, *self.resizes, *(growth.running.job.key for growth in self._asked.values())}
        return [
            growth.lane
            for running, size in self._sized(self._running)
            if running.job.key not in skip and len(running.pieces) >= size.wanted
            for growth in self._ask(running, size.most)
        ]

    def settle(self, starts: list[Start], shrinking: list[Resize]) -> tuple[list[Start], list[Resize]]:
        """Turn the starts of single replicas into the growth of their jobs; a job that gives way does not grow."""
        giving_way = {resize.job for resize in shrinking}
        grown: dict[str, list[Piece]] = {}
        others = []
        for start in starts:
            growth = self._asked.get(start.job)
            if growth is None:
                others.append(start)
            elif growth.running.job.key not in giving_way:
                replica = int(start.job.rsplit("+", 1)[1])
                pieces = grown.setdefault(growth.running.job.key, list(growth.running.pieces))
                pieces += [piece._replace(replica=replica) for piece in start.pieces]
        resizes = [Resize(job, tuple(sorted(pieces, key=_replica))) for job, pieces in grown.items()]
        due = [resize for job, resize in self.resizes.items() if job not in giving_way]
        return others, [*due, *shrinking, *resizes]

    def is_growth(self, key: str) -> bool:
        """Whether a key stands for one more replica of a running job."""
        return key in self._asked

    def next_change(self) -> float | None:
        """When a scale window of a running or waiting job next opens or closes (seconds)."""
        jobs = [running.job for running in self._running] if self.enabled else []
        jobs += [job for lane in self._snapshot.lanes for job in lane.jobs if job.scale] if self.enabled else []
        edges = {edge for job in jobs for window in job.scale for edge in (window.start, window.end)}
        times = [
            datetime.combine(self.moment.date() + timedelta(days=day), edge, self.moment.tzinfo).replace(fold=fold)
            for edge in edges
            for day in (0, 1)
            for fold in (0, 1)
        ]
        later = [at.timestamp() - self._snapshot.epoch for at in times]
        return min((at for at in later if at > self._now), default=None)

    def _sized(self, live: list[RunningJob]) -> list[tuple[RunningJob, Size]]:
        return [(running, self._sizes[running.job.key]) for running in live]

    def _due(self, running: RunningJob) -> list[Resize]:
        size = self._sizes[running.job.key]
        resize = shrunk(running, size) or reshaped(running, size, self._snapshot.ledger, self._headroom)
        return [resize] if resize is not None and self._affordable(running, resize) else []

    def _affordable(self, running: RunningJob, resize: Resize) -> bool:
        """Whether what a job will hold beyond what it holds now keeps its team's limits."""
        team = self._accounts.tree.index[running.job.team]
        more = {model: -amount for model, amount in running.amounts}
        inventory = self._snapshot.inventory
        for piece in resize.pieces:
            if piece.node in inventory.index:
                node = inventory.nodes[inventory.index[piece.node]]
                more[node.model] = more.get(node.model, 0) + replica_nano(len(piece.gpus), piece.mib, node.vram_mib)
        return all(extra <= 0 or extra <= self._accounts.headroom(team, model) for model, extra in more.items())

    def _ask(self, running: RunningJob, wanted: int) -> list[Growth]:
        if running.job.key in self.resizes or len(running.pieces) >= wanted:
            return []
        team = self._accounts.tree.index[running.job.team]
        first = -1 - len(self._asked)
        asked = list(growths(running, wanted, self._snapshot.inventory, self._headroom, team, self._now, first))
        if running.job.shape.topology.max_per_domain is not None:
            asked = asked[:1]  # where the next may lie depends on where this one does
        self._asked |= {growth.lane.jobs[0].key: growth for growth in asked}
        return asked


def _replica(piece: Piece) -> int:
    return piece.replica
