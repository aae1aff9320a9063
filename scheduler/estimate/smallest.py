"""The smallest sensible setup: how many of which cards hold a workload, and how it is divided over them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jobs.reading import SpecError
from scheduler.estimate.checks import whole
from scheduler.estimate.memory import Breakdown, estimate
from scheduler.estimate.workload import Inference, Training

NODE_GPUS = 8
"""Cards that tensor parallelism may span: those of one node, because it talks at every layer."""
MOST_GPUS = 4096


@dataclass(frozen=True, slots=True)
class Setup:
    """``gpus`` × ``card`` with their layout, and what each card then holds."""

    card: str
    vram_mib: int
    gpus: int
    tensor: int
    pipeline: int
    data: int
    zero: int
    memory: Breakdown


def smallest_setup(
    run: Training | Inference,
    cards: Sequence[tuple[str, int]],
    *,
    node_gpus: int = NODE_GPUS,
    most_gpus: int = MOST_GPUS,
) -> Setup | None:
    """The setup with the least card memory in all, then the fewest cards; None where ``most_gpus`` are not enough.

    ``cards`` are (model, usable MiB). The number of cards doubles from 1. For each, the plainest layout that fits is
    taken: training divides its states over data-parallel cards (by the ZeRO stage of ``run``, by stage 3 where it names
    none), then weights by tensor parallelism inside a node, then layers by a pipeline; inference begins with tensor
    parallelism. Raises SpecError naming the field.
    """
    if not cards:
        raise SpecError("cards", "must name at least one card")
    for model, vram_mib in cards:
        whole(f"cards.{model}", vram_mib, most=10**9)
    whole("node_gpus", node_gpus, most=1024)
    found = [setup for card in cards if (setup := _fewest(run, card, node_gpus, most_gpus)) is not None]
    return min(found, key=lambda each: (each.gpus * each.vram_mib, each.gpus, each.card), default=None)


def _fewest(run: Training | Inference, card: tuple[str, int], node_gpus: int, most_gpus: int) -> Setup | None:
    model, vram_mib = card
    gpus = 1
    while gpus <= most_gpus:
        for laid_out in _layouts(run, gpus, node_gpus):
            memory = estimate(laid_out)
            if memory.total <= vram_mib:
                data = laid_out.data if isinstance(laid_out, Training) else 1
                zero = laid_out.zero if isinstance(laid_out, Training) and data > 1 else 0
                return Setup(model, vram_mib, gpus, laid_out.tensor, laid_out.pipeline, data, zero, memory)
        gpus *= 2
    return None


def _layouts(run: Training | Inference, gpus: int, node_gpus: int) -> Iterator[Training | Inference]:
    """Ways to divide a workload over so many cards, the plainest first; those that the model rules out are skipped."""
    tensors = [tensor for tensor in _doubling(min(gpus, node_gpus)) if not run.model.heads % tensor]
    for pipeline in [each for each in _doubling(gpus) if each <= run.model.layers]:
        for tensor in tensors:
            if tensor * pipeline > gpus:
                continue
            if isinstance(run, Training):
                zero = run.zero or (3 if gpus > tensor * pipeline else 0)
                yield replace(run, gpus=gpus, tensor=tensor, pipeline=pipeline, zero=zero)
            elif tensor * pipeline == gpus:
                yield replace(run, gpus=gpus, tensor=tensor, pipeline=pipeline)


def _doubling(most: int) -> Iterator[int]:
    number = 1
    while number <= most:
        yield number
        number *= 2
