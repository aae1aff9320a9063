"""Submit a job and, with --wait, see it through."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rota_client import codes
from rota_client.commands.common import PATIENCE, WAIT_PATIENCE, OutputOption, asking, misused, pairs
from rota_client.commands.job import DETAILS
from rota_client.shown import Output, show
from rota_client.waiting import voice, wait_for
from rota_client.yaml12 import Loader


def submit(
    command: Annotated[list[str] | None, typer.Argument(help="Program and arguments, after `--`.")] = None,
    *,
    team: Annotated[str | None, typer.Option("--team", "-t", help="Default: your only one.")] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Default: the program's name.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Default: the team's.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", "-g", help="Cards of each replica (default 1).")] = None,
    replicas: Annotated[int | None, typer.Option(help="How many replicas start together (default 1).")] = None,
    vram: Annotated[float | None, typer.Option(help="GiB on each card; with --share a slice of it.")] = None,
    share: Annotated[bool, typer.Option("--share", help="Take only a slice of each card.")] = False,
    model: Annotated[list[str] | None, typer.Option(help="GPU model that will do; may be repeated.")] = None,
    cpus: Annotated[float | None, typer.Option(help="Of each replica.")] = None,
    memory: Annotated[float | None, typer.Option(help="GiB of host memory of each replica.")] = None,
    priority: Annotated[str | None, typer.Option(help="low, normal, high, or 0 to 1000.")] = None,
    kind: Annotated[str | None, typer.Option(help="training, inference or interactive.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Such as 90m or 2h; shorter ones start earlier.")] = None,
    retries: Annotated[int | None, typer.Option(help="How often to try again after a failure.")] = None,
    after: Annotated[list[str] | None, typer.Option(help="Job that must have succeeded; may be repeated.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="K=V, or K to pass on; may be repeated.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="K=V; may be repeated.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Folder to start in, on the node.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Job as YAML or JSON; options override it.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key never makes a second job.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for its end, showing reason and output.")] = False,
    timeout: Annotated[float | None, typer.Option(help="With --wait: give up after so many seconds.")] = None,
    replica: Annotated[int, typer.Option(help="With --wait: whose output to show.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job: rota submit --gpus 1 --wait -- python3 train.py"""
    body = _from_file(file) if file else {}
    asked = {
        "team": team, "name": name, "cluster": cluster, "gpus": gpus, "replicas": replicas, "vram_gib": vram,
        "share": share or None, "model": model or None, "cpus": cpus, "memory_gib": memory, "kind": kind,
        "priority": int(priority) if priority and priority.isdecimal() else priority, "time_limit": time_limit,
        "retries": retries, "after": after or None, "cwd": cwd, "command": command or None,
        "env": pairs(env or [], "--env", lacking=dict(os.environ)) or None,
        "labels": pairs(label or [], "--label") or None,
    }  # fmt: skip
    for key, value in asked.items():
        if isinstance(value, dict) and isinstance(body.get(key), dict):
            body[key] = {**body[key], **value}
        elif value is not None:
            body[key] = value
    if not body.get("command"):
        raise misused("what is to run? Give a command after `--`, or a file with one")
    body.setdefault("name", _name(body["command"]))
    with asking(patience=WAIT_PATIENCE if wait else PATIENCE) as client:
        job = client.submit(body, key=idempotency_key)
        if not wait:
            show(output, job, DETAILS)
            raise typer.Exit(codes.REJECTED if job["state"] == "rejected" else codes.SUCCEEDED)
        status = wait_for(client, job["key"], timeout=timeout, replica=replica, say=voice())
        if output is not Output.TABLE:
            show(output, client.job(job["key"]), DETAILS)
        raise typer.Exit(status)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # noqa: S506  a safe one of our own
    except OSError as error:
        raise misused(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise misused(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        raise misused(f"{path}: must hold one job: name: …, command: […], …")
    return dict(found)


def _name(command: Any) -> str:
    """A job without a name is called as its program."""
    first = command[0] if isinstance(command, list) else command
    return Path(str(first)).name[:200] or "job"
