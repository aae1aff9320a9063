"""The rules of the house that no linter knows: where things lie, how long they are, what the lock files say."""

import ast
import importlib
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import ROOT

FOLDERS = ("bench", "client", "frontend", "platform", "quotas", "scheduler", "tests")
MOST_LINES_OF_A_FILE = 450  # the aim is 400
MOST_LINES_OF_A_FUNCTION = 50  # the aim is 40
LOCKS = ("requirements", "requirements-dev")


def sources(*folders: str) -> Iterator[Path]:
    """Yield every Python file below `folders` of the checkout."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a file's name as the checkout sees it."""
    return path.relative_to(ROOT).as_posix()


def test_platform_is_the_standard_librarys() -> None:
    script = "import platform; print(platform.__file__)"
    paths = [str(ROOT), str(ROOT / "platform"), str(ROOT / "client")]
    output = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    assert Path(output.strip()) == Path(sysconfig.get_paths()["stdlib"]) / "platform.py"


def test_platform_is_a_source_root_without_tests() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    strays = [
        name_of(path)
        for path in sources("platform")
        if path.name == "conftest.py" or path.name.startswith("test_") or "tests" in path.parts
    ]
    assert strays == []


@pytest.mark.parametrize("module", ["bench", "jobs", "quotas", "rota_client", "scheduler", "tests.needs"])
def test_packages_come_from_this_checkout(module: str) -> None:
    file = importlib.import_module(module).__file__
    assert file is not None
    assert Path(file).is_relative_to(ROOT)


def test_every_package_says_what_belongs_there() -> None:
    folders = {path.parent for path in sources(*(folder for folder in FOLDERS if folder != "tests"))}
    packages = {folder for folder in folders if "migrations" not in folder.parts and folder != ROOT / "platform"}
    wordless = [
        name_of(package)
        for package in sorted(packages)
        if not (package / "__init__.py").exists()
        or not ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    ]
    assert wordless == []


def test_files_and_functions_stay_short() -> None:
    long: list[str] = []
    for path in sources(*FOLDERS):
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > MOST_LINES_OF_A_FILE:
            long.append(name_of(path))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                if (node.end_lineno or 0) - first.lineno >= MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{name_of(path)}:{node.name}")
    assert long == []


def test_no_drawer_for_odds_and_ends() -> None:
    assert [name_of(path) for path in sources(*FOLDERS) if path.stem in {"utils", "helpers", "misc"}] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_no_index_and_pin_by_hash(lock: str) -> None:
    text = (ROOT / f"{lock}.txt").read_text(encoding="utf-8")
    assert not re.search(
        r"https?:|^\s*--?(i|f|index-url|extra-index-url|find-links|trusted-host)\b", text, re.MULTILINE
    )
    requirements = re.split(r"\n(?=[a-z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).strip())
    assert [line for line in requirements if not re.match(r"[a-z0-9.-]+==\S+.*--hash=sha256:", line, re.DOTALL)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_hold_what_was_asked_for(lock: str) -> None:
    asked = names((ROOT / f"{lock}.in").read_text(encoding="utf-8"))
    locked = names((ROOT / f"{lock}.txt").read_text(encoding="utf-8"))
    assert asked - locked == set(), "run `make lock`"


def test_both_locks_agree() -> None:
    served, developed = (pins(ROOT / f"{lock}.txt") for lock in LOCKS)
    assert served <= developed, "run `make lock`"


def names(text: str) -> set[str]:
    """Return the normalised names of the distributions that a requirements file lists."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^([A-Za-z0-9][\w.-]*)", text, re.MULTILINE)}


def pins(path: Path) -> set[str]:
    """Return the `name==version` that each requirement of a lock file begins with."""
    return set(re.findall(r"^[a-z0-9.-]+==[^ ;]+", path.read_text(encoding="utf-8"), re.MULTILINE))
