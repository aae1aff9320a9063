"""The roster: one cluster, its queue and its accounts, kept up to date change by change.

The owner (the live loop, the simulator) tells it what happened; :meth:`Roster.snapshot` costs little however much
waits or runs, because unchanged parts are shared and the others are copied when they next change.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from quotas.limits import NANO, QuotaTree
from scheduler.engine.cluster import CardState, Inventory, Node, NodeState
from scheduler.engine.demand import PendingJob, Shape
from scheduler.engine.fairshare import settle
from scheduler.engine.horizon import Horizon
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fit import Fit, replica_nano
from scheduler.engine.plan import Claim, Piece
from scheduler.engine.policy import Policy
from scheduler.engine.snapshot import Lane, LimitTables, Phase, RunningJob, Snapshot, Use
from scheduler.engine.watermark import quiet_since

RECENT_SECONDS = 60.0
STOPPING_ENDS = 0.0
"""When a job that is stopping is expected to have left: a moment that has passed."""


class Roster:
    """See the module. Not for several threads at once."""

    def __init__(self, tree: QuotaTree, policy: Policy, nodes: Iterable[Node] = (), *, epoch: float = 0.0) -> None:
        self.epoch = epoch
        self.policy = policy
        self.synced = True
        self._version = 0
        self._states: dict[str, NodeState] = {}
        self._cards: dict[tuple[str, int], CardState] = {}
        self._running: dict[str, RunningJob] = {}
        self._shapes: dict[Shape, int] = {}
        self._waiting: dict[str, tuple[int, PendingJob]] = {}
        self._gateable: dict[str, PendingJob] = {}
        self._lanes: dict[int, Lane] = {}
        self._lane_numbers: dict[tuple[str, Shape], int] = {}
        self._next_lane = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._starting = 0
        self._quiet: dict[int, float] = {}
        self._elastic: dict[str, None] = {}
        self._claims: tuple[Claim, ...] = ()
        self._lent = False
        self._ledger: Ledger
        self._horizon: Horizon
        self.tree = tree
        self._uses = [Use()] * len(tree.teams)
        self._set_inventory(Inventory(nodes))

    # Hardware

    @property
    def inventory(self) -> Inventory:
        """The nodes as they are now."""
        return self._inventory

    @property
    def ledger(self) -> Ledger:
        """What is free right now. To look at: the roster alone changes it."""
        return self._ledger

    @property
    def limits(self) -> LimitTables:
        """The limits over the cards there are now."""
        return self._limits

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Let nodes join, or change what is known of them."""
        known = {node.name: node for node in self._inventory.nodes}
        known |= {node.name: node for node in nodes}
        self._set_inventory(Inventory(known.values()))

    def remove_node(self, name: str) -> None:
        """Forget a node. Jobs that are on it go on counting until they are released."""
        self._states.pop(name, None)
        self._cards = {card: state for card, state in self._cards.items() if card[0] != name}
        self._set_inventory(Inventory(node for node in self._inventory.nodes if node.name != name))

    def node_state(self, name: str) -> NodeState:
        """The state of a node."""
        return self._states.get(name, NodeState.READY)

    def set_node_state(self, name: str, state: NodeState) -> None:
        """Change the state of a node; only a ready one takes new work."""
        self._own()
        self._states[name] = state
        self._ledger.set_ready(self._inventory.index[name], ready=state is NodeState.READY)

    def set_card_state(self, name: str, gpu: int, state: CardState) -> None:
        """Change the state of a card; only an ok one takes new work."""
        self._own()
        self._cards[name, gpu] = state
        held = any(
            piece.node == name and gpu in piece.gpus and not piece.mib
            for running in self._running.values()
            for piece in running.pieces
        )
        self._ledger.set_working(self._inventory.index[name], gpu, working=state is CardState.OK, held=held)
        self._refresh(self._inventory.index[name])

    # Teams and rules

    def set_tree(self, tree: QuotaTree) -> None:
        """Put new teams or numbers in force; every team that has jobs must still be there."""
        uses = {team.name: use for team, use in zip(self.tree.teams, self._uses, strict=True)}
        names = [team.name for team in self.tree.teams]
        recent = ((at, tree.index.get(names[team])) for at, team in self._recent)
        self._recent = deque((at, team) for at, team in recent if team is not None)
        self.tree = tree
        self._uses = [uses.get(team.name, Use()) for team in tree.teams]
        self._set_inventory(self._inventory)

    def set_policy(self, policy: Policy) -> None:
        """Put a new policy in force."""
        before, self.policy = self.policy, policy
        if before.inference_headroom != policy.inference_headroom:
            self._refit()

    # Jobs

    def submit(self, job: PendingJob) -> int:
        """Let a job wait (newly or again); returns the number of its lane. A key that waits already is replaced."""
        self._own()
        if job.key in self._waiting:
            self.withdraw(job.key)
        number = self._lane_number(job)
        lane = self._lanes[number]
        jobs = lane.jobs
        if not jobs or jobs[-1].order <= job.order:
            jobs = (*jobs, job)
        else:
            lined_up = list(jobs)
            insort(lined_up, job, key=_order)
            jobs = tuple(lined_up)
        self._lanes[number] = replace(lane, jobs=jobs)
        self._waiting[job.key] = (number, job)
        if job.held or job.backoff_until or job.not_before or job.waits_for:
            self._gateable[job.key] = job
        return number

    def withdraw(self, key: str) -> PendingJob:
        """Take a waiting job out of the queue. Raises KeyError if it does not wait."""
        self._own()
        number, job = self._waiting.pop(key)
        self._gateable.pop(key, None)
        lane = self._lanes[number]
        at = bisect_left(lane.jobs, job.order, key=_order)
        while lane.jobs[at].key != key:
            at += 1
        self._lanes[number] = replace(lane, jobs=lane.jobs[:at] + lane.jobs[at + 1 :])
        if not self._lanes[number].jobs:
            del self._lanes[number]
        return job

    def start(self, key: str, pieces: tuple[Piece, ...], now: float) -> RunningJob:
        """Move a waiting job onto its cards."""
        job = self.withdraw(key)
        self._recent.append((now, self.tree.index[job.team]))
        return self.adopt(job, pieces, now)

    def adopt(
        self, job: PendingJob, pieces: tuple[Piece, ...], started: float, phase: Phase = Phase.STARTING
    ) -> RunningJob:
        """Enter a job that holds cards; ``started`` is when its attempt was placed."""
        self._own()
        ends_by = None if job.time_limit is None else started + job.time_limit
        running = RunningJob(job, pieces, started, self._amounts(pieces), phase, ends_by)
        self._running[job.key] = running
        self._shapes[job.shape] = self._shapes.get(job.shape, 0) + 1
        if job.elastic:
            self._elastic[job.key] = None
        self._starting += phase is Phase.STARTING
        self._charge(running, 1, started)
        self._hold(running)
        return running

    def set_phase(self, key: str, phase: Phase) -> None:
        """Note that a job has begun to run, or to stop."""
        self._own()
        running = self._running[key]
        self._starting += (phase is Phase.STARTING) - (running.phase is Phase.STARTING)
        self._running[key] = replace(running, phase=phase)
        if phase is Phase.STOPPING:
            self._promise_at_once(running)

    def resize(self, key: str, pieces: tuple[Piece, ...], now: float) -> RunningJob:
        """Give a job that holds cards its new pieces, all at once. Raises KeyError if it holds none."""
        self._own()
        before = self._running[key]
        self._charge(before, -1, now)
        for piece in before.pieces:
            self._release_piece(before.job, piece)
        running = self._running[key] = replace(before, pieces=pieces, amounts=self._amounts(pieces))
        self._charge(running, 1, now)
        self._hold(running)
        return running

    def release(self, key: str, now: float) -> RunningJob:
        """Free the cards of a job. Raises KeyError if it holds none."""
        self._own()
        running = self._running.pop(key)
        self._uncount(running.job.shape)
        self._elastic.pop(key, None)
        self._starting -= running.phase is Phase.STARTING
        self._charge(running, -1, now)
        for piece in running.pieces:
            self._release_piece(running.job, piece)
        return running

    def keep(self, claims: tuple[Claim, ...]) -> None:
        """Put the claims of the last plan in force, in the place of those before."""
        self._claims = claims

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims in force."""
        return self._claims

    def remember(self, team: str, gpu_seconds: float, now: float) -> None:
        """Count for a team and its ancestors what it used before this roster was made, as it counts at ``now``."""
        for each in self.tree.lineage[self.tree.index[team]]:
            use = settle(self._uses[each], self._held(each), now, self.policy.fair.half_life)
            self._uses[each] = replace(use, gpu_seconds=use.gpu_seconds + gpu_seconds)

    def running(self, key: str) -> RunningJob | None:
        """The job of this key, if it holds cards."""
        return self._running.get(key)

    def waiting(self, key: str) -> PendingJob | None:
        """The job of this key, if it waits."""
        found = self._waiting.get(key)
        return None if found is None else found[1]

    def lane_of(self, key: str) -> int:
        """The number of the lane a waiting job is in. Raises KeyError if it does not wait."""
        return self._waiting[key][0]

    def snapshot(self, now: float) -> Snapshot:
        """What a decision at ``now`` may look at."""
        while self._recent and self._recent[0][0] <= now - RECENT_SECONDS:
            self._recent.popleft()
        pressure = self.policy.backpressure
        throttled = pressure.starts_per_minute or pressure.team_starts_per_minute
        if self.policy.watermark.enabled:
            table = self._limits.at(self.epoch + now)
            self._quiet = quiet_since(table, self._used, self._quiet, self.policy.watermark, now)
        self._lent = True
        self._version += 1
        return Snapshot(
            inventory=self._inventory,
            ledger=self._ledger,
            limits=self._limits,
            lanes=tuple(self._lanes.values()),
            gateable=tuple(self._gateable.values()),
            running=self._running,
            shapes=self._shapes,
            used=tuple(self._used),
            uses=tuple(self._uses),
            recent=tuple(self._recent) if throttled else (),
            starting=self._starting,
            epoch=self.epoch,
            synced=self.synced,
            horizon=self._horizon,
            claims=self._claims,
            quiet=self._quiet,
            elastic=tuple(self._running[key] for key in self._elastic),
            version=self._version,
        )

    # Inside

    def _own(self) -> None:
        """Copy what a snapshot holds before it is changed."""
        if self._lent:
            self._ledger = self._ledger.copy()
            self._running = self._running.copy()
            self._shapes = self._shapes.copy()
            self._horizon = self._horizon.copy()
            self._lent = False

    def _set_inventory(self, inventory: Inventory) -> None:
        """Lay everything out anew for other nodes or teams."""
        self._own()
        self._inventory = inventory
        gone = {model: 0 for running in self._running.values() for model, _ in running.amounts}
        self._limits = LimitTables(self.tree, gone | inventory.cards)  # use of a model that has left goes on counting
        self._ledger = Ledger(inventory)
        self._horizon = Horizon(len(inventory), inventory.width)
        table = self._limits.at(self.epoch)
        self._used = [0] * table.slots
        self._quiet = {}
        for running in self._running.values():
            self._charge_accounts(running, 1)
            self._hold(running)
        for (name, gpu), state in self._cards.items():
            self._ledger.set_working(inventory.index[name], gpu, working=state is CardState.OK, held=False)
        for name, node_state in self._states.items():
            self._ledger.set_ready(inventory.index[name], ready=node_state is NodeState.READY)
        for node in range(len(inventory)):
            self._refresh(node)
        self._refit()

    def _refit(self) -> None:
        for number, lane in self._lanes.items():
            team = self.tree.index[lane.jobs[0].team]
            self._lanes[number] = replace(lane, team=team, fit=self._fit(lane.shape))

    def _uncount(self, shape: Shape) -> None:
        """One job less of a shape holds cards."""
        if self._shapes[shape] == 1:
            del self._shapes[shape]
        else:
            self._shapes[shape] -= 1

    def _fit(self, shape: Shape) -> Fit:
        return Fit(shape, self._inventory, self.policy.inference_headroom)

    def _lane_number(self, job: PendingJob) -> int:
        key = (job.team, job.shape)
        number = self._lane_numbers.setdefault(key, self._next_lane)
        self._next_lane = max(self._next_lane, number + 1)
        if number not in self._lanes:
            self._lanes[number] = Lane(number, self.tree.index[job.team], job.shape, self._fit(job.shape))
        return number

    def _amounts(self, pieces: tuple[Piece, ...]) -> tuple[tuple[str, int], ...]:
        totals: dict[str, int] = {}
        for piece in pieces:
            node = self._inventory.nodes[self._inventory.index[piece.node]]
            totals[node.model] = totals.get(node.model, 0) + replica_nano(len(piece.gpus), piece.mib, node.vram_mib)
        return tuple(totals.items())

    def _charge(self, running: RunningJob, sign: int, now: float) -> None:
        """Change the accounts of a job's team and its ancestors, after settling what they have used until ``now``."""
        half_life = self.policy.fair.half_life
        for team in self.tree.lineage[self.tree.index[running.job.team]]:
            self._uses[team] = settle(self._uses[team], self._held(team), now, half_life)
        self._charge_accounts(running, sign)

    def _charge_accounts(self, running: RunningJob, sign: int) -> None:
        charges = self._limits.at(self.epoch).charges[self.tree.index[running.job.team]]
        for model, amount in running.amounts:
            for slot in charges.get(model, ()):
                self._used[slot] += sign * amount

    def _held(self, team: int) -> float:
        return self._used[self._limits.at(self.epoch).slot(team, "*")] / NANO

    def _hold(self, running: RunningJob) -> None:
        groups = {group.name: group for group in running.job.shape.groups}
        for piece in running.pieces:
            node = self._inventory.index.get(piece.node)
            if node is None:
                continue
            group = groups[piece.group]
            self._ledger.take_host(node, group.cpus_milli, group.memory_mib)
            if piece.mib:
                for gpu in self._present(node, piece):
                    self._ledger.take_slice(node, gpu, piece.mib)
            else:
                self._ledger.hold_cards(node, piece.gpus)
                self._horizon.promise(node, running.job.key, running.ends_by, len(piece.gpus))
            self._refresh(node)

    def _present(self, node: int, piece: Piece) -> Iterator[int]:
        """The cards of a piece that the node still has: it may have come back with fewer."""
        cards = self._inventory.nodes[node].gpus
        return (gpu for gpu in piece.gpus if gpu < cards)

    def _promise_at_once(self, running: RunningJob) -> None:
        """Expect the cards of a job that is stopping back at any moment."""
        for piece in running.pieces:
            node = self._inventory.index.get(piece.node)
            if node is not None and not piece.mib:
                self._horizon.forget(node, running.job.key)
        for piece in running.pieces:
            node = self._inventory.index.get(piece.node)
            if node is not None and not piece.mib:
                self._horizon.promise(node, running.job.key, STOPPING_ENDS, len(piece.gpus))
                self._refresh(node)

    def _refresh(self, node: int) -> None:
        self._horizon.refresh(node, self._ledger.free[node].bit_count())

    def _release_piece(self, job: PendingJob, piece: Piece) -> None:
        node = self._inventory.index.get(piece.node)
        if node is None:
            return
        group = next(group for group in job.shape.groups if group.name == piece.group)
        self._ledger.take_host(node, -group.cpus_milli, -group.memory_mib)
        if piece.mib:
            for gpu in self._present(node, piece):
                self._ledger.give_slice(node, gpu, piece.mib)
        else:
            self._ledger.give_cards(node, piece.gpus)
            self._horizon.forget(node, job.key)
        self._refresh(node)


def _order(job: PendingJob) -> tuple[int, float, int]:
    return job.order
