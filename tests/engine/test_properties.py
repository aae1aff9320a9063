"""What holds of every decision, on generated clusters and through generated histories.

``HYPOTHESIS_PROFILE=deep`` looks for longer. The rules are those of ``referee``, which shares nothing with the engine.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quotas.limits import QuotaTree
from scheduler.engine.cluster import CardState, Node, NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.demand import PendingJob
from scheduler.engine.ledger import Ledger
from scheduler.engine.plan import Plan
from scheduler.engine.policy import Policy, Queueing
from scheduler.engine.reasons import Reason
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import Phase, Snapshot
from tests.engine.board import outcomes, waiting
from tests.engine.generated import Move, histories
from tests.engine.referee import State, barred, check_start, fits, has_model, matches

History = tuple[list[Node], QuotaTree, Policy, list[PendingJob], list[Move]]
NOT_ABOUT_ROOM = {Reason.HELD, Reason.BACKOFF, Reason.NOT_BEFORE, Reason.IMPOSSIBLE, Reason.QUOTA}
OTHERS_FIRST = {Reason.RESERVED, Reason.TURN, Reason.BACKPRESSURE}


class World:
    """A roster and, beside it, the same told to the referee."""

    def __init__(self, nodes: list[Node], tree: QuotaTree, policy: Policy) -> None:
        self.roster = Roster(tree, policy, nodes)
        self.state = State({node.name: node for node in nodes}, tree, policy.inference_headroom)
        self.now = 0.0
        self.submitted = 0

    def submit(self, job: PendingJob) -> None:
        self.submitted += 1
        self.roster.submit(replace(job, key=f"j{self.submitted}", sequence=self.submitted))

    def make(self, move: Move) -> None:
        """Let a move happen, if there is something for it to happen to."""
        if isinstance(move.what, PendingJob):
            self.submit(move.what)
        elif move.kind in ("finish", "requeue", "run"):
            self._to_a_running_job(move)
        elif move.kind == "cancel" and (found := waiting(self.roster)):
            self.roster.withdraw(found[move.which % len(found)][1].key)
        elif isinstance(move.what, QuotaTree):
            self.state.tree = move.what
            self.roster.set_tree(move.what)
        elif move.kind in ("leave", "join", "node", "card"):
            self._to_the_hardware(move)

    def _to_a_running_job(self, move: Move) -> None:
        if not self.state.running:
            return
        key = list(self.state.running)[move.which % len(self.state.running)]
        if move.kind == "run":
            self.roster.set_phase(key, Phase.RUNNING)
            return
        job, _, _ = self.state.running.pop(key)
        self.roster.release(key, self.now)
        if move.kind == "requeue":
            self.roster.submit(job)

    def _to_the_hardware(self, move: Move) -> None:
        state, roster = self.state, self.roster
        if isinstance(move.what, Node):
            state.nodes[move.what.name] = move.what
            roster.add_nodes([move.what])
            return
        if not state.nodes:
            return
        name = sorted(state.nodes)[move.which % len(state.nodes)]
        gpu = move.which % state.nodes[name].gpus
        if isinstance(move.what, NodeState):
            state.node_states[name] = move.what
            roster.set_node_state(name, move.what)
        elif isinstance(move.what, CardState):
            state.card_states[name, gpu] = move.what
            roster.set_card_state(name, gpu, move.what)
        else:
            del state.nodes[name]
            state.node_states.pop(name, None)
            state.card_states = {card: health for card, health in state.card_states.items() if card[0] != name}
            roster.remove_node(name)

    def step(self) -> tuple[Snapshot, Plan]:
        """Decide and start."""
        snapshot = self.roster.snapshot(self.now)
        return snapshot, decide(snapshot, self.roster.policy, self.now)

    def start(self, plan: Plan) -> None:
        for start in plan.starts:
            job = self.roster.waiting(start.job)
            assert job is not None
            self.state.running[start.job] = (job, start.pieces, self.state.use_of(start.pieces))
            self.roster.start(start.job, start.pieces, self.now)


def played(history: History) -> Iterator[World]:
    """A history, move by move; decisions that the caller does not make are made when the history says so."""
    nodes, tree, policy, first, moves = history
    world = World(nodes, tree, policy)
    for job in first:
        world.submit(job)
    yield world
    for move in moves:
        world.now += 7.0
        world.make(move)
        yield world


@given(histories)
def test_starts_keep_every_rule(history: History) -> None:
    """No card twice, no memory over-promised, gangs whole, limits kept, filters respected: start by start."""
    for world in played(history):
        _, plan = world.step()
        state = copy.copy(world.state)
        state.running = dict(state.running)
        for start in plan.starts:
            job = world.roster.waiting(start.job)
            assert job is not None
            check_start(state, job, start.pieces)
            if len(job.shape.groups) == 1 and job.shape.avoided & {piece.node for piece in start.pieces}:
                assert not fits(state, job, _free_for(state, job, avoid=True)), "avoided only while nothing else fits"
            state.running[start.job] = (job, start.pieces, state.use_of(start.pieces))
        world.start(plan)


@given(histories)
def test_every_waiting_job_has_one_true_reason(history: History) -> None:
    for world in played(history):
        _, plan = world.step()
        started = {start.job for start in plan.starts}
        lanes = waiting(world.roster)
        assert len(started) == len(plan.starts)
        world.start(plan)
        for lane, job in lanes:
            if job.key not in started:
                _check_reason(world.state, job, lane, plan)


def _check_reason(state: State, job: PendingJob, lane: int, plan: Plan) -> None:
    hold = plan.hold_of(job, lane)
    assert hold is not None
    assert hold.message
    assert "{" not in hold.message
    assert (hold.reason in (Reason.HELD, Reason.BACKOFF, Reason.NOT_BEFORE)) == (job.key in plan.gated)
    if len(job.shape.groups) > 1:
        return
    (group,) = job.shape.groups
    if hold.reason is Reason.IMPOSSIBLE and "never hold more" not in hold.message:
        empty = state.emptied(whole=True)
        job = replace(job, shape=replace(job.shape, excluded=frozenset()))
        assert not fits(empty, job, lambda node: has_model(group, node, state.headroom))
    elif hold.reason in (Reason.MODEL, Reason.LABELS, Reason.TAINTS):
        assert not fits(state.emptied(whole=True), job, lambda node: matches(group, node, state.headroom))
    elif hold.reason in (Reason.UNHEALTHY, Reason.EXCLUDED):
        assert not fits(state.emptied(), job, _free_for(state, job))
    elif hold.reason in (Reason.QUOTA, Reason.IMPOSSIBLE):
        assert not fits(state.emptied(whole=True), job, _free_for(state, job))
    if hold.reason in OTHERS_FIRST:
        assert fits(state, job, _free_for(state, job)), "others go first only where it would fit"
    elif hold.reason not in NOT_ABOUT_ROOM:
        assert not fits(state, job, _free_for(state, job)), "what waits for room does not fit"


def _free_for(state: State, job: PendingJob, *, avoid: bool = False):  # type: ignore[no-untyped-def]
    (group,) = job.shape.groups
    shut = {node.model for node in state.nodes.values() if barred(state, job, node)}

    def allowed(node: Node) -> bool:
        return (
            matches(group, node, state.headroom)
            and node.model not in shut
            and not (avoid and node.name in job.shape.avoided)
        )

    return allowed


@given(histories)
def test_the_books_are_those_kept_from_scratch(history: History) -> None:
    """Incremental equals rebuilt, whatever has happened; and the ledger's indexes are what they say."""
    for world in played(history):
        _, plan = world.step()
        world.start(plan)
        snapshot, state = world.roster.snapshot(world.now), world.state
        table = snapshot.limits.at(0.0)
        for team in range(len(state.tree.teams)):
            for model in table.models:
                assert snapshot.used[table.slot(team, model)] == state.used(state.tree.teams[team].name, model)
        _check_ledger(snapshot.ledger, state)
        if all(piece.node in state.nodes for _, pieces, _ in state.running.values() for piece in pieces):
            rebuilt = _rebuilt(world, reverse=True).snapshot(world.now)
            assert rebuilt.ledger == snapshot.ledger


