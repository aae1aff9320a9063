"""Watermark lending: a guaranteed number that sleeps is lowered by itself, and comes back as soon as its team asks.

A team that has used less than ``low`` of its guaranteed number for ``over`` seconds, and asks for nothing, keeps
max(``floor`` × guaranteed, use ÷ ``high``) of it. What that frees is added to the limits of the teams that wait, by
their weights, and of their parents. The lending lasts for one decision: nothing of it is stored but since when.
"""

from collections.abc import Collection, Mapping

from quotas.limits import ANY_MODEL, LimitTable
from scheduler.engine.elastic import size_at
from scheduler.engine.policy import Watermark
from scheduler.engine.reasons import Hold
from scheduler.engine.snapshot import Phase, Snapshot

Asking = frozenset[tuple[int, str]]
"""Teams (by position) and the models that they ask for."""


def quiet_since(
    table: LimitTable, used: Collection[int], before: Mapping[int, float], rules: Watermark, now: float
) -> dict[int, float]:
    """Since when (seconds) each account has been used less than ``low`` of what is guaranteed on it."""
    return {
        slot: before.get(slot, now)
        for slot, (use, guaranteed) in enumerate(zip(used, table.guaranteed, strict=True))
        if guaranteed and use < rules.low * guaranteed
    }


def asking(snapshot: Snapshot, gated: Mapping[str, Hold], now: float) -> Asking:
    """Who has a job that waits, or runs smaller than it should."""
    found = {
        (lane.team, model)
        for lane in snapshot.lanes
        if not gated or any(job.key not in gated for job in lane.jobs)
        for model in lane.fit.models
    }
    moment = snapshot.limits.tree.moment(snapshot.epoch + now)
    index = snapshot.limits.tree.index
    found |= {
        (index[running.job.team], model)
        for running in snapshot.elastic
        if running.phase is not Phase.STOPPING and len(running.pieces) < size_at(running.job, moment).wanted
        for model, _ in running.amounts
    }
    return frozenset(found)


def lent(table: LimitTable, snapshot: Snapshot, asks: Asking, rules: Watermark, now: float) -> LimitTable:
    """The table with sleeping numbers lowered and the limits of those who ask raised by what that frees."""
    teams = table.tree.teams
    lowered: dict[int, int] = {}
    freed: dict[str, int] = {}
    for slot, since in snapshot.quiet.items():
        team, account = divmod(slot, len(table.models))
        model = table.models[account]
        if now - since < rules.over or any(asked == team and model in (m, ANY_MODEL) for asked, m in asks):
            continue
        guaranteed = table.guaranteed[slot]
        keeps = min(guaranteed, max(int(rules.floor * guaranteed), int(snapshot.used[slot] / rules.high)))
        lowered[slot] = keeps
        freed[model] = freed.get(model, 0) + guaranteed - keeps
    raised: dict[int, int] = {}
    for model, amount in freed.items():
        takers = {team for team, m in asks if model in (m, ANY_MODEL)}
        total = sum(teams[team].weight for team in takers)
        for team in takers:
            for member in table.tree.lineage[team]:
                slot = table.slot(member, model)
                raised[slot] = raised.get(slot, 0) + int(amount * teams[team].weight / total)
    return table.with_loans(lowered, raised) if lowered else table


def next_change(snapshot: Snapshot, rules: Watermark, now: float) -> float | None:
    """When the next account has been quiet for long enough (seconds)."""
    return min((since + rules.over for since in snapshot.quiet.values() if since + rules.over > now), default=None)
