"""A small board to play decisions on: nodes, teams and jobs from terse lines, outcomes as lines again.

    board = Board("n1 n2: 8 H100 cpus=64", teams="lab; a<lab H100:4/8", jobs="j1 a 2x4 prio=900; j2 a 4")
    board.step() == {"j1": "n1:0-3 n1:4-7", "j2": "quota: a holds 8 of its limit of 8 H100, this job needs 4"}

Lines are parted by ``;`` or line ends.

- nodes: ``NAMES: GPUS MODEL KEY=VALUE…`` with ``vram`` (GiB, 80), ``reserve`` (GiB, 1), ``mib`` (of a card, instead of
  both), ``cpus``, ``mem`` (GiB), ``rack``, ``switch``, ``nvlink``, ``label`` (k:v,k:v) and ``taint``.
- teams: ``NAME<PARENT w=WEIGHT MODEL:GUARANTEED/LIMIT~LEND…``; ``H100:/8`` guarantees nothing, ``50%`` is a share.
- jobs: ``NAME TEAM SIZE KEY=VALUE… @WHERE``. A size is ``4``, ``2x4`` (replicas × cards) or several groups,
  ``16x1+1x8``. Keys of the job: ``prio at seq limit held backoff not_before after not avoid``, ``minrun`` (seconds),
  ``fixed=1`` (not preemptible), ``every`` (checkpoints, seconds), ``taken`` (how often), ``back=1`` (its last attempt
  was taken), ``require prefer spread`` (a level) and ``share_max``, ``scale`` (``20:00-08:00x1``, several by ``,``);
  of its groups, one value for all or one each parted by ``+``: ``model vram`` (GiB) ``slice`` (MiB) ``cpu mem`` (GiB)
  ``sel tol kind min max`` (replicas).
  ``@n1`` or ``@n1:2,3`` (one a replica, parted by ``/``): the job runs there since ``at`` already. An elastic job
  (one with ``min``) may have fewer or more replicas there than its size says.

An outcome is where a job starts (``n1:0-3``, a replica each) or why it waits (``reason: message``); of a job that ran
``preempted for x``, ``reclaimed for x`` or, where its size changes, ``now n1:0 n1:1``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import time
from typing import Any

from quotas.limits import Amount, Quota, QuotaTree, Team, Window
from scheduler.engine.cluster import Node
from scheduler.engine.cycle import decide
from scheduler.engine.demand import MIB_PER_GIB, Group, Kind, Level, PendingJob, ScaleWindow, Shape, Topology
from scheduler.engine.plan import Piece, Plan
from scheduler.engine.policy import Backpressure, Placement, Policy, Preemption, Queueing, Reclaim
from scheduler.engine.reasons import Hold
from scheduler.engine.roster import Roster
from scheduler.engine.snapshot import Phase


def policy_of(
    queueing: str = "fifo", placement: str = "binpack", backpressure: Mapping[str, int] | None = None, **rules: Any
) -> Policy:
    """A policy with names for the enums; the plainest where nothing is said, so nobody takes from others."""
    plain: dict[str, Any] = {"preemption": Preemption(enabled=False), "reclaim": Reclaim(enabled=False)}
    return Policy(
        Queueing(queueing),
        placement=Placement(placement),
        backpressure=Backpressure(**backpressure or {}),
        **plain | rules,
    )


class Board:
    """A roster and the moves on it."""

    def __init__(
        self, nodes: str, teams: str = "a; b; c", jobs: str = "", *, timezone: str = "UTC", epoch: float = 0.0,
        windows: Mapping[str, tuple[Window, ...]] | None = None, **rules: Any,
    ) -> None:  # fmt: skip
        self.roster = Roster(tree_of(teams, timezone, windows or {}), policy_of(**rules), nodes_of(nodes), epoch=epoch)
        self._submitted = 0
        self.add(jobs)

    def add(self, jobs: str) -> None:
        """Submit jobs, or let those with an ``@`` run; those without ``at`` come one after the other."""
        for line in lines(jobs):
            text, _, where = line.partition("@")
            job = job_of(text, self._submitted)
            self._submitted += 1
            if where:
                self.roster.adopt(job, tuple(self._pieces(job, where.strip())), job.submitted, Phase.RUNNING)
            else:
                self.roster.submit(job)

    def decide(self, now: float = 0.0) -> Plan:
        """Decide, and leave all as it is."""
        return decide(self.roster.snapshot(now), self.roster.policy, now)

    def step(self, now: float = 0.0) -> dict[str, str]:
        """Decide, do what the plan says, and return the outcome of each job that waited, or ran and does not go on."""
        plan = self.decide(now)
        told = outcomes(self.roster, plan)
        self.apply(plan, now)
        return told

    def settle(self, now: float = 0.0) -> dict[str, str]:
        """Decide and let those leave who must, until nothing moves: the last outcome of each job that waits."""
        for _ in range(4):
            told = self.step(now)
            if not self.leave(now) and all(": " in outcome for outcome in told.values()):
                return told
        raise AssertionError(f"it never comes to rest: {told}")

    def apply(self, plan: Plan, now: float = 0.0) -> None:
        """Do what a plan says; those who must end are stopping from now on, until they :meth:`leave`."""
        self.roster.keep(plan.claims)
        for resize in plan.resizes:
            self.roster.resize(resize.job, resize.pieces, now)
        for start in plan.starts:
            self.roster.start(start.job, start.pieces, now)
        for preempt in plan.preempts:
            self.roster.set_phase(preempt.job, Phase.STOPPING)

    def leave(self, now: float = 0.0, jobs: Iterable[str] = ()) -> list[str]:
        """Let the jobs that are stopping (all, or these) leave their cards, and wait again."""
        running = self.roster.snapshot(now).running.values()
        stopping = [one.job for one in running if one.phase is Phase.STOPPING and (not jobs or one.job.key in jobs)]
        for job in stopping:
            self.roster.release(job.key, now)
            self.roster.submit(replace(job, taken=job.taken + 1, returning=True))
        return [job.key for job in stopping]

    def runs(self) -> dict[str, str]:
        """The jobs that hold cards, with their nodes."""
        running = self.roster.snapshot(0.0).running
        return {key: " ".join(piece.node for piece in one.pieces) for key, one in sorted(running.items())}

    def started(self, now: float = 0.0) -> list[str]:
        """The jobs that a decision starts, in its order."""
        return [start.job for start in self.decide(now).starts]

    def _pieces(self, job: PendingJob, where: str) -> Iterator[Piece]:
        spots = where.split("/")
        taken: dict[str, set[int]] = {}
        for group in job.shape.groups:
            replicas = group.replicas if group.min_replicas is None else len(spots)
            for replica in range(replicas):
                node, _, cards = spots.pop(0).partition(":")
                held = taken.setdefault(node, self._held(node))
                free = [gpu for gpu in range(64) if gpu not in held][: group.gpus]
                gpus = tuple(int(card) for card in cards.split(",")) if cards else tuple(free)
                held.update(gpus)
                yield Piece(group.name, replica, node, gpus, group.vram_mib if group.share else 0)

    def _held(self, node: str) -> set[int]:
        running = self.roster.snapshot(0).running.values()
        return {gpu for one in running for piece in one.pieces if piece.node == node for gpu in piece.gpus}


def assert_outcomes(told: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Compare as closely as each expectation says: ``n1`` the nodes, ``n1:0-3`` the cards too; ``gpus`` the reason,
    ``gpus: …`` the sentence, with ``…`` for what is left out; ``starts`` any place."""
    found = {job: _shortened(told[job], wish) for job, wish in expected.items()}
    assert found == dict(expected), f"{found} is not {dict(expected)}; all of it: {dict(told)}"


