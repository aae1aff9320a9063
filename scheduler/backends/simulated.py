"""The simulated backend: attempts that play a profile on somebody else's clock, and hardware that breaks on demand.

Time is a function given by the owner; nothing happens by itself, but everything that was due by then is true the next
time somebody asks. What comes next lies on a heap, so the cost is that of what happens, not of what runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import Protocol, cast

from scheduler.backends.base import (
    AttemptKey,
    AttemptReport,
    Cause,
    Launch,
    LogChunk,
    NodeReport,
    Observation,
    PermanentError,
    Phase,
    ReplicaReport,
    refused_env,
)

FENCE_S = 120.0
"""Seconds after which a dark node has surely ended its jobs: its agent's lease of 90 s, and some to spare."""
_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_SIGKILL, _SIGTERM = 9, 15


class Profile(Protocol):
    """What a job really does: `Launch.profile`. Without one an attempt runs until it is ended.

    Seconds are of work, counted from where the command runs. `attempt` counts from 1.
    """

    @property
    def duration(self) -> float | None:
        """The work in it; None: no end."""

    @property
    def run_for(self) -> tuple[float, ...]:
        """How long the nth attempt runs when it fails, the last one repeats; empty: the duration."""

    @property
    def hang_at(self) -> float | None:
        """When an attempt that hangs goes silent."""

    @property
    def checkpoint_every(self) -> float | None:
        """The work between two checkpoints, from the last of which a stopped attempt resumes; None: from zero."""

    def exit_code(self, attempt: int, /) -> int:
        """How the attempt ends."""

    def hangs(self, attempt: int, /) -> bool:
        """Whether the attempt goes silent for good."""


