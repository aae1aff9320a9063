"""Small clusters, teams, policies, jobs and histories for Hypothesis: small, so that everything can be tried.

Each node, job and move is made of one number. That is quick to draw, keeps the odds in our hands (most jobs should fit
somewhere, some should not), and still lets Hypothesis leave out one after the other when it looks for a small example.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from quotas.limits import Amount, Quota, QuotaTree, Team
from scheduler.engine.cluster import CardState, Node, NodeState
from scheduler.engine.demand import Group, Kind, Level, PendingJob, Shape, Topology
from scheduler.engine.policy import Backpressure, Elastic, Placement, Policy, Preemption, Queueing, Reclaim

T = TypeVar("T")
NAMES = ("n1", "n2", "n3", "n10", "x1", "x2")
TEAMS = ("t0", "t1", "t2", "t3", "t4")
LABELS = (("zone", "a"), ("zone", "b"), ("disk", "ssd"))
TAINTS = ("night", "lab")
PLACEMENTS = (Placement.BINPACK, Placement.SPREAD, Placement.HYBRID)


class Move(NamedTuple):
    """One thing that happens; ``which`` chooses among what is there."""

    kind: str
    which: int
    what: object = None


def drawn(make: Callable[[Random], T]) -> st.SearchStrategy[T]:
    return st.integers(0, 1 << 24).map(lambda seed: make(Random(seed)))


def some(dice: Random, values: Sequence[T], chance: float) -> tuple[T, ...]:
    """One or two of ``values`` with a chance, else none."""
    return tuple(dict.fromkeys(dice.sample(values, dice.choice((1, 1, 2))))) if dice.random() < chance else ()


def a_node(dice: Random) -> Node:
    return Node(
        dice.choice(NAMES), dice.choice((1, 2, 3, 4, 4)), dice.choice("AAB"),
        vram_mib=dice.choice((10, 12)), reserve_mib=dice.choice((0, 1, 2)),
        cpus_milli=dice.choice((2000, 5000, 9000, 9000)), memory_mib=dice.choice((3, 100, 100)),
        labels=some(dice, LABELS, 0.5), taints=some(dice, TAINTS, 0.15),
    )  # fmt: skip


def an_amount(dice: Random) -> Amount:
    return Amount(dice.choice((25, 50, 100)), percent=True) if dice.random() < 0.2 else Amount(dice.choice(_CARDS))


_CARDS = (0, 1, 2, 2, 3, 4, 6, 0.5, 1.25)


def a_tree(dice: Random) -> QuotaTree:
    """The same five teams, in a tree of any form, with numbers or without."""
    teams = []
    for position, name in enumerate(TEAMS):
        quotas = tuple(
            Quota(model, an_amount(dice), an_amount(dice) if dice.random() < 0.7 else None)
            for model in some(dice, ("A", "B", "*"), 0.7)
        )
        teams.append(Team(name, dice.choice((None, *TEAMS[:position])), dice.choice((1.0, 2.0, 0.5)), quotas))
    return QuotaTree(tuple(teams))


def a_group(dice: Random, name: str) -> Group:
    share = dice.random() < 0.4
    return Group(
        name, dice.choice((1, 1, 1, 2, 3)), dice.choice((1, 1, 1, 2, 3)),
        cpus_milli=dice.choice((0, 500, 500, 1000, 3000)), memory_mib=dice.choice((0, 0, 1, 2)),
        vram_mib=dice.choice((2, 3, 4, 5, 8)) if share else dice.choice((0, 0, 0, 0, 0, 11)), share=share,
        models=some(dice, "AAAAABBBBC", 0.3), selector=some(dice, LABELS, 0.07), tolerations=some(dice, TAINTS, 0.3),
        kind=dice.choice(tuple(Kind)),
    )  # fmt: skip


def a_job(dice: Random) -> PendingJob:
    groups = tuple(a_group(dice, name) for name in "abc"[: dice.choice((1, 1, 1, 1, 2, 3))])
    excluded, avoided = frozenset(some(dice, NAMES, 0.15)), frozenset(some(dice, NAMES, 0.15))
    gated = dice.random() < 0.15
    return PendingJob(
        "", dice.choice(TEAMS), Shape(groups, excluded=excluded, avoided=avoided),
        priority=dice.choice((500, 500, 500, 900, 100)), submitted=float(dice.randrange(5)),
        held="audit" if gated and dice.random() < 0.3 else "",
        backoff_until=dice.choice((0.0, 20.0)) if gated else 0.0, not_before=dice.choice((0.0, 40.0)) if gated else 0.0,
        waits_for=("x is running",) if gated and dice.random() < 0.2 else (),
    )  # fmt: skip


def a_policy(dice: Random) -> Policy:
    pressure = (dice.choice((0, 2)), dice.choice((0, 1, 3)), dice.choice((0, 1))) if dice.random() < 0.2 else ()
    return Policy(
        dice.choice(tuple(Queueing)), dice.random() < 0.5, placement=dice.choice(PLACEMENTS),
        inference_headroom=dice.choice((0.0, 0.25)), backpressure=Backpressure(*pressure),
        preemption=Preemption(enabled=False), reclaim=Reclaim(enabled=False),
    )  # fmt: skip


def a_move(dice: Random) -> Move:
    kind, which = dice.choice(_KINDS), dice.randrange(100)
    makers: dict[str, Callable[[Random], object]] = {
        "submit": a_job,
        "join": a_node,
        "tree": a_tree,
        "node": lambda dice: dice.choice((NodeState.READY, *NodeState)),
        "card": lambda dice: dice.choice((CardState.OK, *CardState)),
    }
    return Move(kind, which, makers[kind](dice) if kind in makers else None)


_KINDS = (*["submit"] * 6, *["finish"] * 3, "requeue", "cancel", "run", "leave", "join", "node", "card", "tree")

# Clusters on which people take from each other: whole cards mostly, limits on time, elastic jobs, racks.


def a_racked_node(dice: Random) -> Node:
    return Node(
        dice.choice(NAMES), dice.choice((1, 2, 3, 4)), dice.choice("AAAB"), vram_mib=10, reserve_mib=0,
        cpus_milli=9000, memory_mib=100, rack=dice.choice(("r1", "r2")),
    )  # fmt: skip


def a_guaranteed_tree(dice: Random) -> QuotaTree:
    """Teams of which some are guaranteed something, some bounded, some below another."""
    teams = []
    for position, name in enumerate(TEAMS):
        quotas = tuple(_a_guarantee(dice, model) for model in some(dice, ("A", "A", "*"), 0.7)[:1])
        parent = dice.choice((None, None, *TEAMS[:position]))
        teams.append(Team(name, parent, dice.choice((1.0, 2.0, 0.5)), quotas))
    return QuotaTree(tuple(teams))


def _a_guarantee(dice: Random, model: str) -> Quota:
    limit = Amount(dice.choice((2, 4, 6))) if dice.random() < 0.4 else None
    lent = Amount(dice.choice((0, 1, 2))) if dice.random() < 0.15 else None
    return Quota(model, Amount(dice.choice((0, 1, 2, 2, 3, 4))), limit, lent)


def a_taking_policy(dice: Random) -> Policy:
    return Policy(
        dice.choice(tuple(Queueing)), dice.random() < 0.7, dice.choice((0, 1, 2)),
        placement=dice.choice(PLACEMENTS), elastic=Elastic(dice.random() < 0.6),
        preemption=Preemption(dice.random() < 0.8, *dice.choice(((0.0, 900.0, 9, 0.0), (5.0, 30.0, 2, 10.0)))),
        reclaim=Reclaim(dice.random() < 0.6, dice.choice((0.0, 5.0))),
    )  # fmt: skip


def a_taking_job(dice: Random) -> PendingJob:
    replicas, gpus = dice.choice((1, 1, 1, 2, 3)), dice.choice((1, 1, 2, 3))
    least = most = None
    if dice.random() < 0.3:
        least, most = dice.choice((None, 1)), dice.choice((None, replicas + 2))
    share = dice.random() < 0.1
    group = Group(
        "main", replicas, 1 if share else gpus, cpus_milli=100, memory_mib=1, vram_mib=4 if share else 0, share=share,
        models=some(dice, "AAB", 0.2)[:1], min_replicas=least, max_replicas=most,
    )  # fmt: skip
    return PendingJob(
        "", dice.choice(TEAMS), Shape((group,), a_topology(dice)), priority=dice.choice((100, 200, 500, 900)),
        submitted=float(dice.randrange(5)), time_limit=dice.choice((None, None, 20.0, 50.0, 90.0)),
        preemptible=dice.random() < 0.9, min_runtime=dice.choice((None, None, None, 15.0)),
        checkpoint_every=dice.choice((None, 5.0)),
    )  # fmt: skip


def a_topology(dice: Random) -> Topology:
    kind = dice.choice((*[""] * 9, "require", "prefer", "spread"))
    level = dice.choice((Level.NODE, Level.RACK))
    if kind == "spread":
        return Topology(spread=level, max_per_domain=dice.choice((None, 0.5)))
    if kind == "require":
        return Topology(require=level)
    return Topology(prefer=level if kind else None)


def a_taking_move(dice: Random) -> Move:
    kind = dice.choice((*["submit"] * 6, "finish", "cancel", "node", "tree", "wait"))
    what: object = a_taking_job(dice) if kind == "submit" else None
    if kind == "node":
        what = dice.choice((NodeState.READY, NodeState.READY, NodeState.DOWN, NodeState.CORDONED))
    return Move(kind, dice.randrange(100), a_guaranteed_tree(dice) if kind == "tree" else what)


takings = st.tuples(
    st.lists(drawn(a_racked_node), min_size=1, max_size=3, unique_by=lambda node: node.name),
    drawn(a_guaranteed_tree),
    drawn(a_taking_policy),
    st.lists(drawn(a_taking_job), min_size=5, max_size=10),
    st.lists(drawn(a_taking_move), min_size=2, max_size=10),
)

nodes = st.lists(drawn(a_node), min_size=2, max_size=5, unique_by=lambda node: node.name)
histories = st.tuples(
    nodes,
    drawn(a_tree),
    drawn(a_policy),
    st.lists(drawn(a_job), min_size=1, max_size=8),
    st.lists(drawn(a_move), max_size=10),
)
