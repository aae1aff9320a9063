"""What holds of every decision in which people take from each other, grow, shrink and reserve, through histories.

As in ``test_properties``, the rules are restated for clearness alone; whoever has to leave is gone after a while.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quotas.limits import QuotaTree, Team
from scheduler.engine.cluster import Node, NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.demand import Level, PendingJob
from scheduler.engine.plan import Cause, Piece, Plan, Preempt
from scheduler.engine.policy import Policy, Preemption, Queueing, Reclaim
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import Phase, RunningJob
from scheduler.engine.walk import Walk
from tests.engine.board import waiting
from tests.engine.generated import TEAMS, Move, a_racked_node, a_taking_job, drawn, takings
from tests.engine.referee import State, barred, check_start, fits, lineage, matches

History = tuple[list[Node], QuotaTree, Policy, list[PendingJob], list[Move]]
STEP = 5.0


class World:
    """A roster whose plans are carried out; whoever is told to stop leaves when :meth:`leave` is called."""

    def __init__(self, nodes: list[Node], tree: QuotaTree, policy: Policy) -> None:
        self.roster = Roster(tree, policy, nodes)
        self.nodes = {node.name: node for node in nodes}
        self.now = 0.0
        self.submitted = 0

    def submit(self, job: PendingJob) -> None:
        self.submitted += 1
        self.roster.submit(replace(job, key=f"j{self.submitted}", sequence=self.submitted))

    def running(self) -> dict[str, RunningJob]:
        return dict(self.roster.snapshot(self.now).running)

    def state(self) -> State:
        """The same as the referee sees it."""
        state = State(self.nodes, self.roster.tree)
        state.node_states = {name: self.roster.node_state(name) for name in self.nodes}
        for key, one in self.running().items():
            state.running[key] = (sized_like(one.job, one.pieces), one.pieces, state.use_of(one.pieces))
        return state

    def make(self, move: Move) -> None:
        """Let a move happen, if there is something for it to happen to."""
        found = waiting(self.roster)
        running = sorted(self.running())
        if isinstance(move.what, PendingJob):
            self.submit(move.what)
        elif isinstance(move.what, QuotaTree):
            self.roster.set_tree(move.what)
        elif isinstance(move.what, NodeState):
            self.roster.set_node_state(sorted(self.nodes)[move.which % len(self.nodes)], move.what)
        elif move.kind == "finish" and running:
            self.roster.release(running[move.which % len(running)], self.now)
        elif move.kind == "cancel" and found:
            self.roster.withdraw(found[move.which % len(found)][1].key)

    def decide(self) -> Plan:
        return decide(self.roster.snapshot(self.now), self.roster.policy, self.now)

    def carry_out(self, plan: Plan) -> None:
        self.roster.keep(plan.claims)
        for resize in plan.resizes:
            self.roster.resize(resize.job, resize.pieces, self.now)
        for start in plan.starts:
            self.roster.start(start.job, start.pieces, self.now)
        for preempt in plan.preempts:
            self.roster.set_phase(preempt.job, Phase.STOPPING)

    def leave(self) -> int:
        """Those who are stopping are gone, and wait again; so does who has reached its limit, for good."""
        stopping = [one.job for one in self.running().values() if one.phase is Phase.STOPPING]
        for job in stopping:
            self.roster.release(job.key, self.now)
            self.roster.submit(replace(job, taken=job.taken + 1, returning=True))
        for key, one in self.running().items():
            if one.ends_by is not None and one.ends_by <= self.now:
                self.roster.release(key, self.now)
        return len(stopping)


def played(history: History, *, lingers: bool = True) -> Iterator[World]:
    """A history, move by move; with ``lingers`` those who must leave take until the next move."""
    nodes, tree, policy, first, moves = history
    world = World(nodes, tree, policy)
    for job in first:
        world.submit(job)
    yield world
    for move in moves:
        world.now += STEP
        world.make(move)
        if lingers and move.which % 2:
            world.carry_out(world.decide())
        world.leave()
        yield world


def sized_like(job: PendingJob, pieces: tuple[Piece, ...]) -> PendingJob:
    """The job with as many replicas as it has pieces, numbered from nought."""
    (group,) = job.shape.groups
    return replace(job, shape=replace(job.shape, groups=(replace(group, replicas=len(pieces)),)))


def numbered(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    return tuple(piece._replace(replica=number) for number, piece in enumerate(pieces))


def check_size(job: PendingJob, pieces: tuple[Piece, ...], *, grown: bool) -> None:
    (group,) = job.shape.groups
    least = group.replicas if group.min_replicas is None else group.min_replicas
    most = max(group.replicas, group.max_replicas or 0) if grown else group.replicas
    assert least <= len(pieces) <= most, "within its replicas"
    assert len({piece.replica for piece in pieces}) == len(pieces)


def check_topology(job: PendingJob, pieces: tuple[Piece, ...], nodes: dict[str, Node]) -> None:
    topology = job.shape.topology

    def domains(level: Level) -> list[str]:
        return [nodes[piece.node].domain(level) for piece in pieces]

    if topology.require is not None:
        assert len(set(domains(topology.require))) == 1, "in one domain"
    if topology.spread is not None and topology.max_per_domain is not None:
        found = domains(topology.spread)
        most = max(1, int(topology.max_per_domain * len(pieces) + 1e-9))
        assert max(found.count(domain) for domain in found) <= most, "not too many in one domain"


@given(takings)
def test_starts_growth_and_claims_keep_every_rule(history: History) -> None:
    """Limits, cards, memory, health, sizes and topology: of starts and resizes now, of claims when all have left."""
    for world in played(history):
        plan = world.decide()
        state, before = world.state(), world.running()
        for resize in plan.resizes:
            job, pieces = before[resize.job].job, resize.pieces
            more = [piece for piece in pieces if piece not in before[resize.job].pieces]
            state.running.pop(resize.job)
            if more:
                check_start_of(state, job, pieces, fresh=tuple(more))
                check_topology(job, pieces, world.nodes)
            check_size(job, pieces, grown=True)
            state.running[resize.job] = (sized_like(job, pieces), pieces, state.use_of(pieces))
        for start in plan.starts:
            waits = world.roster.waiting(start.job)
            assert waits is not None
            check_size(waits, start.pieces, grown=False)
            check_topology(waits, start.pieces, world.nodes)
            check_start(state, sized_like(waits, start.pieces), start.pieces)
            state.running[start.job] = (sized_like(waits, start.pieces), start.pieces, state.use_of(start.pieces))
        check_claims(world, plan, gone(world, plan, state))
        world.carry_out(plan)


def check_start_of(state: State, job: PendingJob, pieces: tuple[Piece, ...], fresh: tuple[Piece, ...]) -> None:
    """The growth of a job: only what is new has to find ready nodes and leave the limits whole."""
    old = tuple(piece for piece in pieces if piece not in fresh)
    if old:
        state.running[job.key] = (sized_like(job, old), old, state.use_of(old))
    check_start(state, sized_like(job, fresh), numbered(fresh))


def gone(world: World, plan: Plan, state: State) -> State:
    """The state once all who must leave have left."""
    state = copy.copy(state)
    leaving = {preempt.job for preempt in plan.preempts}
    leaving |= {key for key, one in world.running().items() if one.phase is Phase.STOPPING}
    state.running = {key: held for key, held in state.running.items() if key not in leaving}
    return state


def check_claims(world: World, plan: Plan, state: State) -> None:
    """I6 and I7: every claim has an owner who waits, every victim a winner with a claim, and all of them then start."""
    winners = {claim.winner for claim in plan.claims}
    assert {preempt.winner for preempt in plan.preempts} <= winners
    assert not winners & {start.job for start in plan.starts}
    for claim in plan.claims:
        name, _, replica = claim.winner.partition("+")
        if replica:
            assert name in state.running, "one that grows runs"
            job = world.running()[name].job
            state.running[claim.winner] = (sized_like(job, claim.pieces), claim.pieces, state.use_of(claim.pieces))
            continue
        waits = world.roster.waiting(claim.winner)
        assert waits is not None, "an owner waits for it"
        check_size(waits, claim.pieces, grown=False)
        check_topology(waits, claim.pieces, world.nodes)
        check_start(state, sized_like(waits, claim.pieces), claim.pieces)
        state.running[claim.winner] = (sized_like(waits, claim.pieces), claim.pieces, state.use_of(claim.pieces))


@given(takings)
def test_nobody_is_taken_from_who_is_protected(history: History) -> None:
    for world in played(history):
        plan = world.decide()
        state = world.state()
        for start in plan.starts:
            waits = world.roster.waiting(start.job)
            assert waits is not None
            state.running[start.job] = (sized_like(waits, start.pieces), start.pieces, state.use_of(start.pieces))
        for preempt in plan.preempts:
            check_right(world, preempt, state)
        world.carry_out(plan)


def check_right(world: World, preempt: Preempt, state: State) -> None:
    """``state`` has the starts of the same decision: a team may be above its number by them."""
    policy, victim = world.roster.policy, world.running()[preempt.job]
    name = preempt.winner.partition("+")[0]
    waits = world.roster.waiting(name)
    winner = world.running()[name].job if waits is None else waits
    rules = policy.reclaim if preempt.cause is Cause.RECLAIM else policy.preemption
    own = victim.job.min_runtime
    assert rules.enabled
    assert world.now >= victim.started + (rules.min_runtime if own is None else own)
    assert victim.phase is not Phase.STOPPING
    if preempt.cause is Cause.PREEMPTION:
        taking = policy.preemption
        assert victim.job.priority < winner.priority
        assert victim.job.preemptible
        assert victim.job.taken < taking.max_per_job
        assert world.now < victim.started + taking.protect_after
        assert not victim.job.returning or world.now >= victim.started + taking.cooldown
        return
    tree = world.roster.tree
    own_numbers = {quota.model: quota for quota in tree.teams[tree.index[victim.job.team]].quotas}
    numbers = [own_numbers.get(model, own_numbers.get("*")) for model, _ in victim.amounts]
    assert any(
        quota is None or state.used(victim.job.team, quota.model) > quota.guaranteed.nano(0) for quota in numbers
    ), "only of those above theirs"
    above = [tree.teams[tree.index[team]] for team in lineage(tree, winner.team)]
    assert any(quota.guaranteed.nano(0) for team in above for quota in team.quotas)


@given(takings)
def test_no_victim_is_superfluous(history: History) -> None:
    """Spare any one of them and the winner fits nowhere: by trying everything."""
    for world in played(history):
        plan = world.decide()
        state = world.state()
        for start in plan.starts:
            waits = world.roster.waiting(start.job)
            assert waits is not None
            state.running[start.job] = (sized_like(waits, start.pieces), start.pieces, state.use_of(start.pieces))
        new = [claim for claim in plan.claims if claim.winner in {preempt.winner for preempt in plan.preempts}]
        winner = world.roster.waiting(new[0].winner) if len(plan.claims) == 1 and new else None
        lent = any(quota.lend_limit for team in world.roster.tree.teams for quota in team.quotas)
        plain = (
            not plan.resizes and not world.roster.policy.reserve_for and not lent
        )  # no rule that `fits` knows not of
        if winner is not None and plain and winner.shape.topology.require is winner.shape.topology.spread is None:
            least = sized_like(winner, new[0].pieces)
            models = {world.nodes[piece.node].model for piece in new[0].pieces}  # others it may have no right to
            assert fits(gone(world, plan, state), least, allowed_nodes(gone(world, plan, state), least, models))
            for preempt in plan.preempts:
                spared = gone(world, replace_preempts(plan, preempt), state)
                assert not fits(spared, least, allowed_nodes(spared, least, models)), f"{preempt} is superfluous"
        world.carry_out(plan)


def replace_preempts(plan: Plan, spared: Preempt) -> Plan:
    return replace(plan, preempts=tuple(each for each in plan.preempts if each is not spared))


def allowed_nodes(state: State, job: PendingJob, models: set[str]) -> Callable[[Node], bool]:
    (group,) = job.shape.groups
    open_ = models - {node.model for node in state.nodes.values() if barred(state, job, node)}
    return lambda node: matches(group, node, state.headroom) and node.model in open_


@given(takings)
def test_with_nothing_new_it_comes_to_rest(history: History) -> None:
    """I5: whatever has happened, those who were ended do not come back to end others, round and round."""
    for world in played(history, lingers=False):
        ended: list[tuple[str, str]] = []
        for _ in range(2 * (len(waiting(world.roster)) + len(world.running())) + 6):
            plan = world.decide()
            ended += [(preempt.job, preempt.winner) for preempt in plan.preempts]
            world.carry_out(plan)
            left = world.leave()
            if not (plan.starts or plan.preempts or plan.resizes or left):
                break
        else:
            raise AssertionError(f"it never comes to rest: {ended}")
        quiet = world.decide()
        assert (quiet.starts, quiet.preempts, quiet.resizes) == ((), (), ())


@given(takings)
def test_same_input_same_plan(history: History) -> None:
    for world in played(history):
        snapshot = world.roster.snapshot(world.now)
        before = copy.copy(snapshot), snapshot.ledger.copy(), dict(snapshot.running)
        plan = decide(snapshot, world.roster.policy, world.now)
        assert decide(snapshot, world.roster.policy, world.now) == plan
        assert (snapshot, snapshot.ledger, dict(snapshot.running)) == before
        world.carry_out(plan)


@given(takings)
def test_claims_vanish_with_their_owners(history: History) -> None:
    """I7, in the next decision."""
    for world in played(history):
        plan = world.decide()
        world.carry_out(plan)
        for claim in plan.claims:
            if world.roster.waiting(claim.winner) is not None:
                world.roster.withdraw(claim.winner)
        assert not {claim.winner for claim in plan.claims if "+" not in claim.winner} & {
            claim.winner for claim in world.decide().claims
        }


@given(
    st.lists(drawn(a_racked_node), min_size=1, max_size=4, unique_by=lambda node: node.name),
    st.lists(drawn(a_taking_job), min_size=3, max_size=14),
    st.sampled_from(("binpack", "spread", "hybrid")),
)
def test_a_promise_is_kept(nodes: list[Node], jobs: list[PendingJob], placement: str) -> None:
    """In one line, and all run as long as they may: what is promised to the head never moves, and it starts by then."""
    tree = QuotaTree(tuple(Team(name) for name in TEAMS))
    policy = replace(Policy(), queueing=Queueing.FIFO, preemption=Preemption(False), reclaim=Reclaim(False))
    world = World(nodes, tree, replace(policy, placement=type(policy.placement)(placement)))
    promised: dict[str, float] = {}
    for number in range(len(jobs) + 25):
        if number < len(jobs):
            world.submit(unelastic(jobs[number], at=float(number)))
        walk = Walk(world.roster.snapshot(world.now), world.roster.policy, world.now, {})
        walk.honour_claims()
        walk.start_what_fits()
        plan = world.decide()
        assert walk.reservations is not None
        for start in plan.starts:
            assert world.now <= promised.get(start.job, world.now) + 1e-6
        for reservation in walk.reservations.made:
            key = reservation.job.key
            assert reservation.at > world.now, "no promise lies in the past (C41)"
            assert reservation.at <= promised.get(key, reservation.at), "nor moves later"
            promised[key] = reservation.at
        world.carry_out(plan)
        world.now += STEP
        world.leave()


def unelastic(job: PendingJob, at: float) -> PendingJob:
    """A job of whole cards, a fixed size and any place, with a limit that ends on a step."""
    (group,) = job.shape.groups
    group = replace(group, min_replicas=None, max_replicas=None, share=False, vram_mib=0)
    topology = replace(job.shape.topology, spread=None, max_per_domain=None, prefer=None)
    limit = 5.0 * (1 + len(job.team + group.name) % 3 + job.priority % 7) if job.time_limit is None else job.time_limit
    return replace(
        job, shape=replace(job.shape, groups=(group,), topology=topology), submitted=at, priority=500, time_limit=limit
    )
