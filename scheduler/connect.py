"""The backend of each cluster, made once in a process and again when the cluster's configuration has changed."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from scheduler.backends.base import Backend, PermanentError
from scheduler.backends.local import RunAs
from scheduler.backends.registry import create
from scheduler.inventory.models import BackendKind, Cluster
from scheduler.virtual import VirtualBackend

NOBODY = "nobody"
"""Whose rights local commands get where Rota runs as root and ROTA_LOCAL_USER does not say otherwise."""


class Connections:
    """Backends by cluster. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[int, tuple[str, Backend]] = {}

    def backend_of(self, cluster: Cluster) -> Backend:
        """The backend that runs a cluster's jobs. Raises BackendError where it cannot be had."""
        mark = json.dumps([cluster.backend, cluster.config, cluster.chooses_gpu], sort_keys=True)
        with self._lock:
            known = self._made.get(cluster.pk)
            if known is None or known[0] != mark:
                known = self._made[cluster.pk] = (mark, connect(cluster))
            return known[1]


def connect(cluster: Cluster) -> Backend:
    """Make the backend of a cluster. Raises PermanentError that says what is wrong with its configuration."""
    if cluster.backend == BackendKind.SIMULATED:
        return VirtualBackend(cluster, timezone.now)
    if cluster.backend == BackendKind.LOCAL:
        return create("local", **local_options(settings.ENV.local_user))
    return create(cluster.backend, **cluster.config)


def local_options(user: str | None) -> dict[str, Any]:
    """With what the local backend is made: its folder, whose rights commands get and where they start.

    As root that is ``user``, else `nobody`; otherwise whoever started Rota. Commands start in that person's home, or,
    where it is none that they can use, in the folder for temporary files.
    """
    run_as = RunAs.of(user or NOBODY) if os.geteuid() == 0 else None
    if run_as is not None and run_as.uid == 0:
        raise PermanentError(f"ROTA_LOCAL_USER: {user!r} is root, whose rights no job gets")
    return {"root": settings.LAYOUT.jobs, "run_as": run_as, "cwd": _start_folder(run_as)}


def user_of_jobs() -> str:
    """The name of the user whose rights local commands get, where this process would start them."""
    uid = os.geteuid()
    if uid == 0:
        return settings.ENV.local_user or NOBODY
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a bare uid, as in containers
        return str(uid)


def _start_folder(run_as: RunAs | None) -> str:
    home = Path.home() if run_as is None else Path(pwd.getpwuid(run_as.uid).pw_dir)
    try:
        usable = home.is_dir() and (run_as is None or home.stat().st_uid == run_as.uid)
    except OSError:
        usable = False
    return str(home) if usable else tempfile.gettempdir()