class SimulatedBackend:
    """See the module. Not for several threads at once.

    `launch_delay` and `stop_delay` (seconds) may be changed at any time and hold for what is begun from then on.
    """

    name = "simulated"
    chooses_gpu = True
    resizes = True

    def __init__(
        self,
        *,
        now: Callable[[], float],
        nodes: Iterable[NodeReport] = (),
        launch_delay: float = 0.0,
        stop_delay: float = 0.0,
    ) -> None:
        self._now = now
        self.launch_delay = launch_delay
        self.stop_delay = stop_delay
        self._nodes = {node.name: node for node in nodes}
        self._attempts: dict[AttemptKey, _Attempt] = {}
        self._jobs: dict[str, _Job] = {}
        self._live_on: dict[str, dict[AttemptKey, None]] = {}
        self._dark: dict[str, int] = {}  # node -> number of its darkness, by which a fence knows that it is still meant
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._happening: float | None = None
        self._version = 1
        self._changed: dict[AttemptKey | tuple[str], int] = {}  # what, and the version of its last change, oldest first

    # -- the Protocol -------------------------------------------------------------------------------------------------

    def observe(self, cursor: int | None = None) -> Observation:
        """See Backend. The cost is linear in what has changed since `cursor`."""
        self._catch_up()
        complete = cursor is None or not 1 <= cursor <= self._version
        if complete or cursor is None:
            attempts, nodes = list(self._attempts), list(self._nodes)
        else:
            attempts, nodes = self._changes_since(cursor)
        return Observation(
            complete=complete,
            cursor=self._version,
            nodes=tuple(self._nodes[name] for name in sorted(nodes)) if nodes else (),
            attempts=tuple(self._attempts[key].report() for key in sorted(attempts)) if attempts else (),
        )

    def launch(self, order: Launch) -> None:
        """See Backend."""
        if order.attempt in self._attempts:
            return
        self._check(order)
        job = self._jobs.setdefault(order.job, _Job())
        job.launched += 1
        attempt = _Attempt(order, job, job.launched, self._now())
        self._attempts[order.attempt] = attempt
        for node in attempt.nodes:
            self._live_on.setdefault(node, {})[order.attempt] = None
        self._touch(order.attempt)
        self._at(self._now() + self.launch_delay, attempt, attempt.turn, self._begin)

    def resize(self, order: Launch) -> None:
        """See Backend. At once, and without a word: what it does is no secret to whoever ordered it."""
        self._check(order)
        found = self._attempts.get(order.attempt)
        if found is None or found.phase.ended:
            return
        for node in found.nodes:
            self._live_on.get(node, {}).pop(order.attempt, None)
        found.order = order
        found.nodes = tuple(dict.fromkeys(replica.node for replica in order.replicas))
        for node in found.nodes:
            self._live_on.setdefault(node, {})[order.attempt] = None

    def stop(self, attempt: AttemptKey, *, grace_s: float | None = None, why: str = "") -> None:
        """See Backend. It takes `stop_delay` to end well; a shorter grace kills it."""
        self._catch_up()
        found = self._attempts.get(attempt)
        if found is None or found.phase.ended:
            return
        grace = found.order.grace_s if grace_s is None else grace_s
        if found.ends_at is None:
            self._tell_to_end(found, Cause.STOPPED, why, grace)
        elif self._now() + grace < found.ends_at:
            found.killed = True
            self._end_at(found, self._now() + grace)

    def forget(self, attempt: AttemptKey) -> None:
        """See Backend."""
        self._catch_up()
        found = self._attempts.get(attempt)
        if found is None:
            return
        if not found.phase.ended:
            raise PermanentError(f"attempt {attempt}: has not ended")
        del self._attempts[attempt]
        self._changed.pop(attempt, None)

    def logs(self, attempt: AttemptKey, *, replica: int = 0, offset: int = 0, limit: int = 65536) -> LogChunk:
        """See Backend: nothing is ever written."""
        if offset < 0 or limit < 1:
            raise PermanentError("logs: offset must be at least 0 and limit at least 1")
        found = self._attempts.get(attempt)
        live = found is not None and not found.phase.ended and replica < len(found.order.replicas)
        return LogChunk(b"", offset, offset, not live)

    # -- the virtual world --------------------------------------------------------------------------------------------

    def next_event_at(self) -> float | None:
        """When something may happen next although nobody calls; None: never."""
        return self._heap[0][0] if self._heap else None

    def add_node(self, node: NodeReport) -> None:
        """Let a node join, or change what is known of it."""
        self._set_node(node)

    def remove_node(self, name: str) -> None:
        """Take a node away, with all that runs on it."""
        self._catch_up()
        self._lose_all_on(name, "its node was removed")
        self._nodes.pop(name, None)
        self._dark.pop(name, None)
        self._changed.pop((name,), None)

    def node_down(self, name: str) -> None:
        """Lose contact with a node: nothing is heard of its jobs, and after the fence they are lost."""
        self._catch_up()
        if name in self._dark or name not in self._nodes:
            return
        number = self._dark[name] = next(self._numbers)
        self._set_node(replace(self._nodes[name], ready=False, note="out of contact"))
        self._push(self._now() + FENCE_S, lambda: self._fence(name, number))

    def node_up(self, name: str) -> None:
        """Have contact with a node again: what ended meanwhile is heard of now."""
        self._catch_up()
        if self._dark.pop(name, None) is None:
            return
        self._set_node(replace(self._nodes[name], ready=True, note=""))
        for key in list(self._live_on.get(name, ())):
            attempt = self._attempts[key]
            unheard, attempt.unheard = attempt.unheard, None
            if unheard is not None:
                self._at(self._now(), attempt, attempt.turn, unheard)

    # -- inside: what happens -----------------------------------------------------------------------------------------

    def _begin(self, attempt: _Attempt) -> None:
        """Every replica's command runs; from here on the work counts."""
        now = self._now_of_event
        attempt.phase, attempt.at, attempt.started = Phase.RUNNING, now, now
        self._touch(attempt.order.attempt)
        work = attempt.work()
        limit = attempt.order.time_limit_s
        if work is not None and (limit is None or work <= limit):
            self._at(now + work, attempt, attempt.turn, self._finish)
        elif limit is not None:
            self._at(now + limit, attempt, attempt.turn, self._run_out)

    def _finish(self, attempt: _Attempt) -> None:
        """Its own command ends."""
        code = attempt.exit_code()
        if code == 0:
            attempt.job.done = 0.0
        self._end(attempt, Phase.EXITED, Cause.SELF, code)

    def _run_out(self, attempt: _Attempt) -> None:
        """It reaches its time limit."""
        self._tell_to_end(attempt, Cause.TIME_LIMIT, "time limit", attempt.order.grace_s)

    def _tell_to_end(self, attempt: _Attempt, cause: Cause, why: str, grace: float) -> None:
        now = self._now_of_event
        attempt.keep_progress(now)
        attempt.cause, attempt.note, attempt.killed = cause, why, grace < self.stop_delay
        self._end_at(attempt, now + min(grace, self.stop_delay))

    def _end_at(self, attempt: _Attempt, at: float) -> None:
        attempt.turn += 1
        attempt.unheard = None
        attempt.ends_at = at
        if at <= self._now_of_event and not attempt.dark(self._dark):
            self._stopped(attempt)
        else:
            self._at(at, attempt, attempt.turn, self._stopped)

    def _stopped(self, attempt: _Attempt) -> None:
        """It has done what it was told."""
        signal = _SIGKILL if attempt.killed else _SIGTERM
        self._end(attempt, Phase.EXITED, attempt.cause, 128 + signal, signal)

    def _fence(self, name: str, number: int) -> None:
        """A dark node's agent has ended its jobs by now."""
        if self._dark.get(name) == number:
            self._lose_all_on(name, "its node was out of contact")

    def _lose_all_on(self, name: str, note: str) -> None:
        for key in list(self._live_on.get(name, ())):
            attempt = self._attempts[key]
            if attempt.ends_at is None:
                attempt.keep_progress(self._now_of_event)
            attempt.note = note
            self._end(attempt, Phase.LOST, Cause.LOST)

    def _end(
        self, attempt: _Attempt, phase: Phase, cause: Cause, exit_code: int | None = None, signal: int | None = None
    ) -> None:
        attempt.phase, attempt.at, attempt.cause = phase, self._now_of_event, cause
        attempt.code, attempt.signal = exit_code, signal
        attempt.turn += 1
        for node in attempt.nodes:
            del self._live_on[node][attempt.order.attempt]
        self._touch(attempt.order.attempt)

    # -- inside: when it happens --------------------------------------------------------------------------------------

    @property
    def _now_of_event(self) -> float:
        """The moment of the event that is being played; outside of one, now."""
        return self._now() if self._happening is None else self._happening

    def _at(self, at: float, attempt: _Attempt, turn: int, act: Callable[[_Attempt], None]) -> None:
        """Do `act` at a time, unless the attempt has taken another turn by then; not heard of while a node is dark."""

        def due() -> None:
            if attempt.turn != turn:
                return
            if attempt.dark(self._dark):
                attempt.unheard = act
            else:
                act(attempt)

        self._push(at, due)

    def _push(self, at: float, act: Callable[[], None]) -> None:
        heappush(self._heap, (at, next(self._numbers), act))

    def _catch_up(self) -> None:
        """Play everything that was due by now, in order."""
        heap, now = self._heap, self._now()
        while heap and heap[0][0] <= now:
            at, _, act = heappop(heap)
            self._happening = at
            act()
        self._happening = None

    # -- inside: what is kept -----------------------------------------------------------------------------------------

    def _check(self, order: Launch) -> None:
        """Refuse what no cluster would take: PermanentError that names the field."""
        if _KEY.fullmatch(order.attempt) is None:
            raise PermanentError(f"attempt: {order.attempt!r} is not a valid key")
        if (key := refused_env(order.env)) is not None:
            raise PermanentError(f"env.{key}: set by Rota, a job may not set it")
        if not order.replicas or any(replica.rank != rank for rank, replica in enumerate(order.replicas)):
            raise PermanentError("replicas: must be at least one, in order of rank from 0")
        for rank, replica in enumerate(order.replicas):
            node = self._nodes.get(replica.node)
            if node is None:
                raise PermanentError(f"replicas[{rank}].node: there is no node {replica.node!r}")
            if any(not 0 <= gpu < len(node.gpus) for gpu in replica.gpus):
                raise PermanentError(f"replicas[{rank}].gpus: {node.name} has {len(node.gpus)} cards")

    def _changes_since(self, cursor: int) -> tuple[list[AttemptKey], list[str]]:
        attempts: list[AttemptKey] = []
        nodes: list[str] = []
        for what, version in reversed(self._changed.items()):
            if version <= cursor:
                break
            if isinstance(what, tuple):
                nodes.append(what[0])
            else:
                attempts.append(what)
        return attempts, nodes

    def _touch(self, what: AttemptKey | tuple[str]) -> None:
        self._version += 1
        self._changed.pop(what, None)
        self._changed[what] = self._version

    def _set_node(self, node: NodeReport) -> None:
        self._nodes[node.name] = node
        self._touch((node.name,))


