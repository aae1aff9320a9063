"""What the documents promise about the checkout: links lead somewhere, commands exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_client.cli import plugins
from tests.needs import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "client" / "README.md"]


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's relative links."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:|#", target):
            yield target.partition("#")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = set[Path](), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += [(page.parent / target).resolve() for target in links(page)]
    assert sorted(set((ROOT / "docs").rglob("*.md")) - reached) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_named_in_commands_exist(page: Path) -> None:
    named = re.findall(r"\bexamples/[\w.-]+", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_make_commands_named_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        word
        for page in PAGES
        for words in re.findall(r"(?:`|^    )make ([a-z ]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        for word in words.split()
    }
    assert named - targets == set()


def test_every_word_of_the_server_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert [word for word in plugins() if f"`rota {word}" not in text] == []
