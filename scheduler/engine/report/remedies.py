"""What would start a job now: changes that the engine has been seen to start it with, the smallest of each kind."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from quotas.limits import NANO, Amount, Bound, Quota, QuotaTree, Team, Window, label
from scheduler.engine.accounts import Accounts
from scheduler.engine.cycle import walk_through
from scheduler.engine.demand import PendingJob
from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold, Reason
from scheduler.engine.report.candidates import Family, Form, Kind, form, more_urgent, of_the_job, of_the_nodes, shorter
from scheduler.engine.report.trials import Trials
from scheduler.engine.report.whatif import Change
from scheduler.engine.snapshot import Lane, Snapshot

BUDGET = 96
"""Decisions that one answer may cost."""

FIRST = {
    Reason.HELD: (Kind.RELEASE,), Reason.BACKOFF: (Kind.RELEASE,), Reason.NOT_BEFORE: (Kind.RELEASE,),
    Reason.QUOTA: (Kind.QUOTA,), Reason.IMPOSSIBLE: (Kind.QUOTA, Kind.GPUS, Kind.REPLICAS, Kind.TOPOLOGY),
    Reason.MODEL: (Kind.MODEL, Kind.VRAM), Reason.LABELS: (Kind.LABELS,), Reason.TAINTS: (Kind.TOLERATE, Kind.UNTAINT),
    Reason.UNHEALTHY: (Kind.BACK,), Reason.EXCLUDED: (Kind.EXCLUDED,), Reason.HOST: (Kind.HOST,),
    Reason.VRAM: (Kind.VRAM,), Reason.TOPOLOGY: (Kind.TOPOLOGY,), Reason.RESERVED: (Kind.TIME_LIMIT,),
    Reason.TURN: (Kind.PRIORITY,), Reason.RECLAIM: (Kind.PRIORITY,),
}  # fmt: skip
"""What to try first, by the reason of the job: the budget may not suffice for all."""


class Remedy(NamedTuple):
    """A change with which the job starts: at once, or as soon as the jobs it ``takes`` from have left.

    ``template`` and ``facts`` say it (``"with 4 GPUs a replica"``); ``change`` is what was tried.
    """

    kind: Kind
    template: str
    facts: tuple[tuple[str, object], ...]
    takes: tuple[str, ...]
    change: Change

    @property
    def message(self) -> str:
        """The change in English."""
        return self.template.format(**dict(self.facts))


def remedies(snapshot: Snapshot, policy: Policy, now: float, key: str, *, budget: int = BUDGET) -> tuple[Remedy, ...]:
    """The changes, one at a time, that would start the waiting job ``key`` now; empty if it starts anyway.

    The same snapshot always gives the same answer. At most ``budget`` decisions are made. Raises KeyError for a job
    that does not wait.
    """
    lane, job = find(snapshot, key)
    walk = walk_through(snapshot, policy, now)
    if any(start.job == key for start in walk.starts):
        return ()
    why = walk.gated.get(key) or walk.explain().get(lane.number)
    trials = Trials(snapshot, policy, now, key, budget)
    found = []
    for family in _in_order(_families(snapshot, walk.accounts, lane, job, now, why), why):
        smallest = trials.smallest([each.change for each in family.forms])
        if smallest is not None:
            place, outcome = smallest
            change, template, facts = family.forms[place]
            found.append(Remedy(family.kind, template, facts, outcome.takes, change))
    return tuple(found)


def find(snapshot: Snapshot, key: str) -> tuple[Lane, PendingJob]:
    """A waiting job and its lane. Raises KeyError if it does not wait."""
    for lane in snapshot.lanes:
        for job in lane.jobs:
            if job.key == key:
                return lane, job
    raise KeyError(key)


def _families(
    snapshot: Snapshot, accounts: Accounts, lane: Lane, job: PendingJob, now: float, why: Hold | None
) -> Iterator[Family]:
    yield from of_the_job(snapshot, lane, job)
    yield from of_the_nodes(snapshot, lane)
    yield _more_quota(snapshot, accounts, lane, now)
    yield more_urgent(snapshot, job)
    if why is not None and why.reason is Reason.RESERVED:
        yield shorter(snapshot, job, now)


def _in_order(families: Iterator[Family], why: Hold | None) -> list[Family]:
    first = FIRST.get(why.reason, ()) if why is not None else ()
    kinds = list(dict.fromkeys([*first, *Kind]))
    return sorted((family for family in families if family.forms), key=lambda family: kinds.index(family.kind))


def _more_quota(snapshot: Snapshot, accounts: Accounts, lane: Lane, now: float) -> Family:
    """Higher limits for all teams whose limit is in the way: by what lacks, and by more if others go first."""
    best: tuple[int, list[tuple[Bound, int]]] | None = None
    for model in lane.fit.models:
        lacking = [
            (bound, lack)
            for bound in accounts.table.bounds[lane.team][model]
            if (lack := accounts.used[bound.slot] + lane.fit.needs(model, bound.model) - bound.limit) > 0
        ]
        total = sum(lack for _, lack in lacking)
        if lacking and (best is None or total < best[0]):
            best = total, lacking
    if best is None:
        return Family(Kind.QUOTA, [])
    more = range(lane.fit.cards + 1)
    return Family(Kind.QUOTA, [_with_quota(snapshot, best[1], extra, now) for extra in more])


def _with_quota(snapshot: Snapshot, lacking: list[tuple[Bound, int]], extra: int, now: float) -> Form:
    tree, said = snapshot.limits.tree, []
    for bound, lack in lacking:
        raised = math.ceil(lack / NANO) + extra
        to = bound.limit / NANO + raised
        tree = _raised(tree, bound, Amount(to), snapshot.epoch + now)
        said.append(f"{bound.team} {to:g} {label(bound.model)} (+{raised})")
    return form(Change(tree=tree), "with a limit of {limits}", limits=", ".join(said))


def _raised(tree: QuotaTree, bound: Bound, to: Amount, unix: float) -> QuotaTree:
    """The tree with one limit at another number, in the quota or in the window that is open."""
    moment = tree.moment(unix)

    def window(each: Window) -> Window:
        return replace(each, limit=to) if each.model == bound.model and each.is_open(moment) else each

    def quota(each: Quota) -> Quota:
        return replace(each, limit=to) if each.model == bound.model else each

    def team(each: Team) -> Team:
        if each.name != bound.team:
            return each
        windows = tuple(map(window, each.windows))
        if windows != each.windows:
            return replace(each, windows=windows)
        return replace(each, quotas=tuple(map(quota, each.quotas)))

    return QuotaTree(tuple(map(team, tree.teams)), tree.timezone)