class _Job:
    """What is kept of a job over its attempts."""

    __slots__ = ("done", "launched")

    def __init__(self) -> None:
        self.launched = 0
        self.done = 0.0  # seconds of work that the last checkpoint holds


class _Attempt:
    """One attempt. What was planned for it is dropped when it takes another turn."""

    __slots__ = (
        "at", "cause", "code", "ends_at", "job", "killed", "nodes", "note", "number", "order", "phase", "profile",
        "signal", "started", "turn", "unheard",
    )  # fmt: skip

    def __init__(self, order: Launch, job: _Job, number: int, at: float) -> None:
        self.order = order
        self.job = job
        self.number = number
        self.profile = cast("Profile | None", order.profile)
        self.nodes = tuple(dict.fromkeys(replica.node for replica in order.replicas))
        self.phase = Phase.STARTING
        self.at = at
        self.started: float | None = None
        self.cause = Cause.NONE
        self.note = ""
        self.code: int | None = None
        self.signal: int | None = None
        self.ends_at: float | None = None  # when it will have done what it was told
        self.killed = False  # the grace was over before it had ended
        self.turn = 0
        self.unheard: Callable[[_Attempt], None] | None = None  # what came to pass while a node of it was dark

    def work(self) -> float | None:
        """Seconds from the command's start until it ends by itself; None: never."""
        profile = self.profile
        if profile is None:
            return None
        if profile.run_for and profile.exit_code(self.number):
            work = profile.run_for[min(self.number, len(profile.run_for)) - 1]
        elif profile.duration is not None:
            work = max(0.0, profile.duration - self.job.done)
        else:
            return None
        return None if self._hangs_at() < work else work

    def exit_code(self) -> int:
        """What its command ends with by itself."""
        return 0 if self.profile is None else self.profile.exit_code(self.number)

    def keep_progress(self, now: float) -> None:
        """Note what the last checkpoint holds when it is ended at `now`."""
        every = None if self.profile is None else self.profile.checkpoint_every
        if every and self.started is not None:
            self.job.done += min(now - self.started, self._hangs_at()) // every * every

    def dark(self, nodes: dict[str, int]) -> bool:
        """Whether one of its nodes is out of contact."""
        return bool(nodes) and any(node in nodes for node in self.nodes)

    def _hangs_at(self) -> float:
        profile = self.profile
        if profile is None or profile.hang_at is None or not profile.hangs(self.number):
            return float("inf")
        return profile.hang_at

    def report(self) -> AttemptReport:
        """It as the Protocol tells it."""
        return AttemptReport(
            attempt=self.order.attempt,
            phase=self.phase,
            at=self.at,
            started=self.started,
            exit_code=self.code,
            signal=self.signal,
            cause=self.cause if self.phase.ended else Cause.NONE,
            note=self.note,
            replicas=tuple(
                ReplicaReport(
                    replica.rank, replica.group, replica.index, replica.node, self.phase, self.at, self.code,
                    self.signal, self.cause if self.phase.ended else Cause.NONE,
                )
                for replica in self.order.replicas
            ),
        )  # fmt: skip
