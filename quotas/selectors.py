"""Reading quotas: the rows of one cluster as the pure tree that everything is reckoned with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.conf import settings

from quotas.limits import Amount, Quota, QuotaTree, Window
from quotas.limits import Team as Branch
from quotas.models import QuotaWindow, TeamQuota
from teams.models import Team
from teams.selectors import live_teams


def quota_tree(cluster_id: int) -> QuotaTree:
    """The live teams with their numbers in one cluster, in three queries. Teams go by their slugs.

    Raises QuotaError where the rows contradict each other, which services never let happen.
    """
    quotas, windows = numbers(cluster_id)
    return tree_of(live_teams(), quotas, windows)


def numbers(cluster_id: int) -> tuple[dict[int, tuple[Quota, ...]], dict[int, tuple[Window, ...]]]:
    """The quotas and the windows of one cluster, by team id."""
    quotas: dict[int, list[Quota]] = defaultdict(list)
    windows: dict[int, list[Window]] = defaultdict(list)
    for quota in TeamQuota.objects.filter(cluster_id=cluster_id).order_by("id"):
        quotas[quota.team_id].append(quota_of(quota))
    for window in QuotaWindow.objects.filter(cluster_id=cluster_id).order_by("id"):
        windows[window.team_id].append(window_of(window))
    return {team: tuple(rows) for team, rows in quotas.items()}, {team: tuple(rows) for team, rows in windows.items()}


def tree_of(
    teams: Iterable[Team], quotas: dict[int, tuple[Quota, ...]], windows: dict[int, tuple[Window, ...]]
) -> QuotaTree:
    """Make the tree. A parent that is archived is as good as none."""
    rows = list(teams)
    slugs = {team.pk: team.slug for team in rows}
    branches = [
        Branch(
            name=team.slug,
            parent=None if team.parent_id is None else slugs.get(team.parent_id),
            weight=team.weight,
            quotas=quotas.get(team.pk, ()),
            windows=windows.get(team.pk, ()),
        )
        for team in rows
    ]
    return QuotaTree(tuple(branches), settings.TIME_ZONE)


def quota_of(row: TeamQuota) -> Quota:
    """A row as a value."""
    return Quota(
        row.model,
        Amount(row.guaranteed, row.guaranteed_percent),
        _amount(row.limit, percent=row.limit_percent),
        _amount(row.lend_limit, percent=row.lend_limit_percent),
    )


def window_of(row: QuotaWindow) -> Window:
    """A row as a value."""
    return Window(
        frozenset(row.days),
        row.start,
        row.end,
        row.model,
        Amount(row.guaranteed, row.guaranteed_percent),
        _amount(row.limit, percent=row.limit_percent),
        row.reclaim_lead_s,
    )


def _amount(value: float | None, *, percent: bool) -> Amount | None:
    return None if value is None else Amount(value, percent)
