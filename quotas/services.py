"""Changing quotas: one transaction each, refused where a parent would promise more than it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from django.utils import timezone

from quotas.limits import ANY_MODEL, Amount, Quota, QuotaError, Window
from quotas.models import QuotaWindow, TeamQuota
from quotas.selectors import quota_tree
from teams.models import Revision, Team, User
from teams.problems import Conflict, Forbidden, Invalid
from teams.selectors import standing_of
from teams.services import change_numbers


def set_quota(
    *, author: User, team: Team, cluster_id: int, quota: Quota, capacity: Mapping[str, int], reason: str
) -> TeamQuota:
    """Give a team its numbers for ``quota.model`` in a cluster whose cards per model are ``capacity``.

    ``capacity`` is `scheduler.inventory.selectors.capacity_of(cluster)`. Raises Invalid, Conflict where guaranteed
    numbers would not add up, Forbidden for anyone but an admin.
    """
    _admin(author)
    _check_model(quota.model, capacity)
    _check_amounts(quota.guaranteed, quota.limit, quota.lend_limit)
    with change_numbers(author, _said(reason)):
        serialize()
        row = _write(team, cluster_id, quota)
        _keep_promises(cluster_id, capacity)
    return row


def remove_quota(
    *, author: User, team: Team, cluster_id: int, model: str, capacity: Mapping[str, int], reason: str
) -> None:
    """Take a team's numbers for a model away: nothing guaranteed, no limit. Nothing there: does nothing."""
    _admin(author)
    with change_numbers(author, _said(reason)):
        serialize()
        TeamQuota.objects.filter(team=team, cluster_id=cluster_id, model=model).delete()
        _keep_promises(cluster_id, capacity)


def set_windows(
    *, author: User, team: Team, cluster_id: int, windows: Sequence[Window], capacity: Mapping[str, int], reason: str
) -> list[QuotaWindow]:
    """Replace all windows of a team in a cluster; errors as for `set_quota`."""
    _admin(author)
    for window in windows:
        _check_model(window.model, capacity)
        _check_amounts(window.guaranteed, window.limit, None)
        _check_hours(window)
    with change_numbers(author, _said(reason)):
        serialize()
        QuotaWindow.objects.filter(team=team, cluster_id=cluster_id).delete()
        rows = [
            QuotaWindow.objects.create(
                team=team,
                cluster_id=cluster_id,
                model=window.model,
                days=sorted(window.days),
                start=window.start,
                end=window.end,
                reclaim_lead_s=window.reclaim_lead,
                **_columns("guaranteed", window.guaranteed),
                **_columns("limit", window.limit),
            )
            for window in windows
        ]
        _keep_promises(cluster_id, capacity)
    return rows


def replace_numbers(
    *, author: User, team: Team, cluster_id: int, quotas: Sequence[Quota], windows: Sequence[Window],
    capacity: Mapping[str, int], reason: str,
) -> None:  # fmt: skip
    """Give a team all its numbers and windows in a cluster at once, whatever they were; errors as for `set_quota`.

    Only the whole is checked, so numbers may move from one model to another.
    """
    _admin(author)
    for quota in quotas:
        _check_model(quota.model, capacity)
        _check_amounts(quota.guaranteed, quota.limit, quota.lend_limit)
    with change_numbers(author, _said(reason)):
        serialize()
        mine = TeamQuota.objects.filter(team=team, cluster_id=cluster_id)
        mine.exclude(model__in=[quota.model for quota in quotas]).delete()
        for quota in quotas:
            _write(team, cluster_id, quota)
        set_windows(author=author, team=team, cluster_id=cluster_id, windows=windows, capacity=capacity, reason=reason)


def serialize() -> None:
    """Let one change of numbers at a time be checked: two that are fine alone may not be together.

    Inside a transaction; whoever compares before changing calls it first.
    """
    Revision.objects.get_or_create(id=1)
    Revision.objects.select_for_update(no_key=True).get(id=1)


def _write(team: Team, cluster_id: int, quota: Quota) -> TeamQuota:
    row, _ = TeamQuota.objects.update_or_create(
        team=team,
        cluster_id=cluster_id,
        model=quota.model,
        defaults={
            **_columns("guaranteed", quota.guaranteed),
            **_columns("limit", quota.limit),
            **_columns("lend_limit", quota.lend_limit),
        },
    )
    return row


def _keep_promises(cluster_id: int, capacity: Mapping[str, int]) -> None:
    try:
        quota_tree(cluster_id).check_promises(capacity, timezone.now().timestamp())
    except QuotaError as error:
        raise Conflict("promise_broken", str(error), team=error.team) from None


def _check_model(model: str, capacity: Mapping[str, int]) -> None:
    if model != ANY_MODEL and model not in capacity:
        raise Invalid("model_unknown", f"model: the cluster has no {model}", field="model", models=sorted(capacity))


def _check_amounts(guaranteed: Amount, limit: Amount | None, lend_limit: Amount | None) -> None:
    named = {"guaranteed": guaranteed, "limit": limit, "lend_limit": lend_limit}
    for field, amount in named.items():
        if amount is None:
            continue
        if not math.isfinite(amount.value) or amount.value < 0 or (amount.percent and amount.value > 100):
            raise Invalid("invalid", f"{field}: must be a number of cards or a percentage up to 100%", field=field)
    if limit is not None and limit.percent == guaranteed.percent and guaranteed.value > limit.value:
        raise Invalid("invalid", f"guaranteed: {guaranteed} is more than limit, which is {limit}", field="guaranteed")


def _check_hours(window: Window) -> None:
    if window.start == window.end:
        raise Invalid("invalid", "to: must differ from from", field="to")
    if not window.days or not window.days <= frozenset(range(7)):
        raise Invalid("invalid", "days: must name weekdays", field="days")
    if not math.isfinite(window.reclaim_lead) or window.reclaim_lead < 0:
        raise Invalid("invalid", "reclaim_lead: must not be negative", field="reclaim_lead")


def _columns(name: str, amount: Amount | None) -> dict[str, float | bool | None]:
    if amount is None:
        return {name: None, f"{name}_percent": False}
    return {name: amount.value, f"{name}_percent": amount.percent}


def _said(reason: str) -> str:
    if not reason.strip():
        raise Invalid("invalid", "reason: is missing", field="reason")
    return reason.strip()


def _admin(user: User) -> None:
    if not standing_of(user).admin:
        raise Forbidden("admin_only", "only a platform admin may change quotas")
