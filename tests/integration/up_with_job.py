"""`rota up` with one more child, which starts a real local job under a shim: what must survive everything else."""

from __future__ import annotations

import asyncio
import os
import sys

from rota import env as environment
from rota.embedded.children import Child, python_environment
from rota.embedded.output import Console
from rota.embedded.supervisor import Supervisor

LAUNCH = """
import os, time
from scheduler.backends.base import Launch, ReplicaLaunch
from scheduler.backends.local import LocalBackend
backend = LocalBackend(os.path.join(os.environ["ROTA_HOME"], "jobs"))
node = backend.node.name
order = Launch("job.1", "job", (ReplicaLaunch("main", 0, 0, node, gpus=(0,), gpu_count=1),), ("sleep", "300"), cwd="/")
backend.launch(order)
while True:
    backend.observe()
    time.sleep(1)
"""


def main() -> int:
    env = environment.read(os.environ)
    launcher = Child("launcher", (sys.executable, "-c", LAUNCH), python_environment(env, os.environ))
    return asyncio.run(_run(env, launcher))


async def _run(env: environment.Env, launcher: Child) -> int:
    return await Supervisor(env, os.environ, Console(verbose=True), extra=[launcher]).run()


if __name__ == "__main__":
    sys.exit(main())
