"""Who may have how much: the tree of teams, its numbers, its windows, and the sums they bound. Pure.

Amounts of GPU are integers in *nano-GPU* (``NANO`` = one whole card), so that slices add up exactly. A quota is per
team and GPU model; the model ``"*"`` means all models together. A team's use counts for each of its ancestors.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import TypeVar
from zoneinfo import ZoneInfo

T = TypeVar("T")
NANO = 1_000_000_000
ANY_MODEL = "*"
DAY_SECONDS = 86_400.0
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class QuotaError(ValueError):
    """A tree that promises what it cannot keep, or makes no sense; ``team`` names the culprit."""

    def __init__(self, team: str, problem: str) -> None:
        super().__init__(f"{team}: {problem}")
        self.team = team
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of cards, or a percentage of a model's cards."""

    value: float
    percent: bool = False

    def nano(self, cards: int) -> int:
        """This amount in nano-GPU, rounded down, where the model has ``cards`` cards."""
        return int(self.value * cards * NANO / 100) if self.percent else int(self.value * NANO)

    def __str__(self) -> str:
        return f"{self.value:g}%" if self.percent else f"{self.value:g}"


NOTHING = Amount(0)


@dataclass(frozen=True, slots=True)
class Quota:
    """A team's numbers for one model. ``limit`` None: no limit; ``lend_limit`` None: all that is idle is lent."""

    model: str
    guaranteed: Amount = NOTHING
    limit: Amount | None = None
    lend_limit: Amount | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Numbers that replace those of a team's quota for ``model`` while the window is open.

    ``days`` are the weekdays (0 = Monday) on which it *begins*; ``start`` is inclusive, ``end`` exclusive, and an end
    before the start lies on the next day. ``reclaim_lead``: seconds before the start from which its guaranteed number
    counts for reclaim already.
    """

    days: frozenset[int]
    start: time
    end: time
    model: str
    guaranteed: Amount = NOTHING
    limit: Amount | None = None
    reclaim_lead: float = 0.0

    def is_open(self, moment: datetime) -> bool:
        """Whether the wall clock of ``moment`` lies in the window."""
        clock, today = moment.time(), moment.weekday()
        if self.start < self.end:
            return self.start <= clock < self.end and today in self.days
        return (clock >= self.start and today in self.days) or (clock < self.end and (today - 1) % 7 in self.days)

    def is_near(self, moment: datetime) -> bool:
        """Whether it is open, or opens within its ``reclaim_lead``."""
        if self.is_open(moment):
            return True
        days = range(math.ceil(self.reclaim_lead / DAY_SECONDS) + 1) if self.reclaim_lead else ()
        dates = (moment.date() + timedelta(days=day) for day in days)
        opens = (datetime.combine(at, self.start, moment.tzinfo) for at in dates if at.weekday() in self.days)
        return any(0 <= at.timestamp() - moment.timestamp() <= self.reclaim_lead for at in opens)


@dataclass(frozen=True, slots=True)
class Team:
    """A team of the tree; ``weight`` is its share under the fair discipline."""

    name: str
    parent: str | None = None
    weight: float = 1.0
    quotas: tuple[Quota, ...] = ()
    windows: tuple[Window, ...] = ()

    def numbers_at(self, moment: datetime, *, early: bool = False) -> dict[str, Quota]:
        """The quota in force for each model at ``moment``; an open window keeps the lend limit of the quota below.

        ``early`` counts a window as open from its ``reclaim_lead`` on.
        """
        numbers = {quota.model: quota for quota in self.quotas}
        for window in self.windows:
            if window.is_near(moment) if early else window.is_open(moment):
                below = numbers.get(window.model)
                lend = below.lend_limit if below else None
                numbers[window.model] = Quota(window.model, window.guaranteed, window.limit, lend)
        return numbers

    def ceiling(self, model: str, cards: int) -> int | None:
        """The highest limit, in nano-GPU, that quota or any window ever gives; None where one is unlimited."""
        limits = [quota.limit for quota in self.quotas if quota.model == model] or [None]
        limits += [window.limit for window in self.windows if window.model == model]
        known = [limit.nano(cards) for limit in limits if limit is not None]
        return max(known) if len(known) == len(limits) else None


@dataclass(frozen=True)
class QuotaTree:
    """All teams with the wall clock their windows go by. Raises :class:`QuotaError` for a broken tree."""

    teams: tuple[Team, ...]
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        for team in self.teams:
            if team.parent is not None and team.parent not in self.index:
                raise QuotaError(team.name, f"parent {team.parent!r} does not exist")
        for team in self.teams:
            self._check_no_cycle(team)

    def _check_no_cycle(self, team: Team) -> None:
        seen, at = {team.name}, team
        while at.parent is not None:
            if at.parent in seen:
                raise QuotaError(team.name, "is its own ancestor")
            seen.add(at.parent)
            at = self.teams[self.index[at.parent]]

    @cached_property
    def index(self) -> dict[str, int]:
        """Team name to position."""
        return {team.name: position for position, team in enumerate(self.teams)}

    @cached_property
    def lineage(self) -> tuple[tuple[int, ...], ...]:
        """For each team the positions of itself and its ancestors, itself first."""
        return tuple(tuple(self._line(position)) for position in range(len(self.teams)))

    def _line(self, position: int) -> Iterator[int]:
        at: int | None = position
        while at is not None:
            yield at
            parent = self.teams[at].parent
            at = None if parent is None else self.index[parent]

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone of the windows."""
        return ZoneInfo(self.timezone)

    @cached_property
    def has_windows(self) -> bool:
        """Whether any number changes with the clock."""
        return any(team.windows for team in self.teams)

    def moment(self, unix: float) -> datetime:
        """The wall clock at ``unix`` seconds."""
        return datetime.fromtimestamp(unix, self.zone)

    def next_change(self, unix: float) -> float | None:
        """The next moment (unix seconds) at which a window may open or close; None without windows."""
        if not self.has_windows:
            return None
        later = [at for at in _boundaries(self, unix) if at > unix]
        return min(later, default=None)

    def check_promises(self, capacity: Mapping[str, int], unix: float) -> None:
        """Refuse guaranteed numbers of children that add up to more than their parent's, now or in any window.

        ``capacity`` has the cards of each model, for percentages; the windows of the eight days after ``unix`` are
        looked at. Raises :class:`QuotaError` naming the parent.
        """
        moments = {unix}
        if self.has_windows:
            moments |= set(_boundaries(self, unix))
        for at in sorted(moments):
            self._check_promises_at(capacity, self.moment(at))

    def _check_promises_at(self, capacity: Mapping[str, int], moment: datetime) -> None:
        numbers = [team.numbers_at(moment) for team in self.teams]
        children: dict[str, list[int]] = {}
        for position, team in enumerate(self.teams):
            if team.parent is not None:
                children.setdefault(team.parent, []).append(position)

        def promised(position: int, model: str) -> int:
            quota = numbers[position].get(model)
            if quota is not None:
                return quota.guaranteed.nano(cards_of(capacity, model))
            return sum(promised(child, model) for child in children.get(self.teams[position].name, ()))

        for position, team in enumerate(self.teams):
            for model, quota in numbers[position].items():
                parts = sum(promised(child, model) for child in children.get(team.name, ()))
                own = quota.guaranteed.nano(cards_of(capacity, model))
                if parts > own:
                    promise = f"{parts / NANO:g} {label(model, parts / NANO)}"
                    raise QuotaError(
                        team.name, f"its children are guaranteed {promise}, more than its own {own / NANO:g}"
                    )


