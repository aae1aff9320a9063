"""The life of one replica: start it, keep its output, end it when told or due, leave nothing behind, tell its end."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
import time

from . import child, output, processes, records

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` is slow to import
    from typing import NoReturn

LEFTOVER_GRACE = 2.0  # seconds that processes have which outlive the command that started them
CHECKPOINT_SHARE = 0.8  # of the grace passes between the checkpoint signal and SIGTERM
_KILL_AGAIN = 0.05  # seconds between two rounds of SIGKILL: something may fork faster than we read /proc
_LOCK_TRIES, _LOCK_PAUSE = 100, 0.01
_RETRY_EXIT = 1.0


class End:
    """How the command ended."""

    __slots__ = ("at", "code", "note", "signum")

    def __init__(self, code: int, signum: int, at: float, note: str = "") -> None:
        self.code, self.signum, self.at, self.note = code, signum, at, note


class Supervisor:
    """One replica's state. Deadlines are of the monotonic clock, records carry Unix time."""

    def __init__(self, folder: str, spec: records.Record, wake: int) -> None:
        self.folder, self.spec, self.wake = folder, spec, wake
        self.attempt = os.path.dirname(folder)
        self.rank = os.path.basename(folder)
        self.grace = float(records.first(spec, "grace_s", "30"))
        self.log = output.Writer(
            folder, size=int(records.first(spec, "log_bytes")), keep=int(records.first(spec, "log_segments"))
        )
        self.main = 0
        self.end: End | None = None
        self.cause, self.why = "", ""
        self.limit_at = self.checked_at = self.term_at = self.kill_at = float("inf")
        self.pipe = -1
        self.poll = select.poll()

    def start(self, boot: str) -> None:
        """Start the command and record it, or note why it could not be."""
        child.become_subreaper()
        self.pipe, write = os.pipe()
        os.set_blocking(self.pipe, False)
        self.poll.register(self.pipe, select.POLLIN)
        self.poll.register(self.wake, select.POLLIN)
        self.main, code, line = child.spawn(self.spec, write)
        os.close(write)
        now = time.time()
        if code:
            self.end = End(code, 0, now, line)
            return
        if limit := records.first(self.spec, "time_limit_s"):
            self.limit_at = time.monotonic() + float(limit)
        who = processes.identify(self.main, boot)
        pairs = who.pairs() if who else []
        _try_write(os.path.join(self.folder, records.STARTED), [*pairs, ("at", repr(now))])

    def run(self) -> None:
        """Until the command and everything it ever started is gone."""
        while self._reap():
            self._enforce(time.monotonic())
            soonest = min(self.limit_at, self.term_at, self.kill_at) - time.monotonic()
            ready = self.poll.poll(None if soonest == float("inf") else max(0.0, soonest) * 1000 + 1)
            for fd, _ in ready:
                if fd == self.pipe:
                    self._pump()
                elif signal.SIGTERM in os.read(self.wake, 4096):
                    self.told()
        while self.pipe >= 0 and self._pump():
            pass
        self.log.close()

    def told(self) -> None:
        """Somebody wants it ended: the attempt's `stop` record says who and how soon, else it was a bare SIGTERM."""
        path = os.path.join(self.attempt, records.STOP)
        stop = records.read(path)
        if stop is None:
            self._end_all("stopped", "its shim was ended by SIGTERM")
            stop = records.read(path) or {}
        self.begin_stop(
            records.first(stop, "cause", "stopped"),
            records.first(stop, "why"),
            float(records.first(stop, "grace_s") or self.grace),
        )

    def begin_stop(self, cause: str, why: str, grace: float) -> None:
        """Checkpoint signal or SIGTERM now, SIGKILL after the grace. Again: only a sooner end counts."""
        now = time.monotonic()
        first = not self.cause
        if first and self.end is None:
            self.cause, self.why = cause, why
        self.kill_at = min(self.kill_at, now + grace)
        checkpoint = int(records.first(self.spec, "checkpoint_signal") or 0)
        if not first:
            if self.term_at != float("inf"):
                self.term_at = min(self.term_at, now + grace * CHECKPOINT_SHARE)
        elif checkpoint and self.end is None:
            _kill(self.main, checkpoint)
            self.term_at = now + grace * CHECKPOINT_SHARE
        else:
            self.term_at = now
        self._enforce(now)

    def last_word(self) -> list[tuple[str, str]]:
        """The exit record: to be written when nothing of the replica is left."""
        end = self.end or End(child.NOT_USABLE, 0, time.time(), "its end was not seen")
        return [
            ("code", str(end.code)),
            ("signal", str(int(end.signum))),
            ("cause", self.cause or "self"),
            ("note", self.why or end.note),
            ("ended", repr(end.at)),
            ("at", repr(time.time())),
            ("output_lost", str(self.log.lost)),
        ]

    def _enforce(self, now: float) -> None:
        if now >= self.limit_at:
            self.limit_at = float("inf")
            if self.end is None and not self.cause:
                limit = float(records.first(self.spec, "time_limit_s"))
                self._end_all("time_limit", f"time limit of {limit:g} s")
                self.begin_stop("time_limit", f"time limit of {limit:g} s", self.grace)
        if now >= self.term_at:
            self.term_at = float("inf")
            self._signal_all(signal.SIGTERM)
            self._signal_all(signal.SIGCONT)  # what is suspended cannot take its SIGTERM
        if now >= self.kill_at:
            self.kill_at = now + _KILL_AGAIN
            self._signal_all(signal.SIGKILL)

    def _reap(self) -> bool:
        """Collect the dead; False when no child is left, which, as sub-reaper, means no descendant either."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main and self.end is None:
                code = os.waitstatus_to_exitcode(status)
                self.end = End(code if code >= 0 else 128 - code, -code if code < 0 else 0, time.time())
            if pid == self.main:
                self._after_main()

    def _after_main(self) -> None:
        """The command is gone: what it left behind ends soon, and so do the other replicas if it failed by itself."""
        self.limit_at = float("inf")
        grace = min(LEFTOVER_GRACE, self.grace)
        self.term_at = time.monotonic()
        self.kill_at = min(self.kill_at, self.term_at + grace)
        if self.end and self.end.code and not self.cause:
            self._end_all("peer", f"replica {self.rank} failed")

    def _end_all(self, cause: str, why: str) -> None:
        """Let the whole attempt end: leave the word, then wake the other shims (each looks for it when it starts)."""
        path = os.path.join(self.attempt, records.STOP)
        pairs = [("cause", cause), ("why", why), ("grace_s", repr(self.grace)), ("at", repr(time.time()))]
        _try_write(path, pairs, replace=False)
        boot = processes.boot_id()
        for rank in os.listdir(self.attempt):
            if rank == self.rank or not rank.isdigit():
                continue
            other = records.read(os.path.join(self.attempt, rank, records.SHIM))
            if other and (who := processes.from_record(other)):
                processes.send(who, signal.SIGTERM, boot)

    def _signal_all(self, signum: int) -> None:
        for seen in processes.descendants(os.getpid()):
            _kill(seen.pid, signum)

    def _pump(self) -> bool:
        """Move one piece of output to the log; False at its end, or when there is nothing to move now."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self.log.write(data)
            return True
        self.poll.unregister(self.pipe)
        os.close(self.pipe)
        self.pipe = -1
        return False


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except OSError:
        pass  # gone already, or a set-user-id program that is not ours to signal


