"""`rota bench live`: a whole cycle through real PostgreSQL, on the mixed load, with a simulated backend behind it.

Measured in a process of its own (`bench.live_process`), the only one here that knows Django, on stores of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from bench.gates import Bar, Gate, Target
from bench.report import Report, Unavailable
from bench.stores import stores

CYCLE_SECONDS_P95, STARTS_PER_SECOND = 1.0, 500.0
"""The budgets of the design, for 1,250 nodes of 8 cards and 10,000 waiting jobs on 2 cores."""
MOST_QUERIES = 40
"""A cycle that starts, ends and explains takes no more statements than that, however many jobs there are."""
MOST_GROWTH = 2.0
"""What a start costs at the full depth of the queue, in times of that at a tenth of it; ten would be linear."""
TIMEOUT_S = 1_800


@dataclass(frozen=True, slots=True)
class Size:
    """What is measured: the cluster, how many jobs wait in how many shapes, how many cycles, how many ends in each."""

    nodes: int = 1_250
    gpus: int = 8
    pending: int = 10_000
    shapes: int = 200
    cycles: int = 30
    ends: int = 100


FULL = Size()
QUICK = Size(nodes=100, pending=1_000, cycles=10, ends=20)


def measure(size: Size) -> Report:
    """Measure everything; see the module. Raises Unavailable where there is no PostgreSQL to be had."""
    with stores() as environment:
        done = subprocess.run(
            [sys.executable, "-m", "bench.live_process", json.dumps(asdict(size))],
            env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise Unavailable(f"it did not come through: {(done.stderr.strip() or 'no word').splitlines()[-1]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Report("live", {**figures, "size": asdict(size)}, bars(figures, size))


def bars(figures: dict[str, Any], size: Size) -> tuple[Bar, ...]:
    """What the figures are held to."""
    found: list[Bar] = [
        Gate("statements of a cycle", figures["queries_per_cycle"], "at_most", MOST_QUERIES),
        Gate(
            "statements more than at a tenth of the depth",
            figures["queries_per_cycle"] - figures["shallow"]["queries_per_cycle"],
            "at_most",
            0,
        ),
        Gate("cost of a start, beside a tenth of the depth", figures["cost_per_start_growth"], "at_most", MOST_GROWTH),
    ]
    if (size.nodes, size.gpus, size.pending) == (FULL.nodes, FULL.gpus, FULL.pending):
        found += [
            Target("a whole cycle, p95", figures["cycle_seconds_p95"], "at_most", CYCLE_SECONDS_P95, "s"),
            Target("job starts", figures["starts_per_second"], "at_least", STARTS_PER_SECOND, "/s"),
        ]
    return tuple(found)
