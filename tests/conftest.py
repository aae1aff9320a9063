"""What every test shares: Hypothesis' profiles, which tests are slow, and what is skipped without a service."""

import importlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import configuration, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.needs import NEEDS, SHARED, required

TESTS = Path(__file__).resolve().parent
# Folders whose tests all start processes, servers or a browser; elsewhere a slow test is marked one by one.
SLOW_FOLDERS = frozenset({"backends", "browser", "cli", "faults", "integration"})

# What a script starts in the background has SIGINT ignored, and so would be everything that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing that a test run learns is kept in the checkout.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rota" / "hypothesis"
configuration.set_hypothesis_home_dir(CACHE)
# `ci` is the same on every run, so that a red build is the change's own doing; `dev` goes on looking.
settings.register_profile("ci", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("dev", database=DirectoryBasedExampleDatabase(CACHE / "examples"), deadline=None)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


# Only these suites know Django; a module in one of them has it set up before it is imported (see tests/services.py).
DJANGO_SUITES = frozenset({"api", "browser", "cli", "faults", "frontend", "integration", "security"})


def suite_of(path: Path) -> str:
    """Return the folder below tests/ that a test module lies in."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """Set Django up only when a test module is collected that needs it: the pure suites never import it."""
    if suite_of(module_path) in DJANGO_SUITES:
        importlib.import_module("tests.services").set_up_django(parent.config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the slow folders."""
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose need is not there, or fail it where everything has to be there."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            need = NEEDS[name]
            if not need.there():
                stop = pytest.fail if required() else pytest.skip
                stop(f"needs {need.missing}")


@pytest.fixture(scope="session")
def services() -> Any:
    """Start PostgreSQL and Valkey, once for all workers, and return where they are (tests.services.Services)."""
    return importlib.import_module("tests.services").start()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(services: Any, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """Let every test that asks pytest-django for a database have the real one."""


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of scenario files and traces; mark the test with `needs("shared")`."""
    return SHARED
