"""Back-pressure: how many jobs may still be let in, in all and per team."""

from collections import Counter

from scheduler.engine.policy import Policy
from scheduler.engine.reasons import Hold, Reason, hold
from scheduler.engine.snapshot import Snapshot

WINDOW_SECONDS = 60.0


class Throttle:
    """Counts the starts of a decision against the limits of the policy."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float) -> None:
        limits = policy.backpressure
        # Compared as next_change computes it: now - WINDOW_SECONDS may differ from that in the last bit.
        recent = [(at, team) for at, team in snapshot.recent if at + WINDOW_SECONDS > now]
        self._limits = limits
        self._starting = snapshot.starting
        self._started = len(recent)
        self._by_team = Counter(team for _, team in recent)
        self._oldest = min((at for at, _ in recent), default=now)
        self.limited = bool(limits.max_starting or limits.starts_per_minute or limits.team_starts_per_minute)

    def note_start(self, team: int) -> None:
        """Count a start of a team."""
        self._starting += 1
        self._started += 1
        self._by_team[team] += 1

    def hold_all(self) -> Hold | None:
        """Why nobody may start now, None if somebody may."""
        limits = self._limits
        if limits.max_starting and self._starting >= limits.max_starting:
            return hold(
                Reason.BACKPRESSURE, "jobs starting: {starting}, the limit is {limit}",
                starting=self._starting, limit=limits.max_starting,
            )  # fmt: skip
        if limits.starts_per_minute and self._started >= limits.starts_per_minute:
            return hold(
                Reason.BACKPRESSURE, "jobs started in the last minute: {started}, the limit is {limit}",
                started=self._started, limit=limits.starts_per_minute,
            )  # fmt: skip
        return None

    def hold_team(self, team: int, name: str) -> Hold | None:
        """Why this team may not start now, None if it may."""
        limit = self._limits.team_starts_per_minute
        if limit and self._by_team[team] >= limit:
            return hold(
                Reason.BACKPRESSURE, "jobs of {team} started in the last minute: {started}, the limit is {limit}",
                started=self._by_team[team], team=name, limit=limit,
            )  # fmt: skip
        return None

    def next_change(self) -> float | None:
        """When the oldest start of the last minute stops counting (seconds); None without limits per minute."""
        limits = self._limits
        per_minute = limits.starts_per_minute or limits.team_starts_per_minute
        return self._oldest + WINDOW_SECONDS if per_minute and self._started else None