def _check_ledger(ledger: Ledger, state: State) -> None:
    inventory = ledger.inventory
    shared: dict[int, int] = {}
    by_free = [0] * (inventory.width + 1)
    for position, node in enumerate(inventory.nodes):
        left = state.left_on(node.name)
        free = sum(1 << gpu for gpu in range(node.gpus) if left.whole[gpu])
        assert ledger.free[position] == free
        assert ledger.working[position] == sum(1 << gpu for gpu in range(node.gpus) if state.works(node.name, gpu))
        assert (ledger.cpus[position], ledger.memory[position]) == (left.cpus_milli, left.memory_mib)
        assert bool(ledger.ready >> position & 1) == state.ready(node.name)
        assert bool(ledger.untouched >> position & 1) == (free == ledger.working[position])
        by_free[free.bit_count()] |= 1 << position
        for gpu in range(node.gpus):
            assert ledger.slice_left(position, gpu) == max(0, left.mib[gpu])
    for card in ledger.shared:
        shared[ledger.shared[card]] = shared.get(ledger.shared[card], 0) | 1 << card // inventory.width
    assert ledger.by_free == by_free
    assert ledger.by_left == shared
    assert ledger.lefts == sorted(shared)


def _rebuilt(world: World, *, reverse: bool) -> Roster:
    """A roster told the present state at once, forwards or backwards."""
    state, step = world.state, -1 if reverse else 1
    roster = Roster(state.tree, world.roster.policy, list(state.nodes.values())[::step])
    for job, pieces, _ in list(state.running.values())[::step]:
        roster.adopt(job, pieces, 0.0, Phase.RUNNING)
    for name, node_state in list(state.node_states.items())[::step]:
        roster.set_node_state(name, node_state)
    for (name, gpu), card_state in list(state.card_states.items())[::step]:
        roster.set_card_state(name, gpu, card_state)
    for _, job in waiting(world.roster)[::step]:
        roster.submit(job)
    return roster


