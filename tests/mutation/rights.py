"""The guards of taking, claims, reservations, topology, elastic jobs and lending."""

from tests.mutation.guard import Guard

ENGINE = "scheduler/engine"
TAKE, SEARCH, SHIELDS, CLAIMS = (f"{ENGINE}/preempt/{name}.py" for name in ("taking", "search", "shields", "claims"))
BACKFILL, ELASTIC, RESIZING = (f"{ENGINE}/{name}.py" for name in ("backfill", "elastic", "resizing"))
TOPOLOGY, WATERMARK = f"{ENGINE}/placement/topology.py", f"{ENGINE}/watermark.py"
WALK, ACCOUNTS, LIMITS = f"{ENGINE}/walk.py", f"{ENGINE}/accounts.py", "quotas/limits.py"


def _tests(name: str, test: str) -> str:
    return f"tests/engine/test_{name}.py::{test}"


def _reclaim(name: str) -> str:
    return _tests("reclaim", f"test_reclaim[{name}]")


def _preempt(name: str) -> str:
    return _tests("preemption", f"test_preemption[{name}]")


def _beside(name: str) -> str:
    return _tests("reservations", f"test_beside_a_reservation[{name}]")


def _together(name: str) -> str:
    return _tests("topology", f"test_together[{name}]")


def _apart(name: str) -> str:
    return _tests("topology", f"test_apart[{name}]")


def _resize(name: str) -> str:
    return _tests("elastic", f"test_resize[{name}]")


def _lent(name: str) -> str:
    return _tests("lending", f"test_lend_limit[{name}]")


