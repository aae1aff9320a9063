"""Fragmentation: F as it is defined, the place where it grows least, and what must not depend on luck."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.cluster import CardState, Inventory, Node
from scheduler.engine.cycle import decide
from scheduler.engine.ledger import Ledger
from scheduler.engine.placement.fragmentation import Fragmentation
from scheduler.engine.placement.mix import MOST_CLASSES, Mix, TaskClass, mix_of, most_popular
from scheduler.engine.placement.strategy import Want
from scheduler.engine.placement.waste import Kind, growth
from scheduler.engine.roster import Roster
from tests.engine.board import Board, assert_outcomes, nodes_of, policy_of, tree_of

CARD = 1000
FIVE_NODES = 0b11111


def mix(*classes: tuple[int, int, int, int], nodes: int = FIVE_NODES) -> Mix:
    """A mix of (cards, MiB, CPUs in milli, how many) that may use some nodes."""
    return Mix(
        tuple((TaskClass(gpus, mib, cpus, nodes), weight) for gpus, mib, cpus, weight in classes),
        sum(weight for *_, weight in classes),
    )


# -- the measure


def by_definition(asked: Mix, cpus: int, residuals: list[int]) -> int:
    """F, in MiB times the weight of all classes, word for word."""
    total = 0
    for task, weight in asked.classes:
        need = task.mib or CARD
        fits = task.gpus and cpus >= task.cpus_milli and sum(left >= need for left in residuals) >= task.gpus
        total += weight * sum(left for left in residuals if not fits or left < need)
    return total


classes = st.tuples(st.integers(0, 4), st.sampled_from([0, 100, 250, 500, 900]), st.integers(0, 5), st.integers(1, 9))
states = st.lists(st.integers(1, CARD) | st.just(CARD), max_size=8)


@given(st.lists(classes, min_size=1, max_size=12), st.integers(0, 6), states)
def test_the_measure_is_as_defined(asked: list[tuple[int, int, int, int]], cpus: int, residuals: list[int]) -> None:
    workload = mix(*asked)
    amounts = sorted({need for gpus, _, need, _ in asked if gpus})
    kind = Kind(workload, CARD, [True] * len(asked), amounts)
    level = sum(need <= cpus for need in amounts)
    assert kind.cards(tuple(sorted(residuals))).waste(level) == by_definition(workload, cpus, residuals)


def test_a_class_that_may_not_use_the_node_wastes_all_of_it() -> None:
    workload = mix((1, 0, 0, 3), (1, 0, 0, 1))
    kind = Kind(workload, CARD, [True, False], [0])
    assert kind.cards((CARD, CARD)).waste(1) == 1 * 2 * CARD


def test_growth_is_told_apart_in_steps_and_none_is_fifty() -> None:
    kind = Kind(mix((1, 0, 0, 1)), CARD, [True], [0])
    spoils_a_card, spoils_nothing = kind.cards((CARD,)), kind.cards((500,))
    assert growth(spoils_nothing, 1, 1, 1, 500).step < growth(kind.cards((501,)), 1, 1, 0, 0).step == 50
    assert growth(spoils_a_card, 1, 1, 1, 500).step > 50


def test_of_equally_good_cards_the_fullest_is_taken() -> None:
    kind = Kind(mix((1, 100, 0, 1)), CARD, [True], [0])
    assert growth(kind.cards((300, 400)), 1, 1, 1, 100).left == 300


# -- the place: nodes, what runs, the jobs in order, where they go; what runs and waits is the mix

WHOLE = "; ".join(f"w{number} b 1 prio=1 held=later" for number in range(20))
PAIRS = "; ".join(f"w{number} b 2 prio=1 held=later" for number in range(20))

PLACES = {
    "a slice goes where a card is spoiled already": (
        "n1 n2: 2 L40 mib=1000", f"r b 1 slice=500 @n2:1; {WHOLE}", "j a 1 slice=400", {"j": "n2:1"}),
    "a slice takes the card that nothing else can use": (
        "n1: 4 L40 mib=1000", f"r b 1 slice=600 @n1:1; s b 1 slice=300 @n1:2; {WHOLE}", "j a 1 slice=400",
        {"j": "n1:1"}),
    "a single card keeps pairs together": (
        "n1: 2 H100; n2: 3 H100", PAIRS, "j a 1", {"j": "n2:0"}),
    "a card whose CPUs are gone is taken first": (
        "n1: 2 H100 cpus=64; n2: 2 H100 cpus=64", f"r b 0 cpu=63 @n2; {WHOLE.replace('held', 'cpu=8 held')}",
        "j a 1 cpu=1", {"j": "n2:0"}),
    "equal growth falls to the best fit": (
        "n1: 4 H100; n2: 3 H100", "", "j a 1", {"j": "n2:0"}),
    "an equal fit falls to the lowest name": ("n10 n2: 4 H100", "", "j a 1", {"j": "n2:0"}),
    "a gang goes replica by replica": (
        "n1: 4 H100; n2: 2 H100", "", "j a 3x2", {"j": "n2:0-1 n1:0-1 n1:2-3"}),
    "what does not fit the node is no choice": (
        "n1: 2 H100 cpus=1; n2: 4 H100 cpus=64", "", "j a 1 cpu=2", {"j": "n2:0"}),
    "nor what does not fit its memory": (
        "n1: 2 H100 mem=8; n2: 4 H100", "", "j a 1 mem=9", {"j": "n2:0"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_place(name: str) -> None:
    nodes, running, jobs, expected = PLACES[name]
    board = Board(nodes, "a; b", f"{running}; {jobs}", placement="fragmentation")
    assert_outcomes(board.step(), expected)


@pytest.mark.parametrize(("pairs", "expected"), [(16, "n1:0"), (400, "n2:0")])
def test_growth_below_a_step_leaves_it_to_the_best_fit(pairs: int, expected: str) -> None:
    """On n1 the slice spoils the pair of cards, on n2 not. If hardly anybody asks for pairs that is no reason to open
    the larger node. (The rare slices take the place of pairs outside the popular share.)"""
    sizes = ["2"] * pairs + [f"1 slice={1 + number % 20}" for number in range(194)]
    sizes += ["1 slice=500"] * (4_000 - len(sizes))
    asked = "; ".join(f"w{number} b {size} prio=1 held=later" for number, size in enumerate(sizes))
    nodes = "n1: 2 L40 mib=1000; n2: 3 L40 mib=1000"
    board = Board(nodes, "a; b", f"{asked}; j a 1 slice=100", placement="fragmentation")
    assert_outcomes(board.step(), {"j": expected})


# -- C29: work without cards

BARE = "n1 n2: 4 H100 cpus=16; c1: 0 H100 cpus=8"


@pytest.mark.parametrize("placement", ["binpack", "spread", "hybrid", "fragmentation"])
def test_work_without_cards_goes_where_there_are_none(placement: str) -> None:
    board = Board(BARE, "a", "cpu a 0 cpu=6; big a 2x4 cpu=16", placement=placement)
    assert_outcomes(board.step(), {"cpu": "c1", "big": "starts"})


def test_work_without_cards_keeps_off_the_cpus_beside_free_cards() -> None:
    running = f"r b 4 cpu=4 @n2; {WHOLE.replace('held', 'cpu=4 held')}"
    jobs = "; ".join(f"c{number} a 0 cpu=4" for number in range(3))
    board = Board("n1 n2 n3: 4 H100 cpus=16", "a; b", f"{running}; {jobs}", placement="fragmentation")
    assert_outcomes(board.step(), {f"c{number}": "n2" for number in range(3)})


def test_work_without_cards_that_finds_no_cpus_is_told_so() -> None:
    board = Board(BARE, "a; b", "r b 1 cpu=10 @n1; s b 1 cpu=10 @n2; t b 0 cpu=4 @c1; j a 0 cpu=7")
    assert_outcomes(board.step(), {"j": "host: a replica needs 7 CPUs, the most free on one node is 6"})


def test_room_for_replicas_without_cards_is_counted_where_there_are_none() -> None:
    board = Board("c1 c2: 0 H100 cpus=8", "a; b", "r b 0 cpu=6 @c2; j a 3x0 cpu=3")
    told = {"j": "host: needs 3 × (3 CPU, 0 GiB of host memory), there is room for 2"}
    assert_outcomes(board.step(), told)


# -- the mix


def test_the_mix_is_what_waits_and_what_runs() -> None:
    board = Board(
        "n1: 8 L40 mib=1000 cpus=64", "a; b", "r b 2x2 @n1/n1; j a 3x1 cpu=2; k a 3x1 cpu=2 held=no; l b 1 slice=9"
    )
    found = mix_of(board.roster.snapshot(0.0), headroom=0.0)
    assert {task[:3]: count for task, count in found.classes} == {(1, 0, 2000): 6, (2, 0, 2000): 2, (1, 9, 1000): 1}
    assert found.total == 9
    board.roster.release("r", 1.0)
    assert {task.gpus for task, _ in mix_of(board.roster.snapshot(1.0), headroom=0.0).classes} == {1}


def test_a_restarted_roster_has_the_same_mix() -> None:
    jobs = "r b 2x2 @n1/n1; s b 1 @n1; j a 3x1"
    board = Board("n1: 8 H100", "a; b", f"{jobs}; t b 1")
    board.roster.start("t", board.decide().starts[-1].pieces, 0.0)
    snapshot = board.roster.snapshot(0.0)
    again = Roster(board.roster.tree, board.roster.policy, board.roster.inventory.nodes)
    for running in snapshot.running.values():
        again.adopt(running.job, running.pieces, running.started)
    for lane in snapshot.lanes:
        for job in lane.jobs:
            again.submit(job)
    assert mix_of(again.snapshot(0.0), 0.0) == mix_of(snapshot, 0.0)


def test_the_mix_is_the_popular_share() -> None:
    counts = Counter({TaskClass(1, 0, 0, 1): 90, TaskClass(2, 0, 0, 1): 5, TaskClass(4, 0, 0, 1): 5})
    kept = most_popular(counts)
    assert [task.gpus for task, _ in kept.classes] == [1, 2]
    assert kept.total == 95


def test_the_mix_stays_small_where_every_job_is_another() -> None:
    counts = Counter({TaskClass(1, 0, cpus, 1): 1 for cpus in range(10 * MOST_CLASSES)})
    assert len(most_popular(counts).classes) == MOST_CLASSES


def test_an_empty_mix_places_by_the_best_fit() -> None:
    inventory = Inventory(nodes_of("n1: 4 H100; n2: 2 H100"))
    assert Fragmentation(Mix()).choose_node(Ledger(inventory), Want(1, 0, 0, 0, inventory.all, packs=False), 0) == 1


# -- what is remembered is what is so


def some_jobs(draw: random.Random, count: int) -> str:
    return "; ".join(
        f"j{number} a {draw.choice(['1', '2', '2x1', '1 slice=300', '1 slice=700', '0'])} cpu={draw.choice([1, 4, 9])}"
        for number in range(count)
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_names_of_equal_nodes_do_not_matter(seed: int) -> None:
    """As many start whatever the nodes are called; which of two equal ones takes a job is all that changes."""
    draw = random.Random(seed)
    nodes = nodes_of("n1 n2 n3 n4: 4 L40 mib=1000 cpus=20; n5 n6 n7: 2 L40 mib=1000 cpus=40")
    names = [f"m{number}" for number in draw.sample(range(7), 7)]
    renamed = [replace(node, name=name) for node, name in zip(nodes, names, strict=True)]
    jobs = some_jobs(draw, 30)
    started = []
    for each in (nodes, renamed):
        board = Board("", "a", jobs, placement="fragmentation")
        board.roster.add_nodes(each)
        started.append([start.job for start in board.decide().starts])
    assert started[0] == started[1]
    assert 0 < len(started[0]) < 30


def test_two_decisions_on_one_snapshot_are_equal() -> None:
    board = Board("n1 n2 n3: 4 L40 mib=1000 cpus=20", "a", some_jobs(random.Random(1), 30), placement="fragmentation")
    snapshot = board.roster.snapshot(0.0)
    assert decide(snapshot, board.roster.policy, 0.0) == decide(snapshot, board.roster.policy, 0.0)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_what_is_remembered_of_the_ledger_is_what_is_so(draw: random.Random) -> None:
    """One strategy that has seen every move chooses as one that sees the ledger for the first time."""
    inventory = Inventory(nodes_of("n1 n2 n3: 4 L40 mib=1000 cpus=9; n4: 2 L40 mib=1000 cpus=9; c1: 0 L40 cpus=2"))
    workload = mix((1, 0, 1000, 3), (2, 0, 2000, 2), (1, 300, 1000, 4), (1, 700, 3000, 1), (0, 0, 1000, 2))
    ledger, kept = Ledger(inventory), Fragmentation(workload)
    slices: list[tuple[int, int, int]] = []
    for _ in range(30):
        nodes = draw.choice([inventory.all, inventory.all, 0b0111, 0b1010])
        for gpus, mib in ((1, 0), (2, 0), (1, 300), (1, 700), (0, 0)):
            want = [Want(gpus, mib, draw.choice([1000, 4000]), 0, nodes, packs=False)] * 2
            fresh = Fragmentation(workload)
            if mib:
                card = kept.choose_card(ledger, want[0], 0)
                assert card == fresh.choose_card(ledger, want[1], 0)
                assert card is None or ledger.slice_left(*card) >= mib
            else:
                node = kept.choose_node(ledger, want[0], 0)
                assert node == fresh.choose_node(ledger, want[1], 0)
                assert node < 0 or ledger.free[node].bit_count() >= gpus
        _move(draw, ledger, slices)


def _move(draw: random.Random, ledger: Ledger, slices: list[tuple[int, int, int]]) -> None:
    node, gpu = draw.randrange(4), draw.randrange(2)
    mib = draw.choice([100, 300, 700])
    move = draw.randrange(6)
    if move == 0 and ledger.free[node]:
        ledger.take_cards(node, 1)
    elif move == 1 and ledger.slice_left(node, gpu) >= mib:
        ledger.take_slice(node, gpu, mib)
        slices.append((node, gpu, mib))
    elif move == 2 and slices:
        ledger.give_slice(*slices.pop(draw.randrange(len(slices))))
    elif move == 3:
        back = ledger.cpus[node] < ledger.inventory.cpus_milli[node]
        ledger.take_host(node, -1000 if back and draw.random() < 0.5 else 3000, 0)
    elif move == 4:
        working = bool(ledger.working[node] >> gpu & 1)
        shared = ledger.card(node, gpu) in ledger.shared
        held = not shared and not ledger.free[node] >> gpu & 1
        ledger.set_working(node, gpu, working=not working, held=held)
    elif not ledger.free[node] >> gpu & 1 and ledger.card(node, gpu) not in ledger.shared:
        ledger.give_cards(node, (gpu,))


def test_a_card_out_of_work_takes_no_slice() -> None:
    board = Board("n1: 2 L40 mib=1000", "a; b", "r b 1 slice=500 @n1:0; j a 1 slice=400", placement="fragmentation")
    board.roster.set_card_state("n1", 0, CardState.OUT)
    assert_outcomes(board.step(), {"j": "n1:1"})


def test_cards_reserved_for_others_are_left() -> None:
    """``caps`` says how many free cards of a node may be taken; a shared card is nobody's reservation."""
    inventory = Inventory(nodes_of("n1 n2: 2 L40 mib=1000"))
    ledger, strategy = Ledger(inventory), Fragmentation(mix((1, 0, 0, 1), (1, 300, 0, 1), nodes=0b11))
    want = Want(1, 0, 0, 0, inventory.all, packs=False)
    want.caps = {0: 0}
    assert strategy.choose_node(ledger, want, 0) == 1
    want.caps = {0: 0, 1: 0}
    assert strategy.choose_node(ledger, want, 0) == -1
    want = Want(1, 300, 0, 0, inventory.all, packs=False)
    want.caps = {0: 0, 1: 0}
    assert strategy.choose_card(ledger, want, 0) is None
    ledger.take_slice(0, 1, 500)
    assert strategy.choose_card(ledger, want, 0) == (0, 1)


def test_cards_of_other_sizes_and_models_count_by_what_they_have() -> None:
    """A slice of 500 MiB spoils the card of 1000 for those who ask for 600; the card of 500 is of no use to them."""
    asked = "; ".join(f"w{number} b 1 slice=600 prio=1 held=later" for number in range(20))
    board = Board(
        "n1: 1 L40 mib=1000; n2: 1 L4 mib=500", "a; b", f"{asked}; j a 1 slice=400", placement="fragmentation"
    )
    assert_outcomes(board.step(), {"j": "n2:0"})


def test_the_policy_is_obeyed_by_name() -> None:
    roster = Roster(tree_of("a"), policy_of(placement="fragmentation"), [Node("n1", 4, "H100", 81920)])
    assert decide(roster.snapshot(0.0), roster.policy, 0.0).starts == ()
