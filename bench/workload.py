"""The mixed load of the benchmarks: a cluster, a tree of teams and jobs of some hundred shapes, all from one seed.

Three models, labels and taints on a tenth of the nodes each, 20 teams in three levels with limits, 30 % gangs,
20 % memory slices.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from quotas.limits import Amount, Quota, QuotaTree, Team
from scheduler.engine.cluster import Node
from scheduler.engine.demand import MIB_PER_GIB, Group, PendingJob, Shape

MODELS = (("H100", 80, 5), ("A100", 40, 3), ("L40S", 48, 2))
"""Model, GiB per card, tenths of the nodes."""

PRIORITIES = (100, 500, 500, 500, 900)


def cluster(nodes: int, gpus: int) -> list[Node]:
    """``nodes`` nodes of ``gpus`` cards; every tenth has a label, every tenth a taint."""
    by_tenth = [(model, gib) for model, gib, tenths in MODELS for _ in range(tenths)]
    return [
        Node(
            name=f"n{number}",
            gpus=gpus,
            model=by_tenth[number // 2 % 10][0],
            vram_mib=by_tenth[number // 2 % 10][1] * MIB_PER_GIB,
            rack=f"rack{number // 16}",
            switch=f"switch{number // 128}",
            labels=(("zone", "edge"),) if number % 10 == 3 else (),
            taints=("maintenance",) if number % 10 == 7 else (),
        )
        for number in range(nodes)
    ]


def teams(cards: int) -> QuotaTree:
    """Two departments, six groups and twelve teams below them; the leaves may borrow up to twice their share."""
    tree = [Team(f"dept{d}", quotas=(Quota("*", Amount(cards // 2), Amount(cards)),)) for d in range(2)]
    tree += [
        Team(f"group{g}", f"dept{g % 2}", quotas=(Quota("*", Amount(cards // 6), Amount(cards)),)) for g in range(6)
    ]
    tree += [
        Team(f"team{t}", f"group{t % 6}", 1 + t % 3, (Quota("*", Amount(cards // 12), Amount(cards // 6)),))
        for t in range(12)
    ]
    return QuotaTree(tuple(tree))


def groups(draw: random.Random, gpus_per_node: int) -> Iterator[Group]:
    """Endless groups: half are single jobs of whole cards, 30 % gangs, 20 % slices."""
    while True:
        kind = draw.random()
        model = draw.choice([("H100",), ("A100",), ("L40S",), ("H100", "A100"), ()])
        selector = (("zone", "edge"),) if draw.random() < 0.05 else ()
        tolerations = ("maintenance",) if draw.random() < 0.2 else ()
        if kind < 0.2:
            yield Group(
                vram_mib=draw.randrange(2, 20) * MIB_PER_GIB, share=True, models=model, selector=selector,
                tolerations=tolerations, cpus_milli=draw.choice([1000, 2000]),
            )  # fmt: skip
            continue
        replicas = draw.choice([2, 2, 4, 4, 8, 16]) if kind < 0.5 else 1
        gpus = draw.choice([1, 2, 4, gpus_per_node] if replicas > 1 else [1, 1, 1, 2, 2, 4, gpus_per_node])
        gpus = min(gpus, gpus_per_node)
        yield Group(
            replicas=replicas, gpus=gpus, models=model, selector=selector, tolerations=tolerations,
            cpus_milli=gpus * draw.choice([1000, 4000, 8000]), memory_mib=gpus * draw.choice([8, 16]) * MIB_PER_GIB,
        )  # fmt: skip


def jobs(count: int, shapes: int, gpus_per_node: int, seed: int = 0, *, first: int = 0) -> list[PendingJob]:
    """``count`` jobs over ``shapes`` pairs of team and shape; with as many shapes as jobs every one is distinct."""
    draw = random.Random(seed)
    drawn = groups(draw, gpus_per_node)
    kinds: dict[tuple[str, Shape], None] = {}
    while len(kinds) < shapes:
        group = next(drawn)
        if shapes == count:  # as many shapes as that need one more free number
            group = replace(group, memory_mib=group.memory_mib + len(kinds))
        kinds[f"team{draw.randrange(12)}", Shape((group,))] = None
    pairs = list(kinds)
    return [
        PendingJob(
            key=f"j{first + number}", team=team, shape=shape, priority=draw.choice(PRIORITIES),
            submitted=float(number), sequence=first + number, time_limit=3600.0,
        )
        for number, (team, shape) in enumerate(draw.choice(pairs) if shapes < count else pairs[n] for n in range(count))
    ]  # fmt: skip