TAKING = (
    Guard("reclaim serves who stays within its number", TAKE,
          "if 0 < fit.needs(model) <= accounts.entitlement(lane.team, (model,))",
          "if accounts.entitlement(lane.team, (model,)) > 0",
          _reclaim("one that needs more than its team is guaranteed borrows itself")),
    Guard("on the models of that number alone", TAKE, "if right.numbers else fit.nodes", "if False else fit.nodes",
          _reclaim("nor does it settle on another that a loan leaves too")),
    Guard("only loans are taken back", TAKE, "if any(self._accounts.borrowed(unit.team,",
          "if True or any(self._accounts.borrowed(unit.team,",
          _reclaim("what a team holds within its number is no loan")),
    Guard("until the team is at its number", TAKE,
          "                self._accounts.add(books, unit.team, unit.amounts, -1)\n", "                pass\n",
          _reclaim("nobody is brought below his number")),
    Guard("the youngest loan first", TAKE, "(unit.whole, -unit.started, unit.job))\n            return",
          "(unit.whole, unit.started, unit.job))\n            return", _reclaim("the youngest loan first")),
    Guard("a sibling's number is not his own", ACCOUNTS, "if member in beside and member != team:", "if False:",
          _reclaim("a sibling's loan, where the sibling has no number")),
    Guard("loans have a minimum too", SHIELDS,
          "return running.started + _minimum(running, policy.reclaim.min_runtime)", "return running.started",
          _reclaim("min_runtime protects")),
    Guard("a job's own minimum", SHIELDS, "return by_policy if own is None else own", "return by_policy",
          _reclaim("a job's own minimum")),
    Guard("reclaim can be off", TAKE, "self._entitled_on(lane) if self._policy.reclaim.enabled else ()",
          "self._entitled_on(lane)", _tests("reclaim", "test_reclaim_can_be_off")),
    Guard("reclaim before preemption", TAKE, "        if entitled:", "        if False:",
          _tests("reclaim", "test_it_is_tried_before_preemption")),
    Guard("no rights that chase each other", TAKE, "gave_way = job.returning or lane.number < 0", "gave_way = False",
          _tests("preemption", "test_whoever_gave_way_to_a_priority_does_not_reclaim_from_it")),
    Guard("a second replica of the same job", TAKE, "if each.running.job.key not in self._ended",
          "if each.running.job.key not in self.taken", _reclaim("two of them for two jobs")),
    Guard("never below the least", TAKE, "return max(0, len(running.pieces) - least)", "return len(running.pieces)",
          _reclaim("but never below its least")),
    Guard("lower priorities only", TAKE, "mine = priorities < priority + (cause is Cause.RECLAIM)",
          "mine = priorities <= priority + (cause is Cause.RECLAIM)",
          _preempt("not an equal one beside a lower one")),
    Guard("young jobs are left alone", SHIELDS, "since = running.started + _minimum(running, rules.min_runtime)",
          "since = running.started", _preempt("min_runtime protects")),
    Guard("and old ones", SHIELDS, "return NEVER if max(since, now) >= protected_from else since", "return since",
          _preempt("protect_after protects")),
    Guard("and those who may not be taken", SHIELDS, "if not job.preemptible or job.taken", "if job.taken",
          _preempt("not preemptible")),
    Guard("and those taken often enough", SHIELDS, "or job.taken >= rules.max_per_job:", "or False:",
          _preempt("taken often enough")),
    Guard("and those just back", SHIELDS, "    if job.returning:", "    if False:",
          _preempt("soon after its return")),
    Guard("work since the last checkpoint", SHIELDS, "    if every:", "    if False:",
          _preempt("since the last checkpoint")),
    Guard("the least lost work, exactly", SEARCH, "return sum(unit.lost for unit in units), sum(", "return 0.0, sum(",
          _preempt("exactly: two small ones rather than a large one")),
    Guard("shrinking before ending", SEARCH, "sum(unit.whole for unit in units), len(units)", "0, len(units)",
          _preempt("even where a whole job has just saved its work")),
    Guard("no superfluous victims", SEARCH, "        for unit in reversed(taken[-SPARED_AT_MOST:]):",
          "        for unit in ():", _reclaim("the youngest is spared where an older one is needed and enough")),
    Guard("what others leave is not asked for twice", TAKE,
          "self.taken[unit.job] = self.taken.get(unit.job, ()) + unit.pieces", "pass",
          _reclaim("two of them for two jobs")),
    Guard("limits once they have left", TAKE, "return self._accounts.allowed_after(fit, lane.team, used) & within",
          "return fit.nodes & within", _preempt("the limit of its team")),
    Guard("no right cuts into reservations", WALK, "return self.reservations.caps_after(job, given_up)",
          "return NO_CAPS", _tests("reservations", "test_nobody_takes_reserved_cards_by_another_right")),
)  # fmt: skip

