"""`rota estimate`: how much memory a model needs on each GPU, and the smallest setup that holds it."""

import json
import re
from dataclasses import asdict
from typing import Annotated, Any, NoReturn

import typer

from jobs.reading import SpecError
from scheduler.estimate.architecture import Architecture, typical
from scheduler.estimate.catalogue import catalogue, known
from scheduler.estimate.checks import one_of
from scheduler.estimate.formats import Optimizer, Precision
from scheduler.estimate.memory import Breakdown
from scheduler.estimate.memory import estimate as memory_of
from scheduler.estimate.smallest import Setup, smallest_setup
from scheduler.estimate.workload import CONTEXT_MIB, Checkpointing, Inference, Training

USAGE_ERROR = 2
MIB_PER_GIB = 1024
CARDS = ("RTX4090:24", "L40S:48", "A100:40", "A100-80:80", "H100:80", "H200:141")
"""Cards that are looked at where none are named, with GiB."""
TRAINING, INFERENCE = "training", "inference"
_CARD = re.compile(r"([\w.-]+):([0-9]{1,6}(?:\.[0-9]{1,3})?)")
_COUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([bBmM]?)")


def estimate(  # noqa: PLR0913  each is an option of the command line
    *,
    model: Annotated[str | None, typer.Option(help="A known model; `--model list` names them.")] = None,
    parameters: Annotated[str | None, typer.Option(help="Size of a model that is not known: 7B, 350M.")] = None,
    task: Annotated[str, typer.Option(help="training or inference.")] = INFERENCE,
    precision: Annotated[str | None, typer.Option(help="Of weights; default bf16, or fp16 to infer.")] = None,
    optimizer: Annotated[str, typer.Option(help=", ".join(Optimizer) + ".")] = Optimizer.ADAMW.value,
    zero: Annotated[int, typer.Option(help="ZeRO stage; 3 is also FSDP.")] = 0,
    gpus: Annotated[int, typer.Option(help="GPUs in all.")] = 1,
    tensor: Annotated[int | None, typer.Option(help="Tensor parallel; default 1, all GPUs to infer.")] = None,
    pipeline: Annotated[int, typer.Option(help="Pipeline stages.")] = 1,
    batch: Annotated[int, typer.Option(help="Micro-batch of a GPU, or requests at a time.")] = 1,
    sequence: Annotated[int | None, typer.Option(help="Tokens of a sequence, or context of a request.")] = None,
    checkpointing: Annotated[str, typer.Option(help="none, selective or full.")] = Checkpointing.NONE.value,
    flash: Annotated[bool, typer.Option(help="Flash attention: scores are never kept.")] = True,
    lora: Annotated[float | None, typer.Option(help="Trained share of parameters, such as 0.002.")] = None,
    kv_precision: Annotated[str, typer.Option(help="Of the KV cache.")] = Precision.FP16.value,
    overhead: Annotated[int, typer.Option(help="MiB of CUDA and its kernels.")] = CONTEXT_MIB,
    card: Annotated[list[str] | None, typer.Option(help="MODEL:GIB to look for; may be repeated.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Say how much memory a model needs on each GPU, and the smallest setup that holds it."""
    try:
        if output not in ("table", "json"):
            raise SpecError("output", f"must be table or json, not {output!r}")
        if model == "list":
            _list(output)
            return
        if task not in (TRAINING, INFERENCE):
            raise SpecError("task", f"must be training or inference, not {task!r}")
        architecture = _model(model, parameters)
        run: Training | Inference
        if task == TRAINING:
            run = Training(
                architecture, one_of("precision", precision or Precision.BF16, Precision),
                one_of("optimizer", optimizer, Optimizer), zero, gpus, 1 if tensor is None else tensor, pipeline,
                batch, 2048 if sequence is None else sequence, one_of("checkpointing", checkpointing, Checkpointing),
                flash=flash, lora=lora, overhead_mib=overhead,
            )  # fmt: skip
        else:
            run = Inference(
                architecture, one_of("precision", precision or Precision.FP16, Precision),
                one_of("kv_precision", kv_precision, Precision), gpus,
                max(1, gpus // max(1, pipeline)) if tensor is None else tensor, pipeline, batch,
                4096 if sequence is None else sequence, flash=flash, overhead_mib=overhead,
            )  # fmt: skip
        _show(run, memory_of(run), smallest_setup(run, _cards(card or list(CARDS))), output)
    except SpecError as error:
        _refuse(str(error))


def _refuse(problem: str) -> NoReturn:
    typer.echo(f"rota estimate: {problem}", err=True)
    raise typer.Exit(USAGE_ERROR)


def _model(name: str | None, parameters: str | None) -> Architecture:
    if (name is None) == (parameters is None):
        raise SpecError("model", "give either --model or --parameters")
    if name is not None:
        return known(name)
    assert parameters is not None
    match = _COUNT.fullmatch(parameters)
    if match is None:
        raise SpecError("parameters", f"must be a number such as 7B or 350M, not {parameters!r}")
    return typical(round(float(match[1]) * {"": 1, "m": 10**6, "b": 10**9}[match[2].lower()]))


def _cards(texts: list[str]) -> list[tuple[str, int]]:
    found = []
    for text in texts:
        match = _CARD.fullmatch(text)
        if match is None:
            raise SpecError("card", f"must be MODEL:GIB such as H100:80, not {text!r}")
        found.append((match[1], int(float(match[2]) * MIB_PER_GIB)))
    return found


def _list(output: str) -> None:
    models = {name: round(each.total_parameters / 1e9, 2) for name, each in catalogue().items()}
    if output == "json":
        typer.echo(json.dumps(models))
        return
    for name, billions in models.items():
        typer.echo(f"{name:<24}{billions:>8.2f}B")


def _told(memory: Breakdown) -> dict[str, int]:
    return {**asdict(memory), "allocated": memory.allocated, "reserved": memory.reserved, "total": memory.total}


def _show(run: Training | Inference, memory: Breakdown, smallest: Setup | None, output: str) -> None:
    if output == "json":
        setup: dict[str, Any] | None = None
        if smallest is not None:
            setup = {**asdict(smallest), "memory": _told(smallest.memory)}
        typer.echo(json.dumps({"model": run.model.name, "gpus": run.gpus, "mib": _told(memory), "smallest": setup}))
        return
    typer.echo(f"{run.model.name}, {run.model.total_parameters / 1e9:.2f}B parameters, on each of {run.gpus} GPU")
    for name, mib in _told(memory).items():
        if mib and name not in ("allocated", "reserved"):
            typer.echo(f"  {name.replace('_', ' '):<14}{mib / MIB_PER_GIB:>10.2f} GiB")
    if smallest is None:
        typer.echo("smallest setup: none of these cards is enough")
        return
    each, at = smallest, smallest.memory.total / MIB_PER_GIB
    layout = f"tensor {each.tensor}, pipeline {each.pipeline}, data {each.data}"
    zero = f", ZeRO {each.zero}" if each.zero else ""
    typer.echo(f"smallest setup: {each.gpus} × {each.card} ({layout}{zero}; {at:.1f} of {each.vram_mib / 1024:g} GiB)")
