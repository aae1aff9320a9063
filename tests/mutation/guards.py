"""The guards of the engine: how each is disabled, and the test that must notice."""

from tests.mutation.guard import Guard
from tests.mutation.rights import RIGHTS

TREE, WINDOWS = "tests/quotas/test_tree.py", "tests/quotas/test_windows.py"
ENGINE = "scheduler/engine"


def _tests(name: str, test: str) -> str:
    return f"tests/engine/test_{name}.py::{test}"


def _filter(name: str) -> str:
    return _tests("filters", f"test_filter[{name}]")


def _strict(name: str) -> str:
    return _tests("blocking", f"test_without_backfill[{name}]")


def _limit(name: str) -> str:
    return _tests("limits", f"test_limit[{name}]")


def _order(name: str) -> str:
    return _tests("order", f"test_order[{name}]")


CLUSTER, LEDGER, ROSTER = f"{ENGINE}/cluster.py", f"{ENGINE}/ledger.py", f"{ENGINE}/roster.py"
WALK, ACCOUNTS, GATES = f"{ENGINE}/walk.py", f"{ENGINE}/accounts.py", f"{ENGINE}/gates.py"
THROTTLE, CYCLE, CAPACITY = f"{ENGINE}/throttle.py", f"{ENGINE}/cycle.py", f"{ENGINE}/order/capacity.py"
FIT, GANG, STRATEGY = (f"{ENGINE}/placement/{name}.py" for name in ("fit", "gang", "strategy"))
HYBRID, LIMITS = f"{ENGINE}/placement/hybrid.py", "quotas/limits.py"
BOUNDS = "def _bounds(self, position: int, model: str) -> tuple[Bound, ...]:\n        found = []\n        for team in "

FILTERS = (
    Guard("model", FIT, "inventory.of_model(group.models)", "inventory.all", _filter("model")),
    Guard("card memory", FIT, "inventory.with_memory(group, mib)", "inventory.all", _filter("card memory")),
    Guard("labels", FIT, "inventory.with_labels(group.selector)", "inventory.all", _filter("label")),
    Guard("taints", FIT, "inventory.tolerated(group.tolerations)", "inventory.all", _filter("taint")),
    Guard("node ready", GANG, "nodes = allowed & ledger.ready &", "nodes = allowed &",
          _tests("filters", "test_only_a_ready_node_takes_work[cordoned]")),
    Guard("excluded", GANG, "ledger.ready & ~fit.excluded", "ledger.ready", _filter("excluded")),
    Guard("avoided", GANG, "nodes & ~fit.avoided", "nodes", _filter("avoided while another fits")),
    Guard("avoided only while another fits", GANG, "(preferred, nodes) if preferred", "(preferred,) if preferred",
          _filter("avoided, but the only one left")),
    Guard("host CPUs", STRATEGY, "if ledger.cpus[node] >= want.cpus_milli and ledger", "if ledger",
          _filter("CPUs in use")),
    Guard("host memory", STRATEGY, " and ledger.memory[node] >= want.memory_mib:", ":", _filter("host memory in use")),
    Guard("working card", LEDGER, "working and not held and not shared", "not held and not shared",
          _tests("filters", "test_only_an_ok_card_takes_work[j a 1-n1:1-out]")),
    Guard("held card that works again", LEDGER, "working and not held and not shared", "working and not shared",
          _tests("filters", "test_a_held_card_that_works_again_stays_held")),
    Guard("shared card that is out", LEDGER, "== left and self.working[node] >> gpu & 1:", "== left:",
          _tests("filters", "test_a_shared_card_that_is_out_takes_no_more_slices")),
    Guard("card that went out in use", LEDGER, "| bitset_of(gpus) & self.working[node]", "| bitset_of(gpus)",
          _tests("filters", "test_a_card_that_went_out_in_use_is_not_free_afterwards")),
    Guard("natural order of names", CLUSTER, 'int(part), "") if part.isdigit()', 'int(part), "") if False',
          _tests("placement", "test_place[binpack: n2 before n10]")),
)  # fmt: skip

