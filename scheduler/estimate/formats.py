"""Number formats and optimizers, and the bytes they take per parameter."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Precision(StrEnum):
    """The format of weights, or of a KV cache."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


class Optimizer(StrEnum):
    """What keeps state beside each trained parameter."""

    ADAMW = "adamw"
    ADAM8BIT = "adam8bit"
    ADAFACTOR = "adafactor"
    SGD = "sgd"
    NONE = "none"


INT4_BLOCK = 64
"""Weights that share one fp32 constant in 4-bit NormalFloat (Dettmers et al. 2023, QLoRA, section 2)."""

STORED: Mapping[Precision, float] = MappingProxyType(
    {
        Precision.FP32: 4.0,
        Precision.BF16: 2.0,
        Precision.FP16: 2.0,
        Precision.FP8: 1.0,
        Precision.INT8: 1.0,  # LLM.int8() (Dettmers et al. 2022): its row constants are below 0.1 %
        Precision.INT4: 0.5 + 4 / INT4_BLOCK,
    }
)
"""Bytes per weight of a linear layer."""

QUANTIZED = (Precision.FP8, Precision.INT8, Precision.INT4)
"""Formats of linear layers alone: embeddings and head stay in 16 bits, as bitsandbytes and vLLM leave them."""


def stored(precision: Precision, blocks: float, rest: float) -> float:
    """Bytes of ``blocks`` parameters in linear layers and ``rest`` in embeddings and head."""
    return blocks * STORED[precision] + rest * (2.0 if precision in QUANTIZED else STORED[precision])


def computed(precision: Precision) -> float:
    """Bytes of one activation: quantized weights are multiplied in 16 bits."""
    return 4.0 if precision is Precision.FP32 else 2.0


def optimizer_bytes(optimizer: Optimizer, precision: Precision, hidden: int, *, master: bool) -> float:
    """Bytes of optimizer state per trained parameter, with the fp32 master copy of 16-bit weights.

    AdamW keeps two moments of 4 bytes, and a master copy of 4 beside 16-bit weights: K = 12 of ZeRO (Rajbhandari et
    al. 2020, section 3.1). Without a master copy the moments have the format of the weights. 8-bit Adam keeps two of
    1 byte (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"). Adafactor without momentum keeps
    one number per row and column of a matrix (Shazeer & Stern 2018). SGD keeps one moment.
    """
    if optimizer is Optimizer.NONE:
        return 0.0
    halves = computed(precision) < 4
    size = 2.0 if halves and not master else 4.0
    states = {
        Optimizer.ADAMW: 2 * size,
        Optimizer.ADAM8BIT: 2.0,
        Optimizer.ADAFACTOR: 2 * size / hidden,
        Optimizer.SGD: size,
    }
    return states[optimizer] + (4.0 if halves and master else 0.0)
