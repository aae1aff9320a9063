"""`python -m rota.embedded up|down|check`: the same words where the command `rota` is not installed."""

from __future__ import annotations

import typer

from rota.embedded.commands import check, down, up

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(up)
app.command()(down)
app.command()(check)

if __name__ == "__main__":
    app(prog_name="rota")
