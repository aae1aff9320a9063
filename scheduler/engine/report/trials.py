"""Trying changes out: the engine decides as if they were so, and it is seen whether the job starts."""

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.engine.cycle import decide
from scheduler.engine.plan import Plan
from scheduler.engine.policy import Policy
from scheduler.engine.report.whatif import Change, what_if
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import Phase, Snapshot


class Outcome(NamedTuple):
    """The job starts, at once or as soon as those it ``takes`` from have left."""

    takes: tuple[str, ...] = ()


class Trials:
    """Changes to one snapshot, tried on one job. ``left``: decisions that may still be made."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, key: str, budget: int) -> None:
        self.left = budget
        self._snapshot = snapshot
        self._policy = policy
        self._now = now
        self._key = key

    def starts(self, change: Change) -> Outcome | None:
        """How the job starts with a change; None if it does not, or the budget is used up."""
        if self.left <= 0:
            return None
        roster = what_if(self._snapshot, self._policy)
        change.apply(roster)
        plan = self._decide(roster, self._now)
        if self._in(plan):
            return Outcome()
        takes = tuple(sorted({each.job for each in plan.preempts if each.winner == self._key}))
        claimed = any(claim.winner == self._key for claim in plan.claims)
        if not (takes or (claimed and plan.resizes)) or self.left <= 0:
            return None
        # It takes from others: see whether it starts from what they leave.
        roster.keep(plan.claims)
        for start in plan.starts:
            roster.start(start.job, start.pieces, self._now)
        for resize in plan.resizes:
            roster.resize(resize.job, resize.pieces, self._now)
        stopping = {key for key, each in self._snapshot.running.items() if each.phase is Phase.STOPPING}
        for key in sorted(stopping | {each.job for each in plan.preempts}):
            roster.release(key, self._now)
        return Outcome(takes) if self._in(self._decide(roster, self._now + self._policy.stop_delay)) else None

    def smallest(self, changes: Sequence[Change]) -> tuple[int, Outcome] | None:
        """The first of ``changes``, each of which goes further than the one before, with which the job starts.

        Found by halving, with the last one tried first: where a further change may do worse than a smaller one it
        need not be the very first, but it has been seen to work. None where the last one does not help.
        """
        outcome = self.starts(changes[-1]) if changes else None
        if outcome is None:
            return None
        low, high = 0, len(changes) - 1
        while low < high:
            middle = (low + high) // 2
            found = self.starts(changes[middle])
            if found is None:
                low = middle + 1
            else:
                high, outcome = middle, found
        return high, outcome

    def _decide(self, roster: Roster, now: float) -> Plan:
        self.left -= 1
        return decide(roster.snapshot(now), self._policy, now)

    def _in(self, plan: Plan) -> bool:
        return any(start.job == self._key for start in plan.starts)