def _shortened(outcome: str, wish: str) -> str:
    reason, waits, message = outcome.partition(": ")
    if wish == "starts":
        return outcome if waits else "starts"
    if "…" in wish:
        pattern = ".*".join(re.escape(part) for part in wish.split("…"))
        return wish if re.fullmatch(pattern, outcome) else outcome
    if waits:
        return outcome if ": " in wish else reason if wish != message else message
    return outcome if ":" in wish else " ".join(spot.partition(":")[0] for spot in outcome.split())


def outcomes(roster: Roster, plan: Plan) -> dict[str, str]:
    """What a plan means for each job of a roster that waits: where it starts, or why not."""
    starts = {start.job: " ".join(_spot(piece) for piece in start.pieces) for start in plan.starts}
    told = {job.key: starts.get(job.key) or _why(plan.hold_of(job, lane)) for lane, job in waiting(roster)}
    told |= {preempt.job: f"{preempt.cause} for {preempt.winner}" for preempt in plan.preempts}
    return told | {resize.job: "now " + " ".join(_spot(piece) for piece in resize.pieces) for resize in plan.resizes}


def taken(plan: Plan) -> dict[str, str]:
    """Who has to give way, whole jobs only, and by what right."""
    return {preempt.job: str(preempt.cause) for preempt in plan.preempts}


def waiting(roster: Roster) -> list[tuple[int, PendingJob]]:
    """The jobs of a roster that wait, each with its lane."""
    return [(lane.number, job) for lane in roster.snapshot(0).lanes for job in lane.jobs]


def _why(hold: Hold | None) -> str:
    assert hold is not None, "a job neither starts nor is told why it waits"
    return f"{hold.reason}: {hold.message}"


def _spot(piece: Piece) -> str:
    gpus = piece.gpus
    in_a_row = len(gpus) > 1 and gpus == tuple(range(gpus[0], gpus[-1] + 1))
    return f"{piece.node}:{gpus[0]}-{gpus[-1]}" if in_a_row else f"{piece.node}:{','.join(map(str, gpus))}"


def lines(text: str) -> list[str]:
    """The lines of a text, without the empty ones."""
    return [line.strip() for part in text.splitlines() for line in part.split(";") if line.strip()]


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def nodes_of(text: str) -> list[Node]:
    """Nodes, as the module says."""
    return [node for line in lines(text) for node in _nodes(line)]