def cards_of(capacity: Mapping[str, int], model: str) -> int:
    """Cards of a model, or of all models for ``"*"``."""
    return sum(capacity.values()) if model == ANY_MODEL else capacity.get(model, 0)


def label(model: str, count: float | None = None) -> str:
    """How a model is named in a sentence; ``count``: behind that number."""
    return plural("GPU", count) if model == ANY_MODEL else model


def plural(noun: str, count: float | None = None) -> str:
    """The noun as it stands behind a number, or without one."""
    return noun if count == 1 else f"{noun}s"


def _boundaries(tree: QuotaTree, unix: float) -> list[float]:
    """Moments near ``unix`` (a day before to eight after) at which the wall clock crosses a window's edge."""
    first = tree.moment(unix).date() - timedelta(days=1)
    windows = [window for team in tree.teams for window in team.windows]
    edges = {(window.start, lead) for window in windows for lead in (0.0, window.reclaim_lead)}
    edges |= {(window.end, 0.0) for window in windows}
    moments = [
        datetime.combine(first + timedelta(days=offset), edge, tree.zone).replace(fold=fold).timestamp() - lead
        for offset in range(10)
        for edge, lead in edges
        for fold in (0, 1)
    ]
    return moments + _clock_changes(tree.zone, first)


def _clock_changes(zone: ZoneInfo, first: date) -> list[float]:
    """When the clocks of ``zone`` are put forward or back in the ten days from ``first``, to the second."""
    begin = int(datetime.combine(first, time(), UTC).timestamp())
    found: list[float] = []
    for day in range(begin, begin + 10 * 86_400, 86_400):
        low, high = day, day + 86_400
        if _offset(zone, low) == _offset(zone, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(zone, middle) == _offset(zone, low) else (low, middle)
        found.append(float(high))
    return found


def _offset(zone: ZoneInfo, unix: float) -> timedelta | None:
    return datetime.fromtimestamp(unix, zone).utcoffset()


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit that a start must keep: the account ``slot`` may hold at most ``limit`` nano-GPU."""

    slot: int
    limit: int
    team: str
    model: str


class LimitTable:
    """The numbers of a tree at one moment, resolved against the hardware and laid out for fast sums.

    Accounts are numbered: ``slot(team, model)``, with one more per team for ``"*"``. ``charges[team][model]`` are the
    slots that a use of that model by that team adds to; ``bounds[team][model]`` the limits it must keep. ``guaranteed``
    is per account; ``near`` and ``owed`` are the numbers, and what is guaranteed by them, that count for reclaim:
    windows that open soon count already.
    """

    def __init__(self, tree: QuotaTree, capacity: Mapping[str, int], unix: float) -> None:
        self.tree = tree
        self.models: tuple[str, ...] = (*sorted(capacity), ANY_MODEL)
        self.column = {model: column for column, model in enumerate(self.models)}
        self.cards = {model: cards_of(capacity, model) for model in self.models}
        moment = tree.moment(unix)
        self.numbers = [team.numbers_at(moment) for team in tree.teams]
        self.guaranteed = self._promised(self.numbers)
        near = [team.numbers_at(moment, early=True) for team in tree.teams]
        self.near, self.owed = self.numbers, self.guaranteed
        if near != self.numbers:
            self.near, self.owed = near, self._promised(near)
        self._lenders = self._find_lenders()
        self.charges = [self._per_model(self._charges, position) for position in range(len(tree.teams))]
        self.bounds = [self._per_model(self._bounds, position) for position in range(len(tree.teams))]
        self.ceilings = [self._per_model(self._ceilings, position) for position in range(len(tree.teams))]

    def _promised(self, numbers: Sequence[Mapping[str, Quota]]) -> list[int]:
        """The guaranteed number of each account."""
        promised = [0] * self.slots
        for position, quotas in enumerate(numbers):
            for model, quota in quotas.items():
                if model in self.column:
                    promised[self.slot(position, model)] = quota.guaranteed.nano(self.cards[model])
        return promised

    @property
    def slots(self) -> int:
        """How many accounts there are."""
        return len(self.tree.teams) * len(self.models)

    def slot(self, team: int, model: str) -> int:
        """The account of a team (by position) for a model."""
        return team * len(self.models) + self.column[model]

    def with_loans(self, guaranteed: Mapping[int, int], limits: Mapping[int, int]) -> "LimitTable":
        """The same table with other guaranteed numbers, and limits raised, of some accounts (nano-GPU)."""
        other = copy(self)
        other.guaranteed = [guaranteed.get(slot, amount) for slot, amount in enumerate(self.guaranteed)]
        other.owed = [guaranteed.get(slot, amount) for slot, amount in enumerate(self.owed)]
        other.bounds = [
            {
                model: tuple(replace(bound, limit=bound.limit + limits.get(bound.slot, 0)) for bound in bounds)
                for model, bounds in per_model.items()
            }
            for per_model in self.bounds
        ]
        return other

    def binds(self, team: int) -> bool:
        """Whether there is anything at all that a start of a team must keep."""
        return bool(self._lenders) or any(self.bounds[team].values())

    def left_by_lenders(self, team: int, model: str, used: Sequence[int]) -> int | None:
        """Nano-GPU of ``model`` that a team may still have beside what others keep for themselves; None: no matter.

        A team with a lend limit keeps the rest of its guaranteed number idle rather than lend it. That never stands
        in the way of what the asking team is guaranteed itself.
        """
        if not self._lenders:
            return None
        rooms = [
            self._beside_lenders(team, account, used) for account in (model, ANY_MODEL) if self._lenders.get(account)
        ]
        return min((room for room in rooms if room is not None), default=None)

    def _beside_lenders(self, team: int, account: str, used: Sequence[int]) -> int | None:
        lineage = self.tree.lineage
        kept = [
            max(0, keeps - used[self.slot(lender, account)])
            for lender, keeps in self._lenders[account]
            if lender not in lineage[team] and team not in lineage[lender]
        ]
        if not any(kept):
            return None
        roots = (position for position, line in enumerate(lineage) if len(line) == 1)
        held = sum(used[self.slot(root, account)] for root in roots)
        slot = self.slot(team, account)
        return max(self.cards[account] * NANO - held - sum(kept), self.guaranteed[slot] - used[slot])

    def _find_lenders(self) -> dict[str, list[tuple[int, int]]]:
        """Per account the teams with a lend limit, with the nano-GPU of their guaranteed number that they keep."""
        lenders: dict[str, list[tuple[int, int]]] = {}
        for position, numbers in enumerate(self.numbers):
            for account, quota in numbers.items():
                if quota.lend_limit is not None and account in self.column:
                    keeps = self.guaranteed[self.slot(position, account)] - quota.lend_limit.nano(self.cards[account])
                    if keeps > 0:
                        lenders.setdefault(account, []).append((position, keeps))
        return lenders

    def _per_model(self, make: Callable[[int, str], tuple[T, ...]], position: int) -> dict[str, tuple[T, ...]]:
        return {model: make(position, model) for model in self.models[:-1]}

    def _charges(self, position: int, model: str) -> tuple[int, ...]:
        line = self.tree.lineage[position]
        return tuple(self.slot(team, account) for team in line for account in (model, ANY_MODEL))

    def _bounds(self, position: int, model: str) -> tuple[Bound, ...]:
        found = []
        for team in self.tree.lineage[position]:
            for account in (model, ANY_MODEL):
                quota = self.numbers[team].get(account)
                if quota is not None and quota.limit is not None:
                    limit = quota.limit.nano(self.cards[account])
                    found.append(Bound(self.slot(team, account), limit, self.tree.teams[team].name, account))
        return tuple(found)

    def _ceilings(self, position: int, model: str) -> tuple[Bound, ...]:
        found = []
        for team in self.tree.lineage[position]:
            for account in (model, ANY_MODEL):
                limit = self.tree.teams[team].ceiling(account, self.cards[account])
                if limit is not None:
                    found.append(Bound(self.slot(team, account), limit, self.tree.teams[team].name, account))
        return tuple(found)
