"""How long a job will run: from its declared limit, and from how long the jobs of its team have run of theirs.

A running job is known to have lasted so long already: what is left of it is the quantile among those that did.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

KNOTS = 21
"""Knots of a history made from runs: one every 5 %."""


@dataclass(frozen=True, slots=True)
class History:
    """The run times of the past as quantiles, evenly spaced from the least to the most: (5, 7, 90): the median is 7.

    ``fractions`` are of the declared limits (0 to 1), for jobs that have one; ``seconds`` for those that have none.
    Empty: nothing is known.
    """

    fractions: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, runs: Iterable[tuple[float, float | None]], knots: int = KNOTS) -> Self:
        """A history of runs: (seconds it ran, seconds of its limit or None) each."""
        ran = list(runs)
        fractions = [min(1.0, seconds / limit) for seconds, limit in ran if limit]
        return cls(_knots(fractions, knots), _knots([seconds for seconds, _ in ran], knots))


UNSURE = History(fractions=(0.0, 0.25, 0.5, 0.75, 1.0, 1.0))
"""What is assumed where there is no history: any part of the limit is as likely, and a fifth of jobs run into it.

That is the form found by A. W. Mu'alem and D. G. Feitelson, Utilization, predictability, workloads, and user runtime
estimates in scheduling the IBM SP2 with backfilling, IEEE TPDS 12(6), 2001: about uniform, with a peak at the limit.
"""

TO_THE_LIMIT = History(fractions=(1.0,))
"""Every job runs exactly as long as it may."""


@dataclass(frozen=True, slots=True)
class RuntimeModel:
    """The history to go by for each job: that of ``jobs`` (by key; say, of its user), of its team, or the ``prior``."""

    prior: History = UNSURE
    teams: Mapping[str, History] = field(default_factory=lambda: MappingProxyType({}))
    jobs: Mapping[str, History] = field(default_factory=lambda: MappingProxyType({}))

    def left(self, key: str, team: str, limit: float | None, quantile: float, elapsed: float = 0.0) -> float | None:
        """Seconds that a job which has run for ``elapsed`` still runs, at a ``quantile`` (0 to 1); None: nobody knows.

        Never longer than its limit allows.
        """
        history = self.jobs.get(key) or self.teams.get(team) or self.prior
        knots, unit = (history.fractions, limit) if limit and history.fractions else (history.seconds, 1.0)
        most = None if limit is None else max(0.0, limit - elapsed)
        if not knots:
            return most
        outlived = _share_below(knots, elapsed / unit)
        if outlived >= 1.0:
            return most  # longer than any before
        left = max(0.0, unit * _at(knots, outlived + quantile * (1.0 - outlived)) - elapsed)
        return left if most is None else min(left, most)


def _knots(values: list[float], knots: int) -> tuple[float, ...]:
    ranked = tuple(sorted(values))
    return ranked if len(ranked) <= knots else tuple(_at(ranked, at / (knots - 1)) for at in range(knots))


def _at(knots: tuple[float, ...], share: float) -> float:
    """The quantile, linear between the knots."""
    place = share * (len(knots) - 1)
    below = min(int(place), len(knots) - 1)
    above = min(below + 1, len(knots) - 1)
    return knots[below] + (knots[above] - knots[below]) * (place - below)


def _share_below(knots: tuple[float, ...], value: float) -> float:
    """The share of runs that ended before ``value``: the inverse of :func:`_at`."""
    if value < knots[0] or (len(knots) == 1 and value <= knots[0]):
        return 0.0
    above = bisect_right(knots, value)
    if above == len(knots):
        if value > knots[-1]:
            return 1.0
        above = bisect_left(knots, value)
        return above / (len(knots) - 1)
    return (above - 1 + (value - knots[above - 1]) / (knots[above] - knots[above - 1])) / (len(knots) - 1)