MEMORY = (
    Guard("the driver's reserve", CLUSTER, "self.vram_mib - self.reserve_mib", "self.vram_mib",
          _tests("memory", "test_the_reserve_is_the_drivers")),
    Guard("head room", FIT, "1 + headroom if group.kind", "1.0 if group.kind",
          _tests("memory", "test_head_room_is_for_inference_alone")),
    Guard("head room of inference alone", FIT, "if group.kind is Kind.INFERENCE else 1.0", "",
          _tests("memory", "test_head_room_is_for_inference_alone")),
    Guard("head room rounded up", FIT, "math.ceil(", "math.floor(",
          _tests("memory", "test_head_room_is_rounded_up_and_tells_the_backend")),
    Guard("memory left on a card", LEDGER, "bisect_left(self.lefts, max(mib, 1)) :", "0 :",
          _tests("memory", "test_rounding_admits_no_slice_too_many")),
    Guard("shared card is no whole one", LEDGER, "self._set_free(node, self.free[node] & ~(1 << gpu))", "pass",
          _tests("memory", "test_slices_keep_off_whole_cards_and_whole_jobs_off_shared_ones")),
    Guard("last slice makes the card whole", LEDGER, "if left + mib >= self.inventory.nodes[node].usable_mib:",
          "if False:",
          _tests("memory", "test_after_its_last_slice_a_card_is_whole_again")),
    Guard("slices of several cards", STRATEGY, "(left := ledger.slice_left(node, gpu)) >= want.mib",
          "(left := ledger.slice_left(node, gpu)) >= 0", _tests("memory",
          "test_slices_of_several_cards[each too full]")),
    Guard("replicas of several slices", STRATEGY, "if want.remaining > 1:", "if False:",
          _tests("memory", "test_replicas_of_several_slices_find_the_way_that_there_is[binpack]")),
    Guard("cards that are gone", LEDGER, " or gpu >= self.inventory.nodes[node].gpus", "",
          _tests("roster", "test_cards_that_a_node_no_longer_has_do_not_come_back")),
    Guard("slices on cards that are gone", ROSTER, "for gpu in piece.gpus if gpu < cards", "for gpu in piece.gpus",
          _tests("memory", "test_slices_on_cards_that_the_node_no_longer_has_touch_no_others")),
)  # fmt: skip

GANGS = (
    Guard("a failed gang gives all back", GANG, "undo(ledger, placed)\n                return None", "return None",
          _tests("gangs", "test_gang[a failed gang leaves the room to the next]")),
    Guard("undo of whole cards", GANG, "            ledger.give_cards(node, gpus)\n", "            pass\n",
          _tests("gangs", "test_after_a_failure_the_ledger_is_as_before[j a 2x2-binpack]")),
    Guard("undo of slices", GANG, "ledger.give_slice(node, gpu, each.mib)", "pass",
          _tests("gangs", "test_after_a_failure_the_ledger_is_as_before[j a 6x1 slice=700-binpack]")),
    Guard("undo of CPUs", GANG, "        ledger.take_host(node, -each.group.cpus_milli, -each.group.memory_mib)\n", "",
          _tests("gangs", "test_after_a_failure_the_ledger_is_as_before[j a 2x2-binpack]")),
    Guard("one model for a gang", GANG, "if not fit.solo and len(fit.models) > 1:", "if False:",
          _tests("gangs", "test_gang[one model where one has room]")),
    Guard("hybrid packs what is small", HYBRID, "if want.packs:", "if False:",
          _tests("placement", "test_place[hybrid: less than half a node packs]")),
)  # fmt: skip

LIMIT = (
    Guard("limit of the own team", LIMITS, f"{BOUNDS}self.tree.lineage[position]",
          f"{BOUNDS}self.tree.lineage[position][1:]",
          _limit("own limit")),
    Guard("limit of the parent", LIMITS, f"{BOUNDS}self.tree.lineage[position]",
          f"{BOUNDS}self.tree.lineage[position][:1]",
          _limit("the parent's")),
    Guard("limit over all models", LIMITS,
          f"{BOUNDS}self.tree.lineage[position]:\n            for account in (model, ANY_MODEL)",
          f"{BOUNDS}self.tree.lineage[position]:\n            for account in (model,)", _limit("over all models")),
    Guard("use counts for the parents", LIMITS, "for team in line for account", "for team in line[:1] for account",
          _limit("the parent's")),
    Guard("starts of this decision count", ACCOUNTS, "for slot in charges[node.model]:", "for slot in ():",
          _limit("starts of the same decision count")),
    Guard("groups together over all models", FIT, "[account == ANY_MODEL]", "[False]",
          _limit("groups on different models count together over all")),
    Guard("groups apart for each model", FIT, "[account == ANY_MODEL]", "[True]",
          _limit("groups on different models count for each apart")),
    Guard("use of a model that has left", ROSTER, "gone | inventory.cards", "inventory.cards",
          _tests("limits", "test_what_runs_on_hardware_that_left_goes_on_counting")),
    Guard("the ceiling of all hours", LIMITS,
          "        limits += [window.limit for window in self.windows if window.model == model]\n", "",
          f"{TREE}::test_the_ceiling_is_the_most_that_any_hour_allows[4-limits_of_windows0-16]"),
    Guard("children promised too much", LIMITS, "if parts > own:", "if False:",
          f"{TREE}::test_promises[one child alone]"),
    Guard("parents that do not exist", LIMITS, "if team.parent is not None and team.parent not in self.index:",
          "if False:",
          f"{TREE}::test_broken_trees_are_refused[teams3-a: parent 'nobody' does not exist]"),
    Guard("the day is the day it began", LIMITS, "(today - 1) % 7 in self.days", "today in self.days",
          f"{WINDOWS}::test_over_midnight_on_weekdays[2026-01-10T01:00:00-True]"),
    Guard("clocks put forward", LIMITS, "return moments + _clock_changes(tree.zone, first)", "return moments",
          f"{WINDOWS}::test_daylight_saving_in_berlin[spring, begins in the hour that is left out]"),
    Guard("hours that come twice", LIMITS, "for fold in (0, 1)", "for fold in (0,)",
          f"{WINDOWS}::test_daylight_saving_in_berlin[autumn, lies in the hour that comes twice]"),
)  # fmt: skip

