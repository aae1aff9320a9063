"""Brings the translations up to date: `make messages`. Needs only Babel, no gettext on the machine.

Strings are found as Django finds them: in Python by gettext's names, in templates after Django has turned them into
Python. What is new in a catalog is empty until somebody translates it; a test fails as long as it is.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import django
from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.conf import settings
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "platform" / "rota" / "locale"
LANGUAGES = ("zh_Hans",)
SOURCES = ("frontend", "platform", "quotas", "scheduler", "monitoring")
KEYWORDS = {
    "gettext": None, "gettext_lazy": None, "gettext_noop": None, "ngettext": (1, 2), "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2), "pgettext_lazy": ((1, "c"), 2), "npgettext": ((1, "c"), 2, 3), "_": None,
}  # fmt: skip


def files() -> Iterator[Path]:
    """Every file that may hold words for people."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*")):
            if path.suffix in (".py", ".html") and not {"node_modules", "migrations", "assets"} & set(path.parts):
                yield path


def template() -> Catalog:
    """All strings of the sources, without translations."""
    catalog = Catalog(project="Rota", charset="utf-8")
    for path in files():
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).as_posix()
        code = templatize(text, origin=name) if path.suffix == ".html" else text
        for line, message, _comments, context in extract("python", io.BytesIO(code.encode()), KEYWORDS):
            catalog.add(message, locations=[(name, line)], context=context)
    return catalog


def path_of(language: str, suffix: str) -> Path:
    """Where a language's catalog lies."""
    return LOCALE / language / "LC_MESSAGES" / f"django.{suffix}"


def read(language: str) -> Catalog:
    """A language's catalog as it is."""
    with path_of(language, "po").open("rb") as file:
        return read_po(file, locale=language)


def compiled(catalog: Catalog) -> bytes:
    """The catalog as the server reads it."""
    out = io.BytesIO()
    write_mo(out, catalog)
    return out.getvalue()


def main() -> int:
    """Write the catalogs; say how many strings still wait for their translation."""
    settings.configure(USE_I18N=True)
    django.setup()
    found, waiting = template(), 0
    for language in LANGUAGES:
        catalog = read(language) if path_of(language, "po").exists() else Catalog(locale=language, charset="utf-8")
        catalog.update(found, no_fuzzy_matching=True)
        catalog.obsolete.clear()
        path_of(language, "po").parent.mkdir(parents=True, exist_ok=True)
        with path_of(language, "po").open("wb") as file:
            write_po(file, catalog, width=120, sort_by_file=True, include_lineno=False, omit_header=False)
        path_of(language, "mo").write_bytes(compiled(catalog))
        missing = [str(message.id) for message in catalog if message.id and not _done(message.string)]
        waiting += len(missing)
        for text in missing:
            print(f"{language}: not translated yet: {text}")
    return 1 if waiting else 0


def _done(string: object) -> bool:
    return all(string) if isinstance(string, tuple) else bool(string)


if __name__ == "__main__":
    sys.exit(main())
