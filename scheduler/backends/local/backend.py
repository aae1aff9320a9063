"""The local backend: folders and shims for orders, observations from what they leave.

Everything true is on disk (`<root>/attempts/<attempt>/`) and in /proc; what is in memory is only a cache. So any number
of instances, one after the other or at once, may work on one root, and each sees, stops and ends what another started.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from rota_client.shim import processes, records
from scheduler.backends.base import (
    AttemptKey,
    Cause,
    Launch,
    LogChunk,
    Observation,
    PermanentError,
    ReplicaLaunch,
    TransientError,
)
from scheduler.backends.local import folders, hunt, logs, nursery, orders, reports
from scheduler.backends.local.hardware import this_node

_START_TIMEOUT = 30.0  # seconds after which a replica without a shim will not get one any more
_LOG_BYTES, _LOG_SEGMENTS = 16 << 20, 4


class LocalBackend:
    """Runs attempts as processes of this machine. Safe to use from several threads and processes."""

    name = "local"
    chooses_gpu = True
    resizes = False

    def __init__(
        self,
        root: Path | str,
        *,
        environ: Mapping[str, str] | None = None,
        inherit: Mapping[str, str] | None = None,
        run_as: orders.RunAs | None = None,
        cwd: str | None = None,
        log_bytes: int = _LOG_BYTES,
        log_segments: int = _LOG_SEGMENTS,
    ) -> None:
        """Work on `root`, which is made (0700) where it is missing.

        environ: where ROTA_LOCAL_GPUS and ROTA_LOCAL_VRAM_GIB are read; default: this process's.
        inherit: what jobs inherit; default: a few harmless variables of `environ` (PATH, HOME, LANG, …).
        run_as: whose rights commands get; default: this process's.
        cwd: where commands start that name no folder; default: this process's, or the home (else `/`) of `run_as`.
        log_bytes, log_segments: of each replica's output at most that many segments of that size are kept.

        Raises:
            PermanentError: a variable with a bad value, or a root that cannot be used.
        """
        environ = os.environ if environ is None else environ
        self.node = this_node(environ)
        self.root = Path(root).absolute()
        self._attempts_dir = self.root / "attempts"
        self._run_as = run_as
        self._inherit = dict(orders.passed_env(environ, run_as) if inherit is None else inherit)
        home = self._inherit.get("HOME", "/")
        self._cwd = cwd or (str(Path.cwd()) if run_as is None else home if Path(home).is_dir() else "/")
        self._log = [("log_bytes", str(log_bytes)), ("log_segments", str(log_segments))]
        self._boot = processes.boot_id()
        self._lock = threading.RLock()
        self._watched: dict[AttemptKey, reports.AttemptWatch] = {}
        self._live: set[AttemptKey] = set()
        self._ours: set[tuple[AttemptKey, int]] = set()  # shims that we started for live attempts
        try:
            self._id = folders.open_root(self.root)
        except OSError as error:
            raise PermanentError(f"{self.root}: {error.strerror}") from error
        # Versions of a later instance are greater, so a cursor from before a restart is seen to be one.
        self._version = self._first = time.time_ns()
        with self._lock:
            self._discover()

    # -- observe ------------------------------------------------------------------------------------------------------

    def observe(self, cursor: int | None = None) -> Observation:
        """See Backend. The cost is linear in live attempts, plus one look at all processes while a shim was killed."""
        with self._lock:
            try:
                nursery.collect()
                self._discover()
                self._look()
            except OSError as error:
                raise TransientError(f"{self.root}: {error.strerror}") from error
            complete = cursor is None or not self._first <= cursor <= self._version
            since = self._first if complete or cursor is None else cursor
            seen = [one for one in self._watched.values() if complete or one.version > since]
            return Observation(
                complete=complete,
                cursor=self._version,
                nodes=(self.node,) if complete else (),
                attempts=tuple(one.report for one in sorted(seen, key=lambda one: one.key)),
            )

    def _discover(self) -> None:
        """Take in attempts that others have launched, drop those that others have forgotten."""
        names = {entry.name for entry in self._attempts_dir.iterdir() if not entry.name.startswith(".")}
        for gone in self._watched.keys() - names:
            self._drop(gone)
            del self._watched[gone]
        for new in names - self._watched.keys():
            if orders.valid_key(new):
                self._take_in(new)

    def _take_in(self, attempt: AttemptKey) -> None:
        folder = self._attempts_dir / attempt
        kept = None
        try:
            at = folder.stat().st_mtime
            kept = orders.Kept.load((folder / folders.ORDER).read_bytes())
            at = kept.at
        except (FileNotFoundError, NotADirectoryError):
            return  # forgotten while we looked, or nothing of ours
        except (ValueError, KeyError, TypeError):
            pass  # a power cut tore it
        self._watch(reports.AttemptWatch(folder, kept, key=attempt, at=at))

    def _watch(self, watched: reports.AttemptWatch) -> None:
        self._watched[watched.key] = watched
        self._live.add(watched.key)
        watched.look()
        watched.refresh()
        self._touch(watched)

    def _look(self) -> None:
        """Bring every live attempt up to date."""
        deserted: list[reports.ReplicaWatch] = []
        for attempt in sorted(self._live):
            self._watched[attempt].look()
            deserted += [replica for replica in self._watched[attempt].replicas if self._is_deserted(replica)]
        if deserted:
            self._clean_up(deserted)
        for attempt in sorted(self._live):
            if self._watched[attempt].refresh():
                self._touch(self._watched[attempt])

    def _touch(self, watched: reports.AttemptWatch) -> None:
        self._version += 1
        watched.version = self._version
        if watched.report.phase.ended:
            self._drop(watched.key)

    def _drop(self, attempt: AttemptKey) -> None:
        self._live.discard(attempt)
        watched = self._watched[attempt]
        self._ours.difference_update((attempt, replica.mine.rank) for replica in watched.replicas)

    def _is_deserted(self, replica: reports.ReplicaWatch) -> bool:
        """No shim will ever tell how this replica ends."""
        if replica.report.phase.ended:
            return False
        if replica.shim is not None:
            return replica.deserted(self._boot)
        # It never said that it runs. Too early to tell, unless ours died at once or somebody already gave the order up.
        me = (replica.kept.attempt, replica.mine.rank)
        if nursery.lives(self._token(*me)):
            return False
        late = time.time() > replica.kept.at + _START_TIMEOUT or (replica.folder.parent / records.STOP).exists()
        return (late or me in self._ours) and not folders.is_held(replica.folder) and not replica.look().phase.ended

    def _clean_up(self, deserted: list[reports.ReplicaWatch]) -> None:
        """Kill what is left of replicas whose shims were killed, end their peers; those with nothing left are lost."""
        tokens = {self._token(replica.kept.attempt, replica.mine.rank): replica for replica in deserted}
        commands = {
            token: replica.command if replica.command and replica.command.boot == self._boot else None
            for token, replica in tokens.items()
        }
        found = hunt.leftovers(commands)
        for token, replica in tokens.items():
            if len(replica.kept.replicas) > 1:
                note = f"replica {replica.mine.rank} was lost"
                self._end(self._watched[replica.kept.attempt], Cause.PEER, note, replica.kept.grace_s)
            if found[token]:
                hunt.kill(found[token], self._boot)  # dead or not, the next look will tell
            else:
                folders.write_lost(replica.folder, "its shim was killed" if replica.shim else "its shim never started")
                replica.look()

    # -- launch -------------------------------------------------------------------------------------------------------

    def launch(self, order: Launch) -> None:
        """See Backend."""
        orders.check(order, self.node)
        with self._lock:
            try:
                nursery.collect()
                fresh = order.attempt not in self._watched and self._prepare(order)
                for replica in order.replicas:
                    folder = self._attempts_dir / order.attempt / str(replica.rank)
                    if fresh or self._lacks_shim(order.attempt, replica.rank, folder):
                        self._spawn(order.attempt, replica.rank, folder)
            except OSError as error:
                raise TransientError(f"attempt {order.attempt}: {error.strerror}") from error

    def _prepare(self, order: Launch) -> bool:
        """Write all that its shims need; False when another instance was faster."""
        taken = {kept.port for attempt in self._live if (kept := self._watched[attempt].kept)}
        kept = orders.keep(order, self.node, at=time.time(), port=orders.free_port(order.attempt, taken))
        folder = self._attempts_dir / order.attempt
        specs = [self._spec(order, replica, kept.port) for replica in order.replicas]
        if not folders.place(folder, kept.dump(), specs):
            self._take_in(order.attempt)
            return False
        self._watch(reports.AttemptWatch(folder, kept, key=order.attempt, at=kept.at))
        return True

    def _spec(self, order: Launch, replica: ReplicaLaunch, port: int) -> list[tuple[str, str]]:
        env = orders.replica_env(
            order, replica, self.node, base=self._inherit, port=port, token=self._token(order.attempt, replica.rank)
        )
        pairs = [("arg", word) for word in order.command]
        pairs += [("env", f"{key}={value}") for key, value in env.items()]
        pairs += [("cwd", order.cwd or self._cwd), ("grace_s", repr(float(order.grace_s))), *self._log]
        if order.time_limit_s is not None:
            pairs.append(("time_limit_s", repr(float(order.time_limit_s))))
        if order.checkpoint_signal is not None:
            pairs.append(("checkpoint_signal", str(order.checkpoint_signal)))
        if (who := self._run_as) is not None:
            pairs += [("uid", str(who.uid)), ("gid", str(who.gid))]
            pairs += [("group", str(group)) for group in who.groups]
        return pairs

    def _lacks_shim(self, attempt: AttemptKey, rank: int, folder: Path) -> bool:
        """After a launch that was interrupted between its folder and this shim."""
        if attempt not in self._live or (attempt, rank) in self._ours:
            return False
        return folder.exists() and not folders.has_shim(folder)

    def _spawn(self, attempt: AttemptKey, rank: int, folder: Path) -> None:
        nursery.spawn(folder, self._token(attempt, rank))
        self._ours.add((attempt, rank))

    # -- stop, forget, logs -------------------------------------------------------------------------------------------

    def resize(self, order: Launch) -> None:
        """See Backend."""
        raise PermanentError(f"attempt {order.attempt}: the number of its replicas cannot change")

    def stop(self, attempt: AttemptKey, *, grace_s: float | None = None, why: str = "") -> None:
        """See Backend."""
        with self._lock:
            watched = self._known(attempt)
            if watched is None or watched.kept is None or watched.report.phase.ended:
                return
            try:
                self._end(watched, Cause.STOPPED, why, watched.kept.grace_s if grace_s is None else max(0.0, grace_s))
            except OSError as error:
                raise TransientError(f"attempt {attempt}: {error.strerror}") from error

    def _end(self, watched: reports.AttemptWatch, cause: Cause, why: str, grace: float) -> None:
        """Leave the word, then wake the shims. The first cause stays; a shorter grace replaces a longer one."""
        path = f"{watched.folder}/{records.STOP}"
        pairs = [("cause", str(cause)), ("why", why), ("grace_s", repr(float(grace))), ("at", repr(time.time()))]
        old = None if records.write(path, pairs, replace=False) else records.read(path)
        if old and grace < float(records.first(old, "grace_s", "inf")):
            pairs[:2] = [(key, records.first(old, key)) for key in ("cause", "why")]
            records.write(path, pairs)
        for replica in watched.replicas:
            if not replica.look().phase.ended and replica.shim is not None:
                processes.send(replica.shim, signal.SIGTERM, self._boot)

    def forget(self, attempt: AttemptKey) -> None:
        """See Backend."""
        with self._lock:
            watched = self._known(attempt)
            if watched is None:
                return
            watched.look()
            if watched.refresh():
                self._touch(watched)
            if not watched.report.phase.ended:
                raise PermanentError(f"attempt {attempt}: has not ended")
            try:
                folders.remove(watched.folder)
            except OSError as error:
                raise TransientError(f"attempt {attempt}: {error.strerror}") from error
            del self._watched[attempt]

    def logs(self, attempt: AttemptKey, *, replica: int = 0, offset: int = 0, limit: int = 65536) -> LogChunk:
        """See Backend."""
        if offset < 0 or limit < 1:
            raise PermanentError("logs: offset must be at least 0 and limit at least 1")
        if not orders.valid_key(attempt):
            return LogChunk(b"", offset, offset, True)
        folder = self._attempts_dir / attempt / str(replica)
        # Asked before reading: what is written in between is then read by the next call.
        ended = not folder.exists() or (folder / records.EXIT).exists()
        try:
            return logs.read(folder, offset=offset, limit=limit, ended=ended)
        except OSError as error:
            raise TransientError(f"{folder}: {error.strerror}") from error

    def _known(self, attempt: AttemptKey) -> reports.AttemptWatch | None:
        """The attempt, whoever launched it."""
        if attempt not in self._watched and orders.valid_key(attempt):
            self._take_in(attempt)
        return self._watched.get(attempt)

    def _token(self, attempt: AttemptKey, rank: int) -> str:
        """Names one replica on this machine: two roots may use the same keys."""
        return f"{self._id}/{attempt}/{rank}"
