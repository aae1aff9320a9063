"""The front end's files: what others made is what was built, nothing comes from elsewhere, no icon is missing."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from tests.needs import ROOT

FRONTEND = ROOT / "frontend"
VENDOR = FRONTEND / "static" / "vendor"
MANIFEST = json.loads((VENDOR / "MANIFEST.json").read_text())
TEMPLATES = sorted((FRONTEND / "templates").rglob("*.html"))
OURS = sorted((FRONTEND / "static" / "rota").iterdir())


def name_of(path: Path) -> str:
    """How a file is called in a report."""
    return path.relative_to(FRONTEND).as_posix()


@pytest.mark.parametrize("name", MANIFEST)
def test_built_files_are_the_ones_that_were_built(name: str) -> None:
    assert sha256((VENDOR / name).read_bytes()).hexdigest() == MANIFEST[name]["sha256"]
    assert MANIFEST[name]["license"] in {"MIT", "Apache-2.0", "0BSD"}


def test_nothing_else_lies_there() -> None:
    assert {path.name for path in VENDOR.iterdir() if not path.name.startswith("LICENSE.")} == {
        *MANIFEST,
        "MANIFEST.json",
    }


def test_versions_are_those_that_are_locked() -> None:
    wanted = json.loads((FRONTEND / "package.json").read_text())["devDependencies"]
    assert {row["package"]: row["version"] for row in MANIFEST.values()}.items() <= wanted.items()


@pytest.mark.parametrize("path", [*TEMPLATES, *OURS], ids=name_of)
def test_nothing_comes_from_another_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href|url\(|from|import\()\s*[=('\"]+\s*https?:", text) == []


def test_icons_in_use_are_in_the_sprite() -> None:
    sprite = set(re.findall(r'<symbol id="([\w-]+)"', (VENDOR / "icons.svg").read_text()))
    sources = [*TEMPLATES, *(FRONTEND).glob("*.py")]
    used = {
        name
        for path in sources
        for name in re.findall(r'(?:\{% icon |icon_name=)"([\w-]+)"', path.read_text(encoding="utf-8"))
    }
    words = (FRONTEND / "words.py").read_text(encoding="utf-8")
    used |= set(re.findall(r'Look\([^"]*"[^"]*"(?:, "[^"]*")?\)?, "\w+", "([\w-]+)"', words))
    assert used - sprite == set()
    assert len(used) > 50


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_no_inline_style_or_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"""\sstyle=|\son\w+=["']|<style|<script(?![^>]*\bsrc=)""", text) == []


def test_no_file_is_long() -> None:
    assert [path.name for path in [*TEMPLATES, *OURS] if len(path.read_text(encoding="utf-8").splitlines()) > 400] == []
