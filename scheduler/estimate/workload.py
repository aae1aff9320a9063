"""What is to be run: a training or an inference of a model, on how many GPUs and how divided."""

from dataclasses import dataclass
from enum import StrEnum

from jobs.reading import SpecError
from scheduler.estimate.architecture import Architecture
from scheduler.estimate.checks import one_of, whole
from scheduler.estimate.formats import Optimizer, Precision

CONTEXT_MIB = 1343
"""What CUDA and its kernels take before the first tensor, in MiB: "GPU memory occupied: 1343 MB", V100, in the
Hugging Face documentation "Model training anatomy"."""

PREFILL_TOKENS = 2048
"""Tokens of prompts that a server works on at a time: ``max_num_batched_tokens`` of vLLM with chunked prefill."""


class Checkpointing(StrEnum):
    """What is worked out again in the backward pass instead of being kept.

    ``selective``: the attention scores (Korthikanti et al. 2022, section 5); ``full``: all but each layer's input.
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Training:
    """One training run. ``batch`` is the micro-batch of one GPU in sequences of ``sequence`` tokens.

    ``gpus`` = ``tensor`` × ``pipeline`` × data parallel. ``zero`` is the ZeRO stage over the data-parallel GPUs
    (3 is also FSDP's full sharding). ``master`` keeps an fp32 copy of 16-bit weights. ``lora`` is the trained share of
    parameters (0 < x < 1) where the others are frozen, None to train all. ``sequence_parallel`` divides over the
    tensor-parallel GPUs also what tensor parallelism alone repeats. ``predicts_tokens`` is False for classifiers,
    which have no logits over the vocabulary. Raises SpecError naming the field.
    """

    model: Architecture
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    zero: int = 0
    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    batch: int = 1
    sequence: int = 2048
    checkpointing: Checkpointing = Checkpointing.NONE
    flash: bool = True
    sequence_parallel: bool = True
    master: bool = True
    lora: float | None = None
    predicts_tokens: bool = True
    overhead_mib: int = CONTEXT_MIB

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        check_layout(self.model, self.gpus, self.tensor, self.pipeline)
        one_of("precision", self.precision, Precision)
        one_of("optimizer", self.optimizer, Optimizer)
        one_of("checkpointing", self.checkpointing, Checkpointing)
        whole("zero", self.zero, least=0, most=3)
        whole("batch", self.batch, most=10**6)
        whole("sequence", self.sequence, most=10**8)
        whole("overhead_mib", self.overhead_mib, least=0, most=10**6)
        if self.lora is not None and not 0 < self.lora < 1:
            raise SpecError("lora", f"must be a share above 0 and below 1, not {self.lora!r}")
        if self.lora is None and self.precision in (Precision.INT8, Precision.INT4):
            raise SpecError("precision", f"{self.precision} weights are frozen: give lora, or train in bf16")

    @property
    def data(self) -> int:
        """Data-parallel GPUs."""
        return self.gpus // (self.tensor * self.pipeline)


@dataclass(frozen=True, slots=True)
class Inference:
    """One server. ``batch`` requests at a time, each with up to ``context`` tokens of prompt and answer.

    ``gpus`` = ``tensor`` × ``pipeline``. ``prefill`` bounds the tokens of prompts in work at a time. Raises SpecError
    naming the field.
    """

    model: Architecture
    precision: Precision = Precision.FP16
    kv_precision: Precision = Precision.FP16
    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    batch: int = 1
    context: int = 4096
    flash: bool = True
    prefill: int = PREFILL_TOKENS
    overhead_mib: int = CONTEXT_MIB

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        check_layout(self.model, self.gpus, self.tensor, self.pipeline)
        one_of("precision", self.precision, Precision)
        one_of("kv_precision", self.kv_precision, Precision)
        whole("batch", self.batch, most=10**6)
        whole("context", self.context, most=10**8)
        whole("prefill", self.prefill, most=10**8)
        whole("overhead_mib", self.overhead_mib, least=0, most=10**6)
        if self.gpus != self.tensor * self.pipeline:
            raise SpecError("gpus", f"must be tensor × pipeline = {self.tensor * self.pipeline}, not {self.gpus}")


def check_layout(model: Architecture, gpus: int, tensor: int, pipeline: int) -> None:
    """Raise SpecError, naming the field, unless the GPUs can be divided so."""
    for field, value in (("gpus", gpus), ("tensor", tensor), ("pipeline", pipeline)):
        whole(field, value, most=10**6)
    if model.heads % tensor:
        raise SpecError("tensor", f"must divide the {model.heads} heads of {model.name}, {tensor} does not")
    if pipeline > model.layers:
        raise SpecError("pipeline", f"must be at most the {model.layers} layers of {model.name}, not {pipeline}")
    if gpus % (tensor * pipeline):
        raise SpecError("gpus", f"must be a multiple of tensor × pipeline = {tensor * pipeline}, {gpus} is not")
