"""The `rota` command: finds the words other distributions add to it and imports only the one that is called.

A word is an entry point of the group `rota.commands`: a function becomes a command, a `typer.Typer` a group of
commands. `rota simulate` is called in loops, so the others are only named, and `rota --help` reads their first
line from the source instead of importing them.
"""

import ast
import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rota_client import __version__

GROUP = "rota.commands"
COMPLETING = "_ROTA_COMPLETE"  # set by the shell's completion, which wants to know the options of every word


class BrokenPlugin(Exception):
    """A word of `rota` that cannot be offered; the message is one line for a person."""


def main() -> None:
    """Run the command line with this process's arguments; the script `rota` calls it."""
    try:
        app = build(sys.argv[1:], plugins())
    except BrokenPlugin as broken:
        sys.exit(f"rota: {broken}")
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by whoever called us
            setattr(sys, stream, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  open to the end
    try:
        app(prog_name="rota")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
        sys.exit(f"rota: {error.filename or 'standard output'}: {error.strerror}")


def plugins() -> dict[str, EntryPoint]:
    """Return what the installed distributions add, by word.

    Raises BrokenPlugin when two of them want the same word for different things.
    """
    words: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP)):
        taken = words.setdefault(entry.name, entry)
        if taken.value != entry.value:
            raise BrokenPlugin(f"two packages want the word {entry.name!r}: {taken.value} and {entry.value}")
    return words


def build(arguments: Sequence[str], words: dict[str, EntryPoint]) -> typer.Typer:
    """Return the command line in which the word that `arguments` call is real and the others are only named.

    Raises BrokenPlugin when that word's module, or one that it needs, is missing.
    """
    # Plain text: it is quicker, and it reads the same in a log, a pipe and a narrow terminal.
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, callback=_root)
    # `rota` itself has no option that takes a value, so the first word that is no option is the command.
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for word, entry in words.items():
        if word == called or COMPLETING in os.environ:
            _add(app, word, entry)
        else:
            app.command(word, help=_summary(entry) if called is None else "")(_named_only)
    return app


def _print_version(asked: bool) -> None:
    """Answer `--version`."""
    if asked:
        typer.echo(f"rota {__version__}")
        raise typer.Exit


def _root(
    *,
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version)] = False,
) -> None:
    """The duty roster of a GPU cluster: who runs where, who waits and why."""


def _named_only() -> None:
    """Stand in for a word that was not called."""


def _add(app: typer.Typer, word: str, entry: EntryPoint) -> None:
    try:
        plugin = entry.load()
    except ImportError as error:
        raise BrokenPlugin(f"{word!r} is not usable here, {entry.value} did not load: {error}") from error
    if isinstance(plugin, typer.Typer):
        app.add_typer(plugin, name=word)
    else:
        app.command(word)(plugin)


def _summary(entry: EntryPoint) -> str:
    """Return the first line of what `entry` says about itself, read without importing it.

    The docstring of the function it names, else that of its module; empty when there is no source to read.
    """
    try:
        spec = find_spec(entry.module)
    except ImportError:
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    module = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    functions = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == entry.attr)
    docstring = next((ast.get_docstring(function) for function in functions), None) or ast.get_docstring(module)
    return docstring.partition("\n")[0] if docstring else ""
