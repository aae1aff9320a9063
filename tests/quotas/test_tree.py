"""The tree of teams: what makes no sense is refused, what is promised must be there, and how numbers resolve."""

from datetime import time

import pytest

from quotas.limits import NANO, Amount, LimitTable, Quota, QuotaError, QuotaTree, Team, Window
from tests.engine.board import tree_of

CARDS = {"H100": 16, "A100": 8}
EVERY_DAY = frozenset(range(7))
MONDAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z


@pytest.mark.parametrize(
    ("teams", "problem"),
    [
        ((Team("a", "a"),), "a: is its own ancestor"),
        ((Team("a", "b"), Team("b", "a")), "a: is its own ancestor"),
        ((Team("x"), Team("a", "c"), Team("b", "a"), Team("c", "b")), "a: is its own ancestor"),
        ((Team("a", "nobody"),), "a: parent 'nobody' does not exist"),
    ],
)
def test_broken_trees_are_refused(teams: tuple[Team, ...], problem: str) -> None:
    with pytest.raises(QuotaError) as refused:
        QuotaTree(teams)
    assert str(refused.value) == problem
    assert (refused.value.team, f"{refused.value.team}: {refused.value.problem}") == ("a", problem)


def test_one_team_in_a_circle_that_another_hangs_on() -> None:
    with pytest.raises(QuotaError, match="is its own ancestor"):
        QuotaTree((Team("leaf", "a"), Team("a", "b"), Team("b", "a")))