@given(histories)
def test_same_input_same_plan_and_the_snapshot_stays_as_it_is(history: History) -> None:
    for world in played(history):
        snapshot, plan = world.step()
        ledger, rest = snapshot.ledger.copy(), copy.copy(snapshot)
        running = dict(snapshot.running)
        assert decide(snapshot, world.roster.policy, world.now) == plan
        world.start(plan)
        assert snapshot.ledger == ledger, "neither a decision nor what comes after it changes a snapshot"
        assert snapshot == rest
        assert snapshot.running == running
        assert decide(snapshot, world.roster.policy, world.now) == plan


@given(histories)
def test_the_order_of_telling_does_not_matter(history: History) -> None:
    """Nodes, jobs and what runs told the other way round: the very same starts, and the same reasons."""
    for world in played(history):
        if all(piece.node in world.state.nodes for _, pieces, _ in world.state.running.values() for piece in pieces):
            told = []
            for reverse in (False, True):
                roster = _rebuilt(world, reverse=reverse)
                plan = decide(roster.snapshot(world.now), roster.policy, world.now)
                told.append((plan.starts, sorted(outcomes(roster, plan).items()), plan.wake_at))
            assert told[0] == told[1]
        world.start(world.step()[1])


@given(histories)
def test_with_nothing_new_the_second_pass_does_nothing(history: History) -> None:
    """Nor does it say anything else: reasons are never stale.

    Without backfill and in a line that is not fixed, who was ahead may be behind after the starts: one more pass.
    """
    for world in played(history):
        _, plan = world.step()
        world.start(plan)
        policy = world.roster.policy
        if not policy.backfill and policy.queueing is not Queueing.FIFO:
            world.start(world.step()[1])
            _, plan = world.step()
            world.start(plan)
        _, again = world.step()
        assert again.starts == ()
        assert _reasons(world, again) == _reasons(world, plan)


def _reasons(world: World, plan: Plan) -> dict[str, Reason | None]:
    holds = {job.key: plan.hold_of(job, lane) for lane, job in waiting(world.roster)}
    return {key: hold and hold.reason for key, hold in holds.items()}


@given(histories, st.integers(1, 50))
def test_no_decision_raises_at_any_time(history: History, later: int) -> None:
    for world in played(history):
        world.now += later
        _, plan = world.step()
        assert plan.wake_at is None or plan.wake_at > world.now
        world.start(plan)
