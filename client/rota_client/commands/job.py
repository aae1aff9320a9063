"""Look at jobs, and cancel, hold, release or retry them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

from rota_client import codes
from rota_client.commands.common import (
    PATIENCE,
    WAIT_PATIENCE,
    OutputOption,
    WhyOption,
    asking,
    complain,
    group,
    job_key,
)
from rota_client.shown import Columns, Output, moment, show, text, without_commands
from rota_client.waiting import voice, wait_for

app = group()
JobArgument: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="Key, or name of the newest such job.")]
JobsArgument: TypeAlias = Annotated[list[str], typer.Argument(metavar="JOB…", help="Keys or names.")]


def _reason(job: Mapping[str, Any]) -> str:
    return job["reason"]["code"] if job["reason"] else ""


def _why(job: Mapping[str, Any]) -> str:
    return f"{job['reason']['code']}: {job['reason']['message']}" if job["reason"] else job["state_why"]


COLUMNS: Columns = {
    "KEY": lambda job: job["key"],
    "NAME": lambda job: job["name"],
    "TEAM": lambda job: job["team"],
    "USER": lambda job: job["user"],
    "STATE": lambda job: job["state"],
    "REASON": _reason,
    "GPUS": lambda job: job["gpus"],
    "SUBMITTED": lambda job: moment(job["submitted_at"]),
}
DETAILS: Columns = {
    "key": lambda job: job["key"],
    "name": lambda job: job["name"],
    "team": lambda job: job["team"],
    "user": lambda job: job["user"],
    "cluster": lambda job: job["cluster"],
    "state": lambda job: job["state"],
    "why": _why,
    "gpus": lambda job: job["gpus"],
    "priority": lambda job: job["priority"],
    "submitted": lambda job: moment(job["submitted_at"]),
    "started": lambda job: moment(job["first_started_at"]),
    "finished": lambda job: moment(job["finished_at"]),
    "exit code": lambda job: job["exit_code"],
    "attempts": lambda job: job["attempt_count"],
    "command": lambda job: " ".join(job["spec"].get("command", [])),
}
WHY: Columns = {
    "state": lambda why: why["state"],
    "reason": lambda why: why["code"],
    "message": lambda why: why["message"],
    "since": lambda why: moment(why["since"]),
    "facts": lambda why: why["facts"],
}


@app.command("list")
def list_jobs(
    *,
    state: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    team: Annotated[str | None, typer.Option("--team", "-t")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u")] = None,
    cluster: Annotated[str | None, typer.Option()] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Exactly this name.")] = None,
    since: Annotated[str | None, typer.Option(help="Submitted then or later, such as 2026-01-31T08:00:00Z.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest.")] = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List jobs, newest first."""
    filters = {"state": state or None, "team": team, "user": user, "cluster": cluster, "name": name, "since": since}
    with asking() as client:
        show(output, list(client.jobs(most=limit, **filters)), COLUMNS)


@app.command("show")
def show_job(job: JobArgument, *, output: OutputOption = Output.TABLE) -> None:
    """Show all about one job."""
    with asking() as client:
        show(output, client.job(job_key(client, job)), DETAILS)


@app.command()
def why(job: JobArgument, *, output: OutputOption = Output.TABLE) -> None:
    """Say why a job waits."""
    with asking() as client:
        show(output, client.get(f"jobs/{job_key(client, job)}/why/"), WHY)


@app.command()
def events(job: JobArgument, *, output: OutputOption = Output.TABLE) -> None:
    """Tell what happened to a job, oldest first."""
    columns: Columns = {
        "AT": lambda event: moment(event["at"]),
        "WHAT": lambda event: event["kind"],
        "TO": lambda event: event["to"],
        "BY": lambda event: event["user"] or event["actor"],
        "WHY": lambda event: event["reason"],
    }
    with asking() as client:
        show(output, list(client.pages(f"jobs/{job_key(client, job)}/events/"))[::-1], columns)


@app.command()
def logs(
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    attempt: Annotated[int | None, typer.Option(help="Default: the newest.")] = None,
    replica: Annotated[int, typer.Option("--replica", "-r", help="Rank of the replica.")] = 0,
) -> None:
    """Print what a job has written."""
    with asking(patience=WAIT_PATIENCE if follow else PATIENCE) as client:
        key = job_key(client, job)
        try:
            for piece in client.log(key, attempt=attempt, replica=replica, follow=follow):
                sys.stdout.write(without_commands(piece) if sys.stdout.isatty() else piece)
                sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(codes.INTERRUPTED) from None


@app.command()
def wait(
    job: JobArgument,
    *,
    timeout: Annotated[float | None, typer.Option(help="Give up after so many seconds.")] = None,
    replica: Annotated[int, typer.Option("--replica", "-r", help="Whose output to show.")] = 0,
) -> None:
    """Wait for the end of a job, showing its reason and its output; the exit status tells how it went."""
    with asking(patience=WAIT_PATIENCE) as client:
        raise typer.Exit(wait_for(client, job_key(client, job), timeout=timeout, replica=replica, say=voice()))


@app.command()
def cancel(job: JobsArgument, *, why: WhyOption = "", output: OutputOption = Output.TABLE) -> None:
    """End jobs for good."""
    _change(job, "cancel", why, output)


@app.command()
def hold(job: JobsArgument, *, why: WhyOption, output: OutputOption = Output.TABLE) -> None:
    """Keep waiting jobs from starting."""
    _change(job, "hold", why, output)


@app.command()
def release(job: JobsArgument, *, why: WhyOption = "", output: OutputOption = Output.TABLE) -> None:
    """Let held jobs wait for their turn again."""
    _change(job, "release", why, output)


@app.command()
def requeue(job: JobsArgument, *, why: WhyOption, output: OutputOption = Output.TABLE) -> None:
    """Stop running jobs and let them wait again; for admins."""
    _change(job, "requeue", why, output)


@app.command()
def retry(
    job: JobArgument,
    *,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key never makes a second job.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job that has ended again, as a new one."""
    with asking() as client:
        show(output, client.retry_job(job_key(client, job), idempotency_key=idempotency_key), DETAILS)


def _change(jobs: list[str], verb: str, why: str, output: Output) -> None:
    with asking() as client:
        changed = [client.change_job(job_key(client, each), verb, why) for each in jobs]
        if output is Output.TABLE:
            for job in changed:
                complain(f"{text(job['name'])} ({job['key']}) is {job['state']}")
        else:
            show(output, changed, COLUMNS)