# teams, the refusal (None: accepted)
PROMISES = {
    "as much as the parent's": ("p H100:8; a<p H100:4; b<p H100:4", None),
    "more than the parent's": (
        "p H100:8; a<p H100:4; b<p H100:5", "p: its children are guaranteed 9 H100, more than its own 8"),
    "one child alone": ("p H100:2; a<p H100:3", "p: its children are guaranteed 3 H100, more than its own 2"),
    "half cards": ("p H100:1; a<p H100:0.5; b<p H100:0.5", None),
    "a hair too much": (
        "p H100:1; a<p H100:0.5; b<p H100:0.5001", "p: its children are guaranteed 1.0001 H100, more than its own 1"),
    "a parent without numbers bounds nothing": ("p; a<p H100:400", None),
    "a parent of another model bounds nothing": ("p A100:1; a<p H100:400", None),
    "grandchildren through a parent without numbers": (
        "p H100:8; q<p; a<q H100:4; b<q H100:5", "p: its children are guaranteed 9 H100, more than its own 8"),
    "grandchildren count as what their parent promises": ("p H100:8; q<p H100:8; a<q H100:8", None),
    "in per cent": ("p H100:50%; a<p H100:25%; b<p H100:25%", None),
    "per cent against cards": (
        "p H100:7; a<p H100:50%", "p: its children are guaranteed 8 H100, more than its own 7"),
    "cards against per cent": ("p H100:50%; a<p H100:8", None),
    "per cent of all cards": ("p *:50%; a<p *:12", None),
    "too much of all cards": ("p *:50%; a<p *:13", "p: its children are guaranteed 13 GPUs, more than its own 12"),
    "siblings are no parents": ("a H100:10; b H100:10", None),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_promises(name: str) -> None:
    teams, refusal = PROMISES[name]
    tree = tree_of(teams)
    if refusal is None:
        tree.check_promises(CARDS, MONDAY)
        return
    with pytest.raises(QuotaError) as refused:
        tree.check_promises(CARDS, MONDAY)
    assert str(refused.value) == refusal


def window(guaranteed: float, begin: int = 20, end: int = 8, days: frozenset[int] = EVERY_DAY) -> Window:
    return Window(days, time(begin), time(end), "H100", guaranteed=Amount(guaranteed), limit=Amount(16))


@pytest.mark.parametrize(
    ("parent", "child", "refusal"),
    [
        pytest.param((), (window(9),), "guaranteed 9 H100, more than its own 8", id="the child's window"),
        pytest.param((), (window(8),), None, id="as much as there is"),
        pytest.param((window(9),), (window(9),), None, id="both at the same hours"),
        pytest.param((window(9),), (window(9, 19),), "guaranteed 9 H100", id="the child's is longer"),
        pytest.param((window(3),), (), "guaranteed 4 H100, more than its own 3", id="the parent's lowers it"),
        pytest.param((), (window(9, days=frozenset({6})),), "guaranteed 9", id="on a day within the week"),
    ],
)  # fmt: skip
def test_promises_hold_in_every_window(
    parent: tuple[Window, ...], child: tuple[Window, ...], refusal: str | None
) -> None:
    tree = tree_of("p H100:8; a<p H100:4", windows={"p": parent, "a": child})
    if refusal is None:
        tree.check_promises(CARDS, MONDAY)
    else:
        with pytest.raises(QuotaError, match=refusal):
            tree.check_promises(CARDS, MONDAY)


def test_amounts_are_exact_and_rounded_down() -> None:
    assert Amount(50, percent=True).nano(3) == 1_500_000_000
    assert Amount(33, percent=True).nano(1) == 330_000_000
    assert Amount(0.1).nano(1_000) == NANO // 10
    assert sum(Amount(0.1).nano(1) for _ in range(10)) == NANO
    assert (str(Amount(12.5, percent=True)), str(Amount(4))) == ("12.5%", "4")


def test_lineage_begins_with_the_team_itself() -> None:
    tree = tree_of("p; q<p; a<q; b")
    names = [[tree.teams[team].name for team in line] for line in tree.lineage]
    assert names == [["p"], ["q", "p"], ["a", "q", "p"], ["b"]]


def test_bounds_are_the_own_first_then_each_parents() -> None:
    table = LimitTable(tree_of("p *:/20 H100:/50%; q<p; a<q H100:2/4 A100:/1"), CARDS, MONDAY)
    found = [(bound.team, bound.model, bound.limit // NANO) for bound in table.bounds[2]["H100"]]
    assert found == [("a", "H100", 4), ("p", "H100", 8), ("p", "*", 20)]
    assert [(bound.team, bound.limit // NANO) for bound in table.bounds[2]["A100"]] == [("a", 1), ("p", 20)]
    assert {bound.slot for bound in table.bounds[2]["H100"]} <= set(table.charges[2]["H100"])


def test_a_use_is_charged_to_each_ancestor_by_model_and_in_all() -> None:
    table = LimitTable(tree_of("p; a<p; b"), CARDS, MONDAY)
    accounts = {(team, model): table.slot(team, model) for team in range(3) for model in table.models}
    charged = {account for account, slot in accounts.items() if slot in table.charges[1]["H100"]}
    assert charged == {(0, "H100"), (0, "*"), (1, "H100"), (1, "*")}
    assert len(set(accounts.values())) == table.slots


def test_guaranteed_numbers_of_models_that_are_not_there_are_left_out() -> None:
    table = LimitTable(tree_of("a H900:4 H100:50%"), CARDS, MONDAY)
    assert sum(table.guaranteed) == 8 * NANO
    assert "H900" not in table.column


@pytest.mark.parametrize(
    ("limit", "limits_of_windows", "ceiling"),
    [(4, (16,), 16), (16, (4,), 16), (None, (16,), None), (4, (None,), None), (4, (), 4), (None, (), None)],
)
def test_the_ceiling_is_the_most_that_any_hour_allows(
    limit: float | None, limits_of_windows: tuple[float | None, ...], ceiling: int | None
) -> None:
    quotas = () if limit is None else (Quota("H100", limit=Amount(limit)),)
    windows = tuple(
        Window(EVERY_DAY, time(1), time(2), "H100", limit=None if most is None else Amount(most))
        for most in limits_of_windows
    )
    team = Team("a", quotas=quotas, windows=windows)
    assert team.ceiling("H100", 16) == (None if ceiling is None else ceiling * NANO)


def test_a_window_keeps_the_lend_limit_of_the_quota_below() -> None:
    below = Quota("H100", Amount(4), Amount(8), Amount(2))
    team = Team("a", quotas=(below,), windows=(Window(EVERY_DAY, time(0), time(12), "H100", Amount(6), Amount(9)),))
    tree = QuotaTree((team,))
    assert team.numbers_at(tree.moment(MONDAY)) == {"H100": Quota("H100", Amount(6), Amount(9), Amount(2))}
    assert team.numbers_at(tree.moment(MONDAY + 12 * 3600)) == {"H100": below}
