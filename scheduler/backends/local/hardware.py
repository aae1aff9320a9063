"""What this machine is: its name, CPUs, memory and GPUs, real ones by NVML, else virtual ones."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from rota_client import nvml
from scheduler.backends.base import CardReport, NodeReport, PermanentError

VIRTUAL_GPUS, VIRTUAL_VRAM_GIB = "ROTA_LOCAL_GPUS", "ROTA_LOCAL_VRAM_GIB"
VIRTUAL_MODEL = "virtual"
_DEFAULT_GPUS, _MOST_GPUS = 4, 1024
_DEFAULT_VRAM_GIB, _MOST_VRAM_GIB = 24, 4096
_MIB = 1 << 20
_CPUS_PER_VIRTUAL_GPU, _MIB_PER_VIRTUAL_GPU = 2, 8 * 1024
"""Where cards are pretended, so is the rest: as much that jobs that ask for no more than the usual CPU and 4 GiB for
each card are bounded by the cards alone, also on a small laptop."""
_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")


def this_node(environ: Mapping[str, str]) -> NodeReport:
    """This machine as a node.

    Raises:
        PermanentError: a variable of `environ` that shapes virtual cards has a bad value; the text names it.
    """
    name = dns_label(socket.gethostname())
    # Checked in any case: a mistyped variable must not wait for the day on which the driver fails.
    virtual = virtual_cards(environ, host=_host_id())
    real = tuple(
        CardReport(uuid=gpu.uuid, index=gpu.index, memory_mib=gpu.memory_mib, model=gpu.model)
        for gpu in nvml.discover()
    )
    cards = real or virtual
    return NodeReport(
        name=name,
        model=cards[0].model if cards else "",
        gpus=cards,
        cpus=max(len(os.sched_getaffinity(0)), 0 if real else _CPUS_PER_VIRTUAL_GPU * len(cards)),
        memory_mib=max(_memory_mib(), 0 if real else _MIB_PER_VIRTUAL_GPU * len(cards)),
    )


def virtual_cards(environ: Mapping[str, str], *, host: str) -> tuple[CardReport, ...]:
    """As many virtual cards as `environ` asks for (default 4 of 24 GiB), with ids that stay the same on one host."""
    count = _number(environ, VIRTUAL_GPUS, default=_DEFAULT_GPUS, least=0, most=_MOST_GPUS)
    gib = _number(environ, VIRTUAL_VRAM_GIB, default=_DEFAULT_VRAM_GIB, least=1, most=_MOST_VRAM_GIB)
    return tuple(
        CardReport(
            uuid=f"GPU-virtual-{host}-{index}", index=index, memory_mib=gib * 1024, virtual=True, model=VIRTUAL_MODEL
        )
        for index in range(count)
    )


def dns_label(hostname: str) -> str:
    """The host's name without its domain as a DNS label (RFC 1123: a-z 0-9 -, at most 63), or `local`."""
    label = re.sub(r"[^a-z0-9]+", "-", hostname.partition(".")[0].lower())
    return label[:63].strip("-") or "local"


def _number(environ: Mapping[str, str], name: str, *, default: int, least: int, most: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise PermanentError(f"{name}: must be a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _host_id() -> str:
    """Eight hex digits that stay the same on one machine and do not tell its name."""
    try:
        seed = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        seed = ""
    return hashlib.sha256((seed or socket.gethostname()).encode()).hexdigest()[:8]


def _memory_mib() -> int:
    """Memory of this machine, or of the container (cgroup v2) around us where that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    try:
        limit = _CGROUP_MEMORY.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit) // _MIB) if limit.isdigit() else total