LINE = (
    Guard("priority", WALK, "return (-job.priority, job.submitted", "return (0, job.submitted",
          _order("fifo: priority before submission")),
    Guard("standing looked at again", WALK, "if entry != line[0]:", "if False:",
          _tests("order", "test_what_a_team_got_counts_for_a_sibling_that_goes_by_the_same_number")),
    Guard("place of a requeued job", ROSTER, "if not jobs or jobs[-1].order <= job.order:", "if True:",
          _tests("order", "test_requeued_job_keeps_its_place[fifo]")),
    Guard("weights", ACCOUNTS, " / self._weights[team]", "", _order("fair: weights")),
    Guard("held cards count at once", ACCOUNTS, " + self.used[self.totals[team]] * (HELD_COUNTS_FOR / NANO)", "",
          _order("fair: what is started counts at once")),
    Guard("guaranteed share used up", CAPACITY, "if share is not None and share < 1:", "if share is not None:",
          _order("capacity: at its share a team is like the rest")),
    Guard("the nearest ancestor's share", ACCOUNTS, "for member in self.tree.lineage[team]:",
          "for member in self.tree.lineage[team][:1]:",
          _order("capacity: the nearest ancestor's number where a team has none")),
    Guard("a blocked job stops the later ones", WALK, "if self._blocked_nodes & usable:", "if False:",
          _strict("strictly in line")),
    Guard("and those stop others", WALK,
          "            self._block(lane, job, usable)\n            return Stop(job, Reason.TURN",
          "            return Stop(job, Reason.TURN", _strict("and keeps its place in the other pool (C33)")),
    Guard("with backfill nobody is stopped", WALK, "if self.policy.backfill or not", "if not",
          _tests("blocking", "test_with_backfill_later_ones_start")),
    Guard("what cannot run blocks nobody", WALK, " or not self.feasibility.holds(lane.fit, usable):", ":",
          _tests("blocking", "test_a_card_out_makes_room_for_those_behind")),
    Guard("blocked by quota blocks nobody", WALK, "Stop(job, Reason.QUOTA)",
          "(self._block(lane, job, lane.fit.nodes), Stop(job, Reason.QUOTA))[1]",
          _strict("blocked by quota blocks nobody")),
    Guard("it blocks the nodes it may use", WALK, "usable = allowed & ~lane.fit.excluded", "usable = lane.fit.nodes",
          _tests("blocking", "test_it_blocks_the_nodes_that_it_may_use")),
    Guard("so many starting", THROTTLE, "if limits.max_starting and", "if False and",
          _tests("throttle", "test_throttle[so many starting at once]")),
    Guard("so many a minute", THROTTLE, "if limits.starts_per_minute and", "if False and",
          _tests("throttle", "test_throttle[so many a minute]")),
    Guard("so many a minute and team", THROTTLE, "if limit and self._by_team", "if False and self._by_team",
          _tests("throttle", "test_throttle[so many a minute and team]")),
    Guard("a minute is over", THROTTLE, " if at + WINDOW_SECONDS > now", "",
          _tests("throttle", "test_a_snapshot_may_be_older_than_the_decision")),
    Guard("held", GATES, "if job.held:", "if False:", _tests("reasons", "test_ladder[held]")),
    Guard("back-off", GATES, "if job.backoff_until > now:", "if False:", _tests("reasons", "test_ladder[backoff]")),
    Guard("not before", GATES, "if job.not_before > now:", "if False:", _tests("reasons", "test_ladder[not_before]")),
    Guard("other jobs first", GATES, "if job.waits_for:", "if False:", _tests("reasons",
          "test_ladder[not_before, other jobs]")),
    Guard("no decision before the first look", CYCLE, "if not snapshot.synced:", "if False:",
          _tests("reasons", "test_nobody_starts_before_the_first_complete_look")),
    Guard("the roster copies what it has lent", ROSTER, "if self._lent:", "if False:",
          _tests("roster", "test_a_snapshot_stays_as_it_was[release whole cards]")),
    Guard("a decision works on a copy", WALK, "self.ledger = snapshot.ledger.copy()", "self.ledger = snapshot.ledger",
          _tests("roster", "test_a_decision_leaves_its_snapshot_as_it_was")),
)  # fmt: skip

