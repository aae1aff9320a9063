"""Where Rota answers and with which token: from the environment, from this machine's own Rota, or as stored by login.

1. `ROTA_URL` with `ROTA_TOKEN` (or the token that was stored for that address);
2. `cli.json` in the home of a Rota that runs on this machine: `ROTA_HOME`, `.rota` in this folder or one above it, or
   in the checkout that this command was installed from;
3. `~/.config/rota/cli.json`, which `rota login` writes.

Files are only believed that belong to whoever asks and that nobody else can read: a token is as good as a password.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = "cli.json"


class NoPlace(Exception):
    """There is nothing to ask; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address and a token, and where they were found."""

    url: str
    token: str = field(repr=False)
    source: str


def find(environ: Mapping[str, str], cwd: Path) -> Place:
    """Where to ask. Raises NoPlace."""
    url, token = environ.get("ROTA_URL", "").strip(), environ.get("ROTA_TOKEN", "").strip()
    stored = _read(stored_path(environ))
    if url:
        if not token and stored is not None and _same(stored.url, url):
            token = stored.token
        return Place(url.rstrip("/"), token, "ROTA_URL")
    for path in _homes(environ, cwd):
        if (found := _read(path)) is not None:
            return Place(found.url, token or found.token, found.source)
    if stored is not None:
        return Place(stored.url, token or stored.token, stored.source)
    raise NoPlace("no Rota is known here: start one with `rota up`, set ROTA_URL and ROTA_TOKEN, or use `rota login`")


def stored_path(environ: Mapping[str, str]) -> Path:
    """The file that `rota login` writes."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".config")
    return Path(base) / "rota" / FILE


def store(path: Path, url: str, token: str) -> None:
    """Keep an address and a token where only this user can read them."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": url.rstrip("/"), "token": token}, file)
        file.write("\n")
    draft.replace(path)


def _homes(environ: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    if home := environ.get("ROTA_HOME"):
        yield Path(home) / FILE
        return
    for folder in (cwd, *cwd.parents):
        yield folder / ".rota" / FILE
    yield Path(__file__).resolve().parents[2] / ".rota" / FILE


def _read(path: Path) -> Place | None:
    """What a file says; None where there is none that can be read. Raises NoPlace where it cannot be believed."""
    try:
        facts = path.stat()
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    if facts.st_uid != os.getuid() and os.getuid() != 0:
        return None
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise NoPlace(f"{path} can be read by others: `chmod 600 {path}`, and revoke the token in it")
    try:
        raw = json.loads(text)
        url, token = raw["url"], raw.get("token") or ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Place(url.rstrip("/"), token, str(path)) if isinstance(url, str) and isinstance(token, str) else None


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
