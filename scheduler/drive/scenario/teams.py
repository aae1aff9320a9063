"""The ``teams`` of a file: the tree with its quotas and windows."""

from collections.abc import Callable, Iterable, Mapping

from jobs.reading import (
    Reader,
    SpecError,
    clock,
    duration,
    integer,
    list_of,
    name,
    nobody,
    number,
    percent,
    record,
    repeated,
    shown,
)
from jobs.spec import read_hours
from quotas.limits import ANY_MODEL, DAYS, Amount, Quota, QuotaError, QuotaTree, Team, Window

DEFAULT_TEAM = "default"
"""The one team, without any quota, of a file that names none."""

_CARDS = integer(0, what='a whole number of cards or a percentage such as "50%"')


def _read_amount(value: object) -> Amount:
    part = percent(value)
    return Amount(_CARDS(value)) if part is None else Amount(part, percent=True)


def _read_day(value: object) -> int:
    if not isinstance(value, str) or value not in DAYS:
        raise SpecError("", f"must be one of {', '.join(DAYS)}, not {shown(value)}")
    return DAYS.index(value)


def _read_quota(value: object) -> Quota:
    quota = Quota(**_QUOTA(value))
    _check_order(quota.guaranteed, quota.limit)
    return quota


def _check_order(guaranteed: Amount, limit: Amount | None) -> None:
    """Refuse a guaranteed number above the limit where the two can be compared."""
    if limit is not None and guaranteed.percent == limit.percent and guaranteed.value > limit.value:
        raise SpecError("guaranteed", f"{guaranteed} is more than limit, which is {limit}")


def _read_quotas(value: object) -> tuple[Quota, ...]:
    quotas = list_of(_read_quota)(value)
    again = repeated(quota.model for quota in quotas)
    if again is not None:
        raise SpecError(f"[{again}].model", f"{shown(quotas[again].model)} is there twice")
    return quotas


def _read_window(value: object) -> Window:
    values = _WINDOW(value)
    start, end = read_hours(values)
    _check_order(values.get("guaranteed", Amount(0)), values.get("limit"))
    numbers = {key: values[key] for key in ("model", "guaranteed", "limit", "reclaim_lead") if key in values}
    return Window(frozenset(values["days"]), start, end, **numbers)


def _read_team(value: object) -> Team:
    values = _TEAM(value)
    return Team(
        name=values["name"],
        parent=values.get("parent"),
        weight=values.get("weight", 1.0),
        quotas=values.get("quota", ()),
        windows=values.get("windows", ()),
    )


_QUOTA = record(
    {"model": name, "guaranteed": _read_amount, "limit": _read_amount, "lend_limit": _read_amount}, needs=("model",)
)
_WINDOW = record(
    {
        "days": list_of(_read_day, empty=False, unique=True),
        "from": clock,
        "to": clock,
        "model": name,
        "guaranteed": _read_amount,
        "limit": _read_amount,
        "reclaim_lead": duration(),
    },
    needs=("days", "from", "to", "model"),
)
read_quotas: Reader[tuple[Quota, ...]] = _read_quotas
read_windows: Reader[tuple[Window, ...]] = list_of(_read_window)
_TEAM = record(
    {
        "name": name,
        "parent": name,
        "weight": number(0, above=True),
        "quota": read_quotas,
        "windows": read_windows,
    },
    needs=("name",),
)
read_teams: Reader[tuple[Team, ...]] = list_of(_read_team, empty=False)
"""Reads the list of teams; :func:`tree_of` makes a tree of them."""


def tree_of(teams: tuple[Team, ...], timezone: str, capacity: Mapping[str, int] | None, unix: float) -> QuotaTree:
    """Make the tree and check names, parents, models and promises. ``capacity`` None: the hardware is not known.

    Raises:
        SpecError: with a path that begins at ``teams``.
    """
    again = repeated(team.name for team in teams)
    if again is not None:
        raise SpecError(f"teams[{again}].name", f"{shown(teams[again].name)} is there twice")
    names = {team.name: position for position, team in enumerate(teams)}
    for position, team in enumerate(teams):
        if team.parent is not None and team.parent not in names:
            raise SpecError(f"teams[{position}].parent", nobody("team", team.parent, names))
        check_models(team.quotas, capacity, f"teams[{position}].quota")
        check_models(team.windows, capacity, f"teams[{position}].windows")
    try:
        tree = QuotaTree(teams, timezone)
    except QuotaError as error:
        raise SpecError(f"teams[{names[error.team]}].parent", f"{shown(error.team)} {error.problem}") from None
    check_promises(tree, capacity, unix, lambda team: f"teams[{names[team]}].quota")
    return tree


def check_models(numbers: Iterable[Quota | Window], capacity: Mapping[str, int] | None, path: str) -> None:
    """Refuse numbers for a model that no node has."""
    for position, row in enumerate(numbers):
        if capacity is not None and row.model != ANY_MODEL and row.model not in capacity:
            raise SpecError(f"{path}[{position}].model", nobody("model", row.model, capacity))


def check_promises(
    tree: QuotaTree, capacity: Mapping[str, int] | None, unix: float, path_of: Callable[[str], str]
) -> None:
    """Refuse children that are guaranteed more than their parent, from ``unix`` seconds on.

    Without hardware percentages mean nothing yet, so a tree that has any is left alone.
    """
    if capacity is None and any(_has_percentages(team) for team in tree.teams):
        return
    try:
        tree.check_promises(capacity or {}, unix)
    except QuotaError as error:
        raise SpecError(path_of(error.team), f"{shown(error.team)}: {error.problem}") from None


def _has_percentages(team: Team) -> bool:
    """Whether what the team is guaranteed depends on the hardware."""
    promises = [quota.guaranteed for quota in team.quotas] + [window.guaranteed for window in team.windows]
    return any(promise.percent for promise in promises)