HOLES = (
    Guard("the hole is kept", WALK, "        hold_spots(self.ledger, spots)\n        self.claims[job.key] = claim\n",
          "        self.claims[job.key] = claim\n", _tests("claims", "test_nobody_slips_into_the_hole")),
    Guard("of shared cards too", CLAIMS, "            if shared and not piece.mib:", "            if False:",
          _tests("claims", "test_slices_keep_off_a_card_that_is_claimed_whole")),
    Guard("all slices of a claim find room together", CLAIMS, "slices.get((spot.node, gpu), 0) + piece.mib",
          "piece.mib", _tests("claims", "test_slices_on_one_card_wait_until_there_is_room_for_all")),
    Guard("a claim counts for its team", WALK,
          "        self.accounts.enter(lane.team, self.taking.amounts(claim.pieces))\n", "",
          _tests("claims", "test_a_claim_counts_for_its_team_already")),
    Guard("a claim needs an owner who may start", WALK,
          "if claim.winner in waiting and claim.winner not in self.gated:", "if claim.winner in waiting:",
          _tests("claims", "test_a_winner_that_is_held_has_none")),
    Guard("a claim out of service is dropped", WALK, "if spots is None or not in_service(self.ledger, spots):",
          "if spots is None:", _tests("claims", "test_out_of_service_the_claim_is_dropped[down]")),
    Guard("a claim keeps the limits of now", WALK,
          "if not self.accounts.affords(lane.team, self.taking.amounts(claim.pieces)):", "if False:",
          _tests("claims", "test_a_limit_lowered_since_drops_it")),
    Guard("a claim on those who stay is dropped", WALK, "elif self.taking.still_leaving(claim):", "else:",
          _tests("claims", "test_if_they_do_not_leave_after_all_it_asks_anew")),
    Guard("a claim counts for what it is", WALK,
          "if not self.accounts.affords(lane.team, self.taking.amounts(claim.pieces)):",
          "if self.accounts.barred(lane.fit, lane.team, lane.fit.models):",
          _tests("claims", "test_a_claim_over_two_models_counts_on_each_for_what_it_is")),
    Guard("nobody delays a reservation", BACKFILL, "spare = max(0, self._free_at(node, reservation.at) - number)",
          "spare = 64", _beside("a longer one waits")),
    Guard("no limit is longer than any", BACKFILL,
          "return NEVER if job.time_limit is None else self._now + job.time_limit",
          "return self._now + (job.time_limit or 0)", _beside("one without a limit may be endless")),
    Guard("exactly then is no delay", BACKFILL,
          "binding = bisect_left(self._times, self._ends(job))\n        caps = ",
          "binding = bisect_left(self._times, self._ends(job) + 1)\n        caps = ",
          _beside("one that ends exactly then is no delay")),
    Guard("so many reservations of a team", BACKFILL, "if self._by_team.get(line, 0) >= self._policy.reserve_for or",
          "if", _beside("of one team one")),
    Guard("one line under fifo", BACKFILL, "return -1 if self._policy.queueing is Queueing.FIFO else lane.team",
          "return lane.team", _tests("reservations", "test_under_fifo_there_is_one_line")),
    Guard("no promise lies in the past", BACKFILL, "        if at <= self._now:\n            return",
          "        if False:\n            return",
          _tests("reservations", "test_a_reason_never_names_a_time_that_has_passed")),
    Guard("no reservation for what cannot run", WALK,
          "and self.feasibility.hold_of(lane.fit) is None:\n            self.reservations",
          "and True:\n            self.reservations", _beside("what could never run holds none")),
    Guard("shorter ones behind a longer one", WALK,
          "following = self._head(position, index + 1, shorter_than=stop.job.time_limit)", "pass",
          _beside("a shorter one of the same shape behind a longer one")),
    Guard("claimed cards are promised to nobody else", WALK,
          "            self.reservations.note_claim(job, claim.pieces, self.taking.leaving())\n",
          "            pass\n",
          _tests("reservations", "test_cards_that_are_being_vacated_for_one_are_promised_to_no_other")),
    Guard("reservations within the topology", BACKFILL, "areas = (nodes,) if level is None else",
          "areas = (nodes,) if True else",
          _tests("reservations", "test_the_place_that_is_held_keeps_to_the_topology")),
    Guard("starts count in the horizon", BACKFILL, "                if cards and job.time_limit is not None:",
          "                if False:", _beside("a start of this very decision promises too")),
)  # fmt: skip

