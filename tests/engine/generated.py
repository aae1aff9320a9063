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
from scheduler.engine.demand import Group, Kind, PendingJob, Shape
from scheduler.engine.policy import Backpressure, Placement, Policy, Preemption, Queueing, Reclaim

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

nodes = st.lists(drawn(a_node), min_size=2, max_size=5, unique_by=lambda node: node.name)
histories = st.tuples(
    nodes,
    drawn(a_tree),
    drawn(a_policy),
    st.lists(drawn(a_job), min_size=1, max_size=8),
    st.lists(drawn(a_move), max_size=10),
)