def _try_write(path: str, pairs: list[tuple[str, str]], *, replace: bool = True) -> None:
    """A full disk must not end the job: what cannot be recorded is found out by observing."""
    try:
        records.write(path, pairs, sync=False, replace=replace)
    except OSError:
        pass


def _record_exit(folder: str, pairs: list[tuple[str, str]]) -> None:
    """Insists, also on a full disk: nobody else knows how it ended. Gives up only when the folder is gone."""
    path = os.path.join(folder, records.EXIT)
    while True:
        try:
            records.write(path, pairs, replace=False)
            return
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
        time.sleep(_RETRY_EXIT)


def _lock(folder: str) -> bool:
    """One shim for each replica: held until this process ends, so that its end is seen even without /proc."""
    fd = os.open(os.path.join(folder, records.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if records.read(os.path.join(folder, records.SHIM)):
                return False  # another shim has it
        time.sleep(_LOCK_PAUSE)  # a backend may be probing whether anybody has it
    return False


def _listen() -> int:
    """SIGTERM and SIGCHLD arrive as bytes on the returned pipe; the terminal's signals are not for a shim."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return read


def main(folder: str) -> NoReturn:
    """Run the replica whose `spec` lies in `folder`, until all of it has ended and its end is on disk."""
    status = 1
    try:
        os.closerange(3, 1 << 20)
        placed = _stand_alone()
        os.setsid()
        _live(folder, placed)
        status = 0
    except BaseException as error:
        # Without traceback, whose import is slow; the backend finds the replica deserted and cleans up.
        where = error.__traceback__
        while where and where.tb_next:
            where = where.tb_next
        print(f"{type(error).__name__}: {error} in line {where.tb_lineno if where else 0}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)  # taking the interpreter down in order would cost as much as all of the above


def _stand_alone() -> int:
    """Go on as a child of nobody: who kills a server with all that is below it, one by one, shall not reach the jobs.

    The process that was started ends when the returned descriptor is closed: once the shim has its lock and its
    record, or has ended. Until then its starter sees it living, and from then on it looks for those.
    """
    read, placed = os.pipe()
    if os.fork():
        os.close(placed)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    return placed


def _live(folder: str, placed: int) -> None:
    wake = _listen()
    spec = records.read(os.path.join(folder, records.SPEC))
    if spec is None or not _lock(folder) or records.read(os.path.join(folder, records.EXIT)):
        return
    boot = processes.boot_id()
    if me := processes.identify(os.getpid(), boot):
        _try_write(os.path.join(folder, records.SHIM), me.pairs())
    os.close(placed)
    supervisor = Supervisor(folder, spec, wake)
    # After the record above: whoever writes `stop` either finds it and signals us, or has written before we look.
    stop = records.read(os.path.join(supervisor.attempt, records.STOP))
    if stop:
        supervisor.cause, supervisor.why = records.first(stop, "cause"), records.first(stop, "why")
        supervisor.end = End(128 + signal.SIGTERM, signal.SIGTERM, time.time(), "ended before it was started")
    else:
        supervisor.start(boot)
        supervisor.run()
    _record_exit(folder, supervisor.last_word())
