"""The one module that talks to NVML: which NVIDIA GPUs this machine has.

Without the library, without a driver or with a broken one there are no GPUs: discovering never raises.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

try:
    import pynvml  # type: ignore[import-untyped]
except ImportError:  # the extra `nvml` is not installed
    pynvml = None

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card as NVML tells it."""

    uuid: str  # `GPU-…`
    index: int  # among the cards that answered, in NVML's order (by PCI bus), from 0 without gaps
    model: str  # such as `NVIDIA H100 80GB HBM3`
    memory_mib: int  # all of it, the driver's reserve included


def discover() -> tuple[Gpu, ...]:
    """The GPUs that answer now; none when NVML is not there. A card that fell off the bus is left out."""
    if pynvml is None:
        return ()
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        return ()
    try:
        return _ask()
    except (pynvml.NVMLError, OSError):
        return ()
    finally:
        with suppress(pynvml.NVMLError, OSError):
            pynvml.nvmlShutdown()


def _ask() -> tuple[Gpu, ...]:
    found: list[Gpu] = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            uuid, model = _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle))
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB
        except pynvml.NVMLError:
            continue
        found.append(Gpu(uuid=uuid, index=len(found), model=model, memory_mib=memory))
    return tuple(found)


def _text(value: str | bytes) -> str:
    """Older versions of the binding answer bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
