"""Turning a fork of the shim into the job's command."""

from __future__ import annotations

import ctypes
import os
import signal

from . import records

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
NOT_FOUND, NOT_USABLE = 127, 126  # as shells say it

# What the shim handles or ignores, and what Python itself ignores; exec resets handled ones only.
_CHANGED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on orphans among the descendants become children of this process, daemons too."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl PR_SET_CHILD_SUBREAPER")


def spawn(spec: records.Record, output: int) -> tuple[int, int, str]:
    """Fork and become the command; `output` is its stdout and stderr.

    Returns pid, 0 and "" once the command runs; pid, exit code and a line for people when it could not be executed
    (the child then ends with that code and has written the line to its output).
    """
    tell_read, tell_write = os.pipe()  # closed by a successful exec, so its end is the good news
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(spec, output, tell_write, shim)
    os.close(tell_write)
    told = b""
    while piece := os.read(tell_read, 4096):
        told += piece
    os.close(tell_read)
    code, _, line = told.decode("utf-8", "replace").partition(" ")
    return pid, int(code or 0), line


def _become(spec: records.Record, output: int, tell: int, shim: int) -> None:
    """In the child: never returns."""
    code, line = NOT_USABLE, "could not be started"
    try:
        try:
            _prepare(spec, output, shim)
            cwd = records.first(spec, "cwd")
            line = f"working directory {cwd}"
            os.chdir(cwd)
            command = spec["arg"]
            line = f"command {command[0]}"
            env = dict(pair.split("=", 1) for pair in spec.get("env", []))
            _execute(command, env)
        except FileNotFoundError:
            code, line = NOT_FOUND, f"{line}: not found"
        except OSError as error:
            line = f"{line}: {error.strerror}"
        except BaseException as error:
            line = f"{line}: {error}"
        os.write(1, f"[rota: {line}]\n".encode("utf-8", "replace"))
        os.write(tell, f"{code} {line}".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _execute(command: list[str], env: dict[str, str]) -> None:
    """Search the job's own PATH and exec. By hand: `os.execvpe` imports a module, slow and past its rights by now."""
    name = command[0]
    places = [""] if "/" in name else env.get("PATH", _DEFAULT_PATH).split(":")
    denied: OSError | None = None
    for place in places:
        path = os.path.join(place, name)
        try:
            os.execve(path, command, env)  # noqa: S606 - what the job asks for is its purpose
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            # A folder of PATH that is not this user's, such as root's own, does not make a program exist.
            if not place or os.path.exists(path):
                denied = error
    raise denied or FileNotFoundError(name)


def _prepare(spec: records.Record, output: int, shim: int) -> None:
    """Own session, output, default signals, rights; stdin is /dev/null already; all other fds close on exec."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for signum in _CHANGED:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    if uid := records.first(spec, "uid"):
        os.setgroups([int(group) for group in spec.get("group", [])])
        os.setgid(int(records.first(spec, "gid")))
        os.setuid(int(uid))
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # nor gets back through a program with the set-user-ID bit
    # After setuid, which clears it: a killed shim takes the command with it at once.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != shim:
        os._exit(NOT_USABLE)