def _nodes(line: str) -> Iterator[Node]:
    names, _, rest = line.partition(":")
    gpus, model, *words = rest.split()
    extra = _options(words)
    mib = int(extra["mib"]) if "mib" in extra else 0
    for name in names.split():
        yield Node(
            name, int(gpus), model,
            vram_mib=mib or int(extra.get("vram", 80)) * MIB_PER_GIB,
            reserve_mib=0 if mib else int(float(extra.get("reserve", 1)) * MIB_PER_GIB),
            cpus_milli=round(float(extra.get("cpus", 128)) * 1000),
            memory_mib=int(extra.get("mem", 2048)) * MIB_PER_GIB,
            rack=extra.get("rack", "rack0"),
            switch=extra.get("switch", "switch0"),
            nvlink=extra.get("nvlink", ""),
            labels=_pairs(extra.get("label", "")),
            taints=_names(extra.get("taint", "")),
        )  # fmt: skip


def tree_of(text: str, timezone: str = "UTC", windows: Mapping[str, tuple[Window, ...]] | None = None) -> QuotaTree:
    """Teams, as the module says."""
    return QuotaTree(tuple(_team(line, windows or {}) for line in lines(text)), timezone)


def _team(line: str, windows: Mapping[str, tuple[Window, ...]]) -> Team:
    full, *words = line.split()
    name, _, parent = full.partition("<")
    weight = next((float(word[2:]) for word in words if word.startswith("w=")), 1.0)
    quotas = tuple(quota_of(word) for word in words if ":" in word)
    return Team(name, parent or None, weight, quotas, windows.get(name, ()))


def quota_of(word: str) -> Quota:
    """``MODEL:GUARANTEED/LIMIT~LEND``, any number left out or in per cent."""
    model, _, numbers = word.partition(":")
    numbers, _, lend = numbers.partition("~")
    guaranteed, _, limit = numbers.partition("/")
    return Quota(model, _amount(guaranteed) or Amount(0), _amount(limit), _amount(lend))


def _amount(text: str) -> Amount | None:
    return Amount(float(text.rstrip("%")), text.endswith("%")) if text else None


def job_of(line: str, number: int = 0) -> PendingJob:
    """A job, as the module says; ``number`` is its place in the line where it has no ``at``."""
    key, team, size, *words = line.split()
    extra = _options(words)
    sizes = size.split("+")
    groups = tuple(_group(part, index, len(sizes), extra) for index, part in enumerate(sizes))
    shape = Shape(
        groups, _topology(extra),
        excluded=frozenset(_names(extra.get("not", ""))), avoided=frozenset(_names(extra.get("avoid", ""))),
    )  # fmt: skip
    return PendingJob(
        key, team, shape,
        priority=int(extra.get("prio", 500)),
        submitted=float(extra.get("at", 0)),
        sequence=int(extra.get("seq", number)),
        time_limit=float(extra["limit"]) if "limit" in extra else None,
        held=extra.get("held", ""),
        backoff_until=float(extra.get("backoff", 0)),
        not_before=float(extra.get("not_before", 0)),
        waits_for=_names(extra.get("after", "").replace("_", " ")),
        preemptible="fixed" not in extra,
        min_runtime=float(extra["minrun"]) if "minrun" in extra else None,
        checkpoint_every=float(extra["every"]) if "every" in extra else None,
        scale=tuple(_scale(window) for window in _names(extra.get("scale", ""))),
        taken=int(extra.get("taken", 0)),
        returning="back" in extra,
    )  # fmt: skip


def _topology(extra: Mapping[str, str]) -> Topology:
    require, prefer, spread = (Level(extra[key]) if key in extra else None for key in ("require", "prefer", "spread"))
    return Topology(require, prefer, spread, float(extra["share_max"]) if "share_max" in extra else None)


def _scale(text: str) -> ScaleWindow:
    hours, _, number = text.partition("x")
    begin, _, end = hours.partition("-")
    replicas, mib = (None, int(number[:-3])) if number.endswith("MiB") else (int(number), None)
    return ScaleWindow(time.fromisoformat(begin), time.fromisoformat(end), replicas, mib)


def _group(size: str, index: int, groups: int, extra: Mapping[str, str]) -> Group:
    def value(name: str, default: str) -> str:
        parts = extra.get(name, default).split("+")
        return parts[index] if len(parts) == groups else parts[0]

    replicas, _, gpus = size.rpartition("x")
    each = int(gpus)
    mib = int(value("slice", "0"))
    return Group(
        "main" if groups == 1 else "abcdefgh"[index], int(replicas or 1), each,
        cpus_milli=round(float(value("cpu", gpus)) * 1000),
        memory_mib=int(float(value("mem", str(4 * each))) * MIB_PER_GIB),
        vram_mib=mib or int(float(value("vram", "0")) * MIB_PER_GIB),
        share=bool(mib),
        models=_names(value("model", "")),
        selector=_pairs(value("sel", "")),
        tolerations=_names(value("tol", "")),
        kind=Kind(value("kind", "training")),
        min_replicas=int(value("min", "0")) or None,
        max_replicas=int(value("max", "0")) or None,
    )  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, _, value in (pair.partition(":") for pair in _names(text)))