DEFRAG = f"{ENGINE}/defrag.py"


def _move(test: str) -> str:
    return _tests("defrag", test)


MOVES = (
    Guard("only what runs is moved", DEFRAG, "running.phase is not Phase.RUNNING or not", "not",
          _move("test_a_job_that_starts_or_stops_is_never_moved")),
    Guard("only what may be preempted is moved", DEFRAG, "or not job.preemptible or not", "or not",
          _move("test_a_job_that_may_not_be_preempted_is_never_moved")),
    Guard("only what saves its work is moved", DEFRAG, "any_preemptible or job.checkpoint_every is not None", "True",
          _move("test_only_jobs_that_save_their_work_move_unless_any_may")),
    Guard("a moved job counts as before", DEFRAG, "moved is None or _counts_as_before(trial, moved, placed)", "True",
          _move("test_a_slice_moves_only_where_it_counts_for_the_same")),
    Guard("no moves for what limits stop", DEFRAG, "if job.team:", "if False:",
          _move("test_a_job_that_its_limits_stop_gets_no_plan")),
    Guard("no moves onto cards kept for others", DEFRAG, "if claim.winner != job.key:", "if False:",
          _move("test_cards_kept_for_another_job_are_not_given_away")),
)  # fmt: skip

DESCENT, WASTE, MIX = (f"{ENGINE}/placement/{name}.py" for name in ("fragmentation", "waste", "mix"))


def _descent(test: str) -> str:
    return _tests("fragmentation", test)


FRAGMENTS = (
    Guard("work without cards keeps off nodes with cards", GANG,
          "without_cards(ledger, want) if not want.gpus else -1", "-1",
          _descent("test_work_without_cards_goes_where_there_are_none[spread]")),
    Guard("CPUs count in the measure", WASTE, "if bisect_right(self._amounts, task.cpus_milli) > level:", "if False:",
          _descent("test_the_measure_is_as_defined")),
    Guard("several cards of one class", WASTE, "if len(fitting) >= gpus:", "if fitting:",
          _descent("test_the_measure_is_as_defined")),
    Guard("classes that may not use a node", WASTE, "if may and task.gpus", "if task.gpus",
          _descent("test_a_class_that_may_not_use_the_node_wastes_all_of_it")),
    Guard("growth in steps", WASTE, "return STEPS - math.floor(", "return STEPS - (",
          _descent("test_growth_below_a_step_leaves_it_to_the_best_fit[16-n1:0]")),
    Guard("best fit among equals", DESCENT, "found.step * STEP + cards.left + per_cpu * has", "found.step * STEP",
          _descent("test_place[equal growth falls to the best fit]")),
    Guard("free cards reserved for others", DESCENT,
          "not want.caps or shared or want.caps.get(node, want.gpus) >= want.gpus", "True",
          _descent("test_cards_reserved_for_others_are_left")),
    Guard("CPUs of the node", DESCENT, "if has < need_cpus or memory[node] < need_memory:",
          "if memory[node] < need_memory:", _descent("test_place[what does not fit the node is no choice]")),
    Guard("memory of the node", DESCENT, "if has < need_cpus or memory[node] < need_memory:", "if has < need_cpus:",
          _descent("test_place[nor what does not fit its memory]")),
    Guard("changed nodes are looked at again", DESCENT, "if row.seen < len(changes):", "if False:",
          _descent("test_what_is_remembered_of_the_ledger_is_what_is_so")),
    Guard("jobs that have left are no part of the mix", ROSTER, "self._uncount(running.job.shape)", "pass",
          _descent("test_the_mix_is_what_waits_and_what_runs")),
    Guard("the popular share", MIX, "if covered >= enough or", "if",
          _descent("test_the_mix_is_the_popular_share")),
)  # fmt: skip

GUARDS: tuple[Guard, ...] = FILTERS + MEMORY + GANGS + LIMIT + LINE + RIGHTS + MOVES + FRAGMENTS
