"""From the files that shims leave to reports. Reading one replica, and the pure rule for a whole attempt."""

from __future__ import annotations

from pathlib import Path

from rota_client.shim import processes, records
from scheduler.backends.base import AttemptReport, Cause, Phase, ReplicaReport
from scheduler.backends.local.orders import Kept, KeptReplica


class ReplicaWatch:
    """What is known of one replica; every fact is read from disk once it is there, and never again."""

    def __init__(self, folder: Path, kept: Kept, mine: KeptReplica) -> None:
        self.folder, self.kept, self.mine = folder, kept, mine
        self.shim: processes.Identity | None = None
        self.command: processes.Identity | None = None
        self.report = self._report(Phase.STARTING, kept.at)
        self.started_at: float | None = None  # None as well where the command could not be executed
        self.decided_at = 0.0  # when its command ended: the order in which replicas of a gang failed

    def look(self) -> ReplicaReport:
        """Read what is new."""
        if self.report.phase.ended:
            return self.report
        if self.shim is None and (record := self._read(records.SHIM)):
            self.shim = processes.from_record(record)
        if self.started_at is None and (record := self._read(records.STARTED)):
            self.command = processes.from_record(record)
            self.started_at = float(records.first(record, "at"))
            self.report = self._report(Phase.RUNNING, self.started_at)
        if record := self._read(records.EXIT):
            self._ended(record)
        return self.report

    def deserted(self, boot: str) -> bool:
        """Its shim was seen and is gone without a word: it was killed, or the machine was restarted."""
        if self.report.phase.ended or self.shim is None or processes.alive(self.shim, boot):
            return False
        return not self.look().phase.ended  # it may have written its last word while we looked

    def _ended(self, record: records.Record) -> None:
        try:
            self._ended_as(record)
        except ValueError:
            note = "its exit record is damaged"
            self.report = self._report(Phase.LOST, self.kept.at, cause=Cause.LOST, note=note)

    def _ended_as(self, record: records.Record) -> None:
        cause, at = Cause(records.first(record, "cause", "lost")), float(records.first(record, "at"))
        self.decided_at = float(records.first(record, "ended") or at)
        note = records.first(record, "note")
        if cause is Cause.LOST:
            self.report = self._report(Phase.LOST, at, cause=cause, note=note)
            return
        code, signum = int(records.first(record, "code")), int(records.first(record, "signal", "0"))
        self.report = self._report(Phase.EXITED, at, code=code, signum=signum or None, cause=cause, note=note)

    def _read(self, name: str) -> records.Record | None:
        return records.read(f"{self.folder}/{name}")

    def _report(
        self,
        phase: Phase,
        at: float,
        *,
        code: int | None = None,
        signum: int | None = None,
        cause: Cause = Cause.NONE,
        note: str = "",
    ) -> ReplicaReport:
        mine = self.mine
        return ReplicaReport(
            rank=mine.rank,
            group=mine.group,
            index=mine.index,
            node=self.kept.node,
            phase=phase,
            at=at,
            exit_code=code,
            signal=signum,
            cause=cause,
            gpus=mine.gpus,
            note=note,
        )


class AttemptWatch:
    """What is known of one attempt, and the version of the last change."""

    def __init__(self, folder: Path, kept: Kept | None, *, key: str, at: float) -> None:
        """Without `kept` its record is damaged (a power cut): nothing runs of it, nothing more is known of it."""
        self.folder, self.kept, self.key = folder, kept, key
        self.replicas = [ReplicaWatch(folder / str(mine.rank), kept, mine) for mine in kept.replicas] if kept else []
        self.version = 0
        if kept is None:
            self.report = AttemptReport(key, Phase.LOST, at, cause=Cause.LOST, note="its record on disk is damaged")
        else:
            self.report = AttemptReport(key, Phase.STARTING, at)
        self.refresh()

    def look(self) -> None:
        """Read what is new of every replica."""
        for replica in self.replicas:
            replica.look()

    def refresh(self) -> bool:
        """Put the report together again; True when it has changed."""
        if self.kept is None or self.report.phase.ended:
            return False
        replicas = tuple(watch.report for watch in self.replicas)
        decided = tuple(watch.decided_at for watch in self.replicas)
        started = max((at for watch in self.replicas if (at := watch.started_at) is not None), default=None)
        new = assemble(self.key, self.kept.at, started, replicas, decided)
        changed, self.report = new != self.report, new
        return changed


def assemble(
    attempt: str, at: float, started: float | None, replicas: tuple[ReplicaReport, ...], decided: tuple[float, ...]
) -> AttemptReport:
    """The attempt's report from its replicas'. Pure.

    `at` is the launch's time, `started` when the last command was started (None: none was), `decided` when each
    replica's command ended.
    """
    if not all(replica.phase.ended for replica in replicas):
        if started is None or any(replica.phase is Phase.STARTING for replica in replicas):
            return AttemptReport(attempt, Phase.STARTING, at, replicas=replicas)
        return AttemptReport(attempt, Phase.RUNNING, started, started=started, replicas=replicas)
    end = max(replica.at for replica in replicas)
    culprit = _culprit(replicas, decided)
    if culprit is None:
        return AttemptReport(attempt, Phase.EXITED, end, started, 0, None, Cause.SELF, "", replicas)
    if culprit.phase is Phase.LOST:
        return AttemptReport(attempt, Phase.LOST, end, started, None, None, Cause.LOST, culprit.note, replicas)
    speaks = culprit
    if culprit.cause is not Cause.SELF and not culprit.exit_code:
        # Nobody failed by itself: the first that did not end with 0 gives the code.
        order = sorted(range(len(replicas)), key=lambda rank: decided[rank])
        speaks = next((replicas[rank] for rank in order if replicas[rank].exit_code), culprit)
    return AttemptReport(
        attempt, Phase.EXITED, end, started, speaks.exit_code, speaks.signal, culprit.cause, culprit.note, replicas
    )


def _culprit(replicas: tuple[ReplicaReport, ...], decided: tuple[float, ...]) -> ReplicaReport | None:
    """The replica that ended the attempt: the first that neither ended well nor only followed a peer."""
    for rank in sorted(range(len(replicas)), key=lambda rank: decided[rank]):
        replica = replicas[rank]
        if replica.cause is Cause.PEER or (replica.cause is Cause.SELF and replica.exit_code == 0):
            continue
        return replica
    return None
