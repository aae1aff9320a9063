"""Defragmentation: the fewest moves, held to a brute force, and plans that really make room."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import assume, given, settings

from scheduler.engine import defrag
from scheduler.engine.cluster import Inventory, NodeState
from scheduler.engine.cycle import decide
from scheduler.engine.defrag import Proposal, defragment, together
from scheduler.engine.demand import Level, PendingJob, Topology
from scheduler.engine.placement.fit import Fit
from scheduler.engine.plan import Claim, Piece
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import Phase
from tests.engine.board import Board, job_of, policy_of
from tests.engine.generated import drawn

NOW = 100.0


def propose(board: Board, job: str | PendingJob, *, any_preemptible: bool = True) -> Proposal:
    """The moves for a job from a line of the board, or for one made elsewhere."""
    wanted = job_of(job, 1000) if isinstance(job, str) else job
    roster = board.roster
    return defragment(roster.snapshot(NOW), roster.policy, wanted, NOW, any_preemptible=any_preemptible)


def moved(proposal: Proposal) -> dict[str, list[str]]:
    return {move.job: [piece.node for piece in move.pieces] for move in proposal.moves}


# Case C27


def c27() -> Board:
    return Board(
        "n1: 8 H100; n2: 8 H100; n3: 8 H100",
        jobs="""a4 a 4 @n1; a2 a 2 @n1; a1 a 1 @n1
                b4 a 4 @n2; b2 a 2 @n2
                c4 a 4 @n3; c2 a 2 @n3; c1 a 1 @n3""",
    )


def test_c27_two_moves_of_three_gpus_and_no_plan_with_one() -> None:
    found = propose(c27(), "big a 4")
    assert (found.total_free, found.largest_free, found.short) == (4, 2, 0)
    assert len(found.moves) == 2
    assert found.gpus == 3
    assert found.exact
    assert len({piece.node for piece in found.start}) == 1
    assert fewest_by_brute_force({"n1": 8, "n2": 8, "n3": 8}, held(c27()), 4) == 2


def test_c27_a_job_of_five_is_short_by_one_in_total() -> None:
    found = propose(c27(), "big a 5")
    assert (found.moves, found.start, found.short, found.total_free) == ((), (), 1, 4)


def test_c27_cards_together_ask_the_same() -> None:
    assert propose(c27(), together(4)).gpus == 3
    assert propose(c27(), together(4, ("A100",))).short == 4


def test_nothing_is_moved_for_a_job_that_fits() -> None:
    found = propose(c27(), "small a 2")
    assert (found.moves, found.gpus) == ((), 0)
    assert found.start == (Piece("main", 0, "n2", (6, 7)),)


# Who may be moved

HALVES = "n1 n2: 4 H100"


def halves(*jobs: PendingJob) -> Board:
    """Two nodes of four, half of each held by one job: a job of four needs one move."""
    board = Board(HALVES)
    for node, job in zip(("n1", "n2"), jobs, strict=True):
        board.roster.adopt(job, (Piece("main", 0, node, (0, 1)),), 0.0, Phase.RUNNING)
    return board


def two(key: str) -> PendingJob:
    return replace(job_of(f"{key} a 2"), checkpoint_every=600.0)


def test_only_jobs_that_save_their_work_move_unless_any_may() -> None:
    board = halves(replace(two("x"), checkpoint_every=None), replace(two("y"), checkpoint_every=None))
    assert propose(board, "big a 4", any_preemptible=False).start == ()
    assert len(propose(board, "big a 4").moves) == 1
    board = halves(replace(two("x"), checkpoint_every=None), two("y"))
    assert moved(propose(board, "big a 4", any_preemptible=False)) == {"y": ["n1"]}


def test_a_job_that_may_not_be_preempted_is_never_moved() -> None:
    board = halves(replace(two("x"), preemptible=False), two("y"))
    assert moved(propose(board, "big a 4")) == {"y": ["n1"]}
    board = halves(replace(two("x"), preemptible=False), replace(two("y"), preemptible=False))
    assert propose(board, "big a 4").start == ()


def test_a_job_that_starts_or_stops_is_never_moved() -> None:
    board = halves(two("x"), two("y"))
    board.roster.set_phase("x", Phase.STARTING)
    assert moved(propose(board, "big a 4")) == {"y": ["n1"]}
    board.roster.set_phase("y", Phase.STOPPING)
    assert propose(board, "big a 4").start == ()


def test_of_equal_moves_the_one_that_loses_the_least_work_is_proposed() -> None:
    board = halves(replace(two("x"), checkpoint_every=None), replace(two("y"), checkpoint_every=100.0))
    assert moved(propose(board, "big a 4")) == {"y": ["n1"]}  # saved at the very moment


# What a moved job keeps


def test_moves_keep_labels_taints_and_exclusions() -> None:
    nodes = "n1: 4 H100 label=zone:a; n2: 4 H100 label=zone:b; n3: 4 H100 taint=night"
    fillers = "f2 a 2 @n2; f3 a 2 tol=night @n3"
    for keys, goes in (("", "n2"), ("sel=zone:a", None), ("not=n2", None), ("not=n2 tol=night", "n3")):
        board = Board(nodes, jobs=f"x a 2 {keys} @n1; {fillers}")
        found = propose(board, "big a 4 sel=zone:a")
        assert moved(found) == ({"x": [goes]} if goes else {}), keys


def test_moves_keep_to_the_models_a_job_is_on_and_so_to_every_quota() -> None:
    board = Board("n1: 4 H100; n2: 4 A100", teams="a H100:/8 A100:/0", jobs="x a 2 @n1")
    assert propose(board, "big a 4 model=H100").start == ()


def test_a_slice_moves_only_where_it_counts_for_the_same() -> None:
    nodes = "n1: 1 H100 vram=80; n2: 1 H100 vram={vram}"
    job = "x a 1 slice=8192 @n1:0"
    assert propose(Board(nodes.format(vram=40), jobs=job), "big a 1 sel=none:x").start == ()
    wanted = replace(job_of("big a 1"), shape=replace(job_of("big a 1").shape, excluded=frozenset({"n2"})))
    assert propose(Board(nodes.format(vram=40), jobs=job), wanted).start == ()
    assert moved(propose(Board(nodes.format(vram=80), jobs=job), wanted)) == {"x": ["n2"]}


def test_moving_slices_together_frees_a_whole_card_that_the_totals_do_not_show() -> None:
    board = Board("n1: 2 H100 mib=100", jobs="x a 1 slice=40 @n1:0; y a 1 slice=40 @n1:1")
    found = propose(board, "big a 1")
    assert (found.total_free, found.short, len(found.moves)) == (0, 1, 1)


def test_a_moved_gang_keeps_its_topology() -> None:
    gang = replace(job_of("x a 2x2"), checkpoint_every=1.0)
    for require, goes in ((None, True), (Level.RACK, False)):
        board = Board("n1: 4 H100 rack=r1; n2: 2 H100 rack=r2; n3: 2 H100 rack=r3")
        asked = replace(gang, shape=replace(gang.shape, topology=Topology(require=require)))
        board.roster.adopt(asked, tuple(Piece("main", i, "n1", (2 * i, 2 * i + 1)) for i in (0, 1)), 0, Phase.RUNNING)
        assert (moved(propose(board, "big a 4")) == {"x": ["n2", "n3"]}) is goes


def test_an_elastic_job_moves_as_large_as_it_is_now() -> None:
    group = replace(job_of("x a 4x1").shape.groups[0], min_replicas=1)
    job = replace(job_of("x a 4x1"), shape=replace(job_of("x a 4x1").shape, groups=(group,)))
    board = Board("n1: 4 H100; n2: 2 H100")
    board.roster.adopt(job, tuple(Piece("main", i, "n1", (i,)) for i in (0, 1)), 0, Phase.RUNNING)
    assert moved(propose(board, "big a 4")) == {"x": ["n2", "n2"]}


# What the waiting job needs


def test_a_job_that_its_limits_stop_gets_no_plan() -> None:
    board = Board(HALVES, teams="a; b H100:/3", jobs="x a 2 @n1; y a 2 @n2")
    assert propose(board, "big b 4").start == ()
    assert len(propose(board, "big a 4").moves) == 1


def test_cards_kept_for_another_job_are_not_given_away() -> None:
    board = Board(HALVES, jobs="x a 2 @n1; y a 2 @n2; other b 2")
    board.roster.keep((Claim("other", (Piece("main", 0, "n2", (2, 3)),)),))
    assert propose(board, "big a 4").start == ()
    assert propose(board, "other b 2").start == (Piece("main", 0, "n1", (2, 3)),)


def test_nodes_out_of_service_take_nothing() -> None:
    board = Board("n1 n2 n3: 4 H100", jobs="x a 2 @n1; y a 2 @n2")
    board.roster.set_node_state("n3", NodeState.CORDONED)
    found = propose(board, "big a 4")
    assert (found.total_free, len(found.moves)) == (4, 1)


def test_a_waiting_gang_is_made_room_for() -> None:
    board = Board("n1 n2 n3 n4: 4 H100", jobs="w a 2 @n1; x a 2 @n2; y a 2 @n3; z a 2 @n4")
    found = propose(board, "big a 2x4")
    assert len(found.moves) == 2
    assert found.gpus == 4


def test_host_memory_is_a_reason_to_move_too() -> None:
    board = Board("n1 n2: 4 H100 mem=100", jobs="x a 1 mem=60 @n1; y a 1 mem=10 @n2")
    assert moved(propose(board, "big a 1 mem=95")) == {"x": ["n2"]}


def test_a_chain_of_moves_is_found() -> None:
    """x must leave n1 for n2, which y leaves for n3: two moves, where neither is of use alone."""
    board = Board(
        "n1: 4 H100 label=z:1; n2: 2 H100 label=z:1; n3: 2 H100",
        jobs="x a 2 sel=z:1 @n1; y a 2 @n2",
    )
    assert moved(propose(board, "big a 4")) == {"x": ["n2"], "y": ["n3"]}


# Beyond the exact part


def test_the_greedy_part_says_so_and_spares_what_is_superfluous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defrag, "MOST_SETS", 15)
    found = propose(c27(), "big a 4")
    assert not found.exact
    assert (len(found.moves), found.gpus) == (2, 3)
    gangs = propose(Board("n1 n2 n3 n4: 4 H100", jobs="w a 2 @n1; x a 2 @n2; y a 2 @n3; z a 2 @n4"), "big a 2x4")
    assert len(gangs.moves) == 2


@pytest.mark.timeout(20)
def test_a_large_cluster_is_answered_in_time() -> None:
    dice = Random(7)
    names = " ".join(f"n{node}" for node in range(150))
    sizes = [dice.choice(((4, 2, 1), (2, 2), (6,))) for _ in range(150)]
    jobs = [f"j{node}-{place} a {size} @n{node}" for node, each in enumerate(sizes) for place, size in enumerate(each)]
    found = propose(Board(f"{names}: 8 H100", jobs=";".join(jobs)), "big a 8")
    assert found.start
    assert len(found.moves) == 2


@pytest.mark.timeout(20)
def test_a_gang_is_made_room_for_in_a_large_cluster() -> None:
    names = " ".join(f"n{node}" for node in range(60))
    sizes = [(4, 2) if node % 2 else (2, 1, 2) for node in range(60)]
    jobs = [f"j{node}-{place} a {size} @n{node}" for node, each in enumerate(sizes) for place, size in enumerate(each)]
    found = propose(Board(f"{names}: 8 H100", jobs=";".join(jobs)), "big a 2x8")
    assert (len(found.moves), found.gpus, found.exact) == (6, 10, False)


# Against a brute force


def held(board: Board) -> list[tuple[str, int, str]]:
    """(job, cards, node) of every running job of one replica."""
    running = board.roster.snapshot(NOW).running.values()
    return [(each.job.key, len(each.pieces[0].gpus), each.pieces[0].node) for each in running]


def fewest_by_brute_force(cards: dict[str, int], jobs: Sequence[tuple[str, int, str]], need: int) -> int | None:
    """The fewest jobs to move, every set of them tried on every node; None where no moves are enough."""
    for number in range(len(jobs) + 1):
        for some in combinations(jobs, number):
            stay = [job for job in jobs if job not in some]
            for target, *places in product(cards, repeat=number + 1):
                load = dict.fromkeys(cards, 0)
                for _, size, node in stay:
                    load[node] += size
                for (_, size, _), node in zip(some, places, strict=True):
                    load[node] += size
                load[target] += need
                if all(load[node] <= cards[node] for node in cards):
                    return number
    return None


def a_packed_board(dice: Random) -> tuple[Board, dict[str, int]]:
    """Three nodes of up to six cards with up to six jobs of one replica on them."""
    cards = {f"n{node}": dice.choice((3, 4, 6)) for node in range(1, 4)}
    free, jobs = dict(cards), []
    for number in range(dice.randrange(1, 7)):
        size = dice.choice((1, 1, 2, 2, 3))
        fits = [node for node in cards if free[node] >= size]
        if fits:
            node = dice.choice(fits)
            free[node] -= size
            jobs.append(f"j{number} a {size} @{node}")
    return Board("; ".join(f"{node}: {count} H100" for node, count in cards.items()), jobs="; ".join(jobs)), cards


@given(packed=drawn(a_packed_board), need=drawn(lambda dice: dice.randrange(1, 7)))
@settings(max_examples=150, deadline=None)
def test_no_plan_has_more_moves_than_a_brute_force_needs(packed: tuple[Board, dict[str, int]], need: int) -> None:
    board, cards = packed
    found = propose(board, f"big a {need}")
    fewest = fewest_by_brute_force(cards, held(board), need)
    assert found.exact
    assert (len(found.moves) if found.start else None) == fewest
    if found.start:
        assert_really_fits(board, found, job_of(f"big a {need}", 99))


def a_mixed_board(dice: Random) -> tuple[Board, PendingJob]:
    """A cluster with labels and taints on which the engine has put jobs of all kinds, some of them gone again."""
    nodes = ";".join(
        f"n{node}: {dice.choice((2, 4))} {dice.choice(('H100', 'H100', 'A100'))} mib=100 cpus=9 mem=40"
        f" label=zone:{dice.choice('ab')} rack=r{dice.randrange(2)}{dice.choice(('', '', ' taint=night'))}"
        for node in range(1, 6)
    )
    board = Board(nodes, jobs=";".join(a_line(dice, f"j{number}") for number in range(12)))
    roster = board.roster
    for start in decide(roster.snapshot(0.0), roster.policy, 0.0).starts:
        roster.start(start.job, start.pieces, 0.0)
        roster.set_phase(start.job, Phase.RUNNING)
        if dice.random() < 0.3:
            roster.release(start.job, 1.0)
    for lane in roster.snapshot(1.0).lanes:
        for job in lane.jobs:
            roster.withdraw(job.key)
    return board, job_of(a_line(dice, "big"), 99)


def a_line(dice: Random, name: str) -> str:
    size = dice.choice(("1", "1", "2", "2", "3", "4", "2x1", "2x2", "1x1+1x2"))
    share = f" slice={dice.choice((30, 50, 70))}" if "x" not in size and dice.random() < 0.3 else ""
    return (
        f"{name} a {size}{share} mem={dice.choice((1, 1, 5, 20))} cpu=1"
        f"{dice.choice(('', '', ' sel=zone:a', ' model=H100', ' tol=night'))}"
    )


@given(mixed=drawn(a_mixed_board))
@settings(max_examples=150, deadline=None)
def test_a_plan_makes_the_job_fit_and_none_of_its_moves_is_superfluous(mixed: tuple[Board, PendingJob]) -> None:
    board, job = mixed
    found = propose(board, job)
    assume(found.start)
    assert_really_fits(board, found, job)
    for move in found.moves:
        kept = [other for other in found.moves if other is not move]
        assert not fits_after(board, replace(found, moves=tuple(kept)), job), f"{move.job} need not move"


def applied(board: Board, proposal: Proposal) -> Roster:
    """A new roster on which everything runs where it is after the moves."""
    before = board.roster.snapshot(NOW)
    roster = Roster(board.roster.tree, policy_of(), before.inventory.nodes)
    goes = {move.job: move.pieces for move in proposal.moves}
    for key, running in before.running.items():
        roster.adopt(running.job, goes.get(key, running.pieces), running.started, Phase.RUNNING)
    return roster


def fits_after(board: Board, proposal: Proposal, job: PendingJob) -> bool:
    """Whether the engine starts the job once the moves are made, and they put nothing in the way of anything."""
    roster = applied(board, proposal)
    if not sound(roster):
        return False
    roster.submit(job)
    return any(start.job == job.key for start in decide(roster.snapshot(NOW), roster.policy, NOW).starts)


def assert_really_fits(board: Board, proposal: Proposal, job: PendingJob) -> None:
    assert fits_after(board, proposal, job)
    roster = applied(board, proposal)
    roster.adopt(job, proposal.start, NOW, Phase.RUNNING)
    assert sound(roster)
    running = roster.snapshot(NOW).running
    before = board.roster.snapshot(NOW).running
    for move in proposal.moves:
        assert dict(running[move.job].amounts) == dict(before[move.job].amounts)
        assert_on_its_nodes(roster.inventory, running[move.job].job, move.pieces)
    assert_on_its_nodes(roster.inventory, job, proposal.start)


def assert_on_its_nodes(inventory: Inventory, job: PendingJob, pieces: tuple[Piece, ...]) -> None:
    nodes = {each.group.name: each.nodes for each in Fit(job.shape, inventory, 0.0).groups}
    assert all(nodes[piece.group] >> inventory.index[piece.node] & 1 for piece in pieces)
    assert sorted((piece.group, piece.replica) for piece in pieces) == [
        (group.name, replica) for group in job.shape.groups for replica in range(group.replicas)
    ]


def sound(roster: Roster) -> bool:
    """No card held twice, no more memory promised than there is, and host resources for all."""
    pieces = [piece for run in roster.snapshot(NOW).running.values() for piece in run.pieces]
    whole = [(piece.node, gpu) for piece in pieces if not piece.mib for gpu in piece.gpus]
    shared: dict[tuple[str, int], int] = {}
    for piece in pieces:
        for gpu in piece.gpus if piece.mib else ():
            shared[piece.node, gpu] = shared.get((piece.node, gpu), 0) + piece.mib
    usable = {node.name: node.usable_mib for node in roster.inventory.nodes}
    return (
        len(whole) == len(set(whole))
        and not set(shared) & set(whole)
        and all(mib <= usable[node] for (node, _), mib in shared.items())
        and min(roster.ledger.cpus) >= 0
        and min(roster.ledger.memory) >= 0
    )
