"""Jobs on this very machine: a process group for each replica, under a shim that outlives the server.

Belongs here: the orders, files and processes of local attempts, this machine's inventory, reading their logs.
Does not belong here: what happens inside the shim (`rota_client.shim`), and NVML itself (`rota_client.nvml`).
"""

from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.orders import RunAs

__all__ = ["LocalBackend", "RunAs"]
