"""Run the test of each guard with the guard disabled: ``python -m tests.mutation.runner`` prints a line of JSON.

This process imports nothing of what is tested. For each guard it forks a child in which the guard's module is compiled
from changed source (nothing is written anywhere), and only the named test runs: some tenths of a second each. The
answer has for each guard ``noticed`` (its test failed), ``missed`` (it passed) or ``broken`` (it did not come to a
verdict), and first, under ``""``, how all those tests go when nothing is changed: ``passed`` or ``broken``.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import hypothesis
import numpy
import pytest

from tests.mutation.guard import Guard
from tests.mutation.guards import GUARDS
from tests.needs import ROOT

IMPORTED_ONCE = (hypothesis, numpy)
AT_A_TIME = max(2, min(4, os.cpu_count() or 2))
# A bare pytest, so that a child is quick: no plugins, no settings of the project's, no rewriting of assertions.
OPTIONS = (
    "-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={ROOT}",
    "--import-mode=importlib", "-o", "pythonpath=. platform client",
)  # fmt: skip
SECONDS = 20  # for one child
VERDICTS = {int(pytest.ExitCode.OK): "missed", int(pytest.ExitCode.TESTS_FAILED): "noticed"}


class _Changed(SourceFileLoader):
    """Loads a module from its source with the guard disabled."""

    guard: Guard

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8").replace(self.guard.code, self.guard.instead)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the guard's module before anybody else does."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.module = guard.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Changed(fullname, spec.origin)
        spec.loader.guard = self.guard
        return spec


def fork(guard: Guard | None, tests: Iterable[str]) -> int:
    """Start a child that runs ``tests`` with a guard disabled; its exit status is pytest's."""
    child = os.fork()
    if child:
        return child
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        signal.alarm(SECONDS)
        if guard is not None:
            sys.meta_path.insert(0, _Finder(guard))
        os._exit(pytest.main([*OPTIONS, *tests]))
    finally:
        os._exit(pytest.ExitCode.INTERNAL_ERROR)


def main() -> dict[str, str]:
    """Try every guard, several at a time."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    everything = fork(None, dict.fromkeys(guard.test for guard in GUARDS))
    verdicts = {"": "passed" if os.waitstatus_to_exitcode(os.waitpid(everything, 0)[1]) == 0 else "broken"}
    names: dict[int, str] = {}
    left = list(reversed(GUARDS))
    while left or names:
        while left and len(names) < AT_A_TIME:
            guard = left.pop()
            names[fork(guard, [guard.test])] = guard.name
        child, status = os.wait()
        verdicts[names.pop(child)] = VERDICTS.get(os.waitstatus_to_exitcode(status), "broken")
    return verdicts


if __name__ == "__main__":
    assert not any(name.startswith(("scheduler", "quotas")) for name in sys.modules)
    print(json.dumps(main()))