SHAPES = (
    Guard("require one domain", TOPOLOGY, "if topology.require is None:\n        yield from",
          "if True:\n        yield from", _together("require rack")),
    Guard("prefer one domain", TOPOLOGY, "    if level is not None:\n        for wider",
          "    if False:\n        for wider", _together("prefer rack")),
    Guard("prefer widens level by level", TOPOLOGY, "for wider in WIDER[WIDER.index(level) :]:",
          "for wider in (level,):", _together("soft, n2 is busy (C25 d)")),
    Guard("spread over the domains with the fewest", TOPOLOGY, "for count in sorted(set(self._counts)):",
          "for count in sorted(set(self._counts), reverse=True):", _apart("spread rack, as even as possible")),
    Guard("not too many in one domain", TOPOLOGY, "if count < self._most:", "if True:",
          _apart("at most half, and only one is left")),
    Guard("but one is always allowed", TOPOLOGY, "else max(1, math.floor(", "else max(0, math.floor(",
          _apart("but one is always allowed")),
    Guard("an elastic job starts with fewer", WALK,
          "if job.elastic and self.resizing.enabled:\n            lane = self._in_its_size",
          "if False:\n            lane = self._in_its_size",
          _tests("elastic", "test_start[as many as there is room for]")),
    Guard("but not with less than its least", ELASTIC, "return Size(min(least, wanted), wanted, most, vram)",
          "return Size(1, wanted, most, vram)", _tests("elastic", "test_start[not less]")),
    Guard("growth beyond its size is given back", TAKE, "        if self._surplus:\n            verdict",
          "        if False:\n            verdict", _resize("what it has beyond its size it gives back")),
    Guard("beyond its size only into what idles", RESIZING, "for growth in self._ask(running, size.wanted)]",
          "for growth in self._ask(running, size.most)]",
          _tests("elastic", "test_growing_beyond_its_size_takes_from_nobody")),
    Guard("shrinks by the clock", ELASTIC, "if len(running.pieces) <= size.most:", "if True:",
          _resize("shrinks by the clock")),
    Guard("a slice grows where its card has room", ELASTIC,
          "return all(extra <= 0 or ledger.slice_left(node, gpu) >= extra", "return all(True",
          _tests("elastic", "test_a_slice_has_the_memory_of_the_hour[s a 1 slice=300 @n1:0--500]")),
    Guard("and its limits", RESIZING, "if resize is not None and self._affordable(running, resize) else []",
          "if resize is not None else []",
          _tests("elastic", "test_a_slice_has_the_memory_of_the_hour[-L40:/0.7-500]")),
    Guard("grows within its domain", ELASTIC, "barred = _outside(running, inventory, shape.topology) | ", "barred = ",
          _resize("grows within its rack")),
    Guard("grows apart", ELASTIC, " | _full_domains(running, inventory, shape.topology)", "", _resize("grows apart")),
    Guard("what is not lent is kept", LIMITS, "keeps - used[self.slot(lender, account)])", "0)",
          _lent("only so much with one")),
    Guard("but not from the asker's own number", LIMITS, "self.guaranteed[slot] - used[slot])", "-NANO)",
          _lent("it never stands in the way of what the asker is guaranteed")),
    Guard("a window counts early for reclaim", LIMITS, "if window.is_near(moment) if early else",
          "if False if early else", _tests("lending", "test_reclaim_lead[21:50:00-1]")),
    Guard("and not too early", LIMITS, "<= self.reclaim_lead for at", "for at",
          _tests("lending", "test_reclaim_lead[21:49:59-0]")),
    Guard("the loop wakes for it", LIMITS, "for lead in (0.0, window.reclaim_lead)", "for lead in (0.0,)",
          _tests("lending", "test_it_wakes_for_the_lead_and_for_the_window")),
    Guard("sleeping for a while", WATERMARK, "if now - since < rules.over or", "if",
          _tests("lending", "test_only_after_a_while[1799.0-2]")),
    Guard("nobody sleeps who asks", WATERMARK, "any(asked == team and model in (m, ANY_MODEL) for asked, m in asks)",
          "False", _tests("lending", "test_it_comes_back_as_soon_as_the_team_asks")),
    Guard("by weight", WATERMARK, "int(amount * teams[team].weight / total)", "int(amount / len(takers))",
          _tests("lending", "test_by_weight_among_those_who_ask")),
    Guard("a floor is kept", WATERMARK, "max(int(rules.floor * guaranteed), ", "max(0, ",
          _tests("lending", "test_what_sleeps_is_added_to_the_limits_of_those_who_ask[-8]")),
)  # fmt: skip

RIGHTS: tuple[Guard, ...] = TAKING + HOLES + SHAPES
