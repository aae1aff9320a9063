"""The exit statuses of `rota` that scripts and CI rely on; docs/reference/cli.md lists them."""

SUCCEEDED = 0
FAILED = 1
"""The job has failed, or what was asked for could not be done."""
USAGE = 2
"""The command line, or a value in it, is wrong."""
CANCELLED = 3
REJECTED = 4
HELD = 5
"""The job waits for a person."""
UNREACHABLE = 69
"""The server does not answer (EX_UNAVAILABLE of sysexits.h)."""
NO_PERMISSION = 77
"""No token, a wrong one, or one that does not allow this (EX_NOPERM)."""
TIMEOUT = 124
"""`--timeout` is over and the job has not ended; it goes on (as of timeout(1))."""
INTERRUPTED = 130
"""Ctrl-C; the job goes on."""

OF_STATE = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED, "rejected": REJECTED, "held": HELD}
