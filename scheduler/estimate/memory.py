"""How much memory a workload takes on each of its GPUs."""

import math
from dataclasses import dataclass

from scheduler.estimate.activations import inference_activations, training_activations
from scheduler.estimate.architecture import Architecture
from scheduler.estimate.formats import STORED, Precision, computed, optimizer_bytes, stored
from scheduler.estimate.workload import Inference, Training

MIB = 1 << 20
FRAGMENTATION = 0.05
"""Share of activations and KV cache that an allocator loses between blocks of changing size: PagedAttention loses
below 4 % (Kwon et al. 2023); reserved against allocated in PyTorch differs by about as much."""
GATHERED_LAYERS = 2
"""Layers whose weights are whole at a time under ZeRO 3 and FSDP: the one in work and the one fetched ahead."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """MiB on the fullest GPU, by what takes them."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int
    fragmentation: int
    overhead: int

    @property
    def allocated(self) -> int:
        """What tensors take: ``torch.cuda.max_memory_allocated``."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.kv_cache

    @property
    def reserved(self) -> int:
        """What the framework holds: ``torch.cuda.max_memory_reserved``."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> int:
        """What is gone from the card: what ``nvidia-smi`` shows."""
        return self.reserved + self.overhead


def estimate(run: Training | Inference) -> Breakdown:
    """The memory of each GPU of a workload."""
    return _training(run) if isinstance(run, Training) else _inference(run)


def kv_bytes_per_token(model: Architecture, precision: Precision = Precision.FP16) -> float:
    """Bytes of keys and values of one token in all layers: 2 × layers × kv heads × head width × bytes.

    Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention", section 3:
    OPT-13B takes 2 × 5120 × 40 × 2 = 800 KiB.
    """
    return 2 * model.layers * model.kv_width * STORED[precision]


def _training(run: Training) -> Breakdown:
    """Rajbhandari et al. 2020, "ZeRO", section 5: stage 1 divides optimizer states, 2 gradients, 3 weights."""
    model, size = run.model, computed(run.precision)
    blocks, rest = _on_fullest_stage(model, run.tensor, run.pipeline)
    shares = [run.data if run.zero >= stage else 1 for stage in (1, 2, 3)]
    held = blocks + rest
    trained = held * (1 if run.lora is None else run.lora)
    frozen_precision = run.precision if run.lora is not None else _trained_in(run.precision)
    weights = stored(frozen_precision, blocks, rest)
    if run.lora is not None:
        weights += trained * size
    weights /= shares[2]
    if shares[2] > 1:
        gathered = min(GATHERED_LAYERS, model.layers) * model.layer_parameters / run.tensor + rest
        weights += gathered * size
    per_parameter = optimizer_bytes(run.optimizer, run.precision, model.hidden, master=run.master)
    activations = training_activations(run)
    return _breakdown(
        weights, trained * size / shares[1], trained * per_parameter / shares[0], activations, 0.0, run.overhead_mib
    )


def _inference(run: Inference) -> Breakdown:
    model = run.model
    blocks, rest = _on_fullest_stage(model, run.tensor, run.pipeline)
    heads = min(run.tensor, model.kv_heads)  # beyond their number the kv heads are repeated
    layers = -(-model.layers // run.pipeline) / model.layers
    kv_cache = run.batch * run.context * kv_bytes_per_token(model, run.kv_precision) * layers / heads
    weights = stored(run.precision, blocks, rest)
    return _breakdown(weights, 0.0, 0.0, inference_activations(run), kv_cache, run.overhead_mib)


def _on_fullest_stage(model: Architecture, tensor: int, pipeline: int) -> tuple[float, float]:
    """Parameters of blocks, and of embeddings and head, on one GPU of the fullest pipeline stage."""
    own = -(-model.layers // pipeline)
    rest = model.embedding_parameters + model.head_parameters
    if pipeline > 1:  # the first stage has the embedding, the last one the head
        rest = max(model.embedding_parameters, model.head_parameters)
    return model.block_parameters * own / model.layers / tensor, rest / tensor


def _trained_in(precision: Precision) -> Precision:
    """The format in which trained weights lie: fp8 is for multiplying, they stay in 16 bits."""
    return Precision.BF16 if precision is Precision.FP8 else precision


def _breakdown(
    weights: float, gradients: float, optimizer: float, activations: float, kv_cache: float, overhead_mib: int
) -> Breakdown:
    moving = (activations + kv_cache) * FRAGMENTATION
    return Breakdown(
        weights=math.ceil(weights / MIB),
        gradients=math.ceil(gradients / MIB),
        optimizer=math.ceil(optimizer / MIB),
        activations=math.ceil(activations / MIB),
        kv_cache=math.ceil(kv_cache / MIB),
        fragmentation=math.ceil(moving / MIB),
        overhead=overhead_mib,
    )
