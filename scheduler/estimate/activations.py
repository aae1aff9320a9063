"""Activations: what the forward pass keeps for the backward pass, and what a prompt needs on its way through.

After Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4: for GPT in
16 bits a layer keeps s·b·h·(34 + 5·a·s/h) bytes. The terms are theirs, written out so that they hold for other blocks
too: fp32, grouped queries, gated feed-forward layers, RMS norm, blocks without dropout.
"""

from scheduler.estimate.architecture import Architecture, Norm
from scheduler.estimate.formats import computed
from scheduler.estimate.workload import Checkpointing, Inference, Training

LOGIT_BYTES = 12
"""Per token and entry of the vocabulary: the 16-bit logits and their gradient, their fp32 copy and its gradient; in
fp32 the logits, their log-softmax and its gradient."""


def kept_in_layer(run: Training) -> float:
    """Bytes that one layer keeps for one micro-batch on one GPU, nothing worked out again but the scores."""
    divided, repeated = _per_token(run.model, computed(run.precision))
    if not run.flash and run.checkpointing is not Checkpointing.SELECTIVE:
        divided += _scores(run)
    tokens = run.batch * run.sequence
    tensor = run.tensor
    return tokens * (divided / tensor + repeated / (tensor if run.sequence_parallel else 1))


def training_activations(run: Training) -> float:
    """Bytes of activations at the peak of one GPU.

    In a pipeline the first stage has as many micro-batches in flight as there are stages (1F1B), so it keeps as much
    as all layers for one of them (their section 4.2.3); the last stage keeps its own layers and the logits. With full
    checkpointing each layer keeps its input, and one layer at a time is worked out again, on whole sequences that
    tensor parallelism gathers for it with their gradients.
    """
    model, tokens = run.model, run.batch * run.sequence
    layer_input = tokens * model.hidden * computed(run.precision)
    at_work = 0.0
    if run.checkpointing is Checkpointing.FULL:
        kept = layer_input / (run.tensor if run.sequence_parallel else 1)
        at_work = kept_in_layer(run)
    else:
        kept = kept_in_layer(run)
    if run.tensor > 1:
        at_work += 2 * layer_input
    logits = tokens * model.vocab * LOGIT_BYTES / run.tensor if run.predicts_tokens else 0.0
    if run.pipeline == 1:
        return model.layers * kept + at_work + logits
    own = -(-model.layers // run.pipeline)
    return max(own * run.pipeline * kept, own * kept + logits) + at_work


def inference_activations(run: Inference) -> float:
    """Bytes in work while prompts are read: the widest moment of one layer, and the logits of each request in fp32.

    Nothing is kept for a backward pass, so it is the stream, a layer's input, and the wider of attention and
    feed-forward.
    """
    model, size = run.model, computed(run.precision)
    tokens = min(run.batch * run.context, run.prefill)
    attention = 2 * model.hidden + 2 * model.kv_width
    feed_forward = (3 if model.gated else 2) * model.intermediate
    wide = max(attention, feed_forward) / run.tensor
    scores = 0.0
    if not run.flash:
        scores = 2 * size * model.heads / run.tensor * tokens * min(run.context, run.prefill)
    return tokens * size * (2 * model.hidden + wide) + scores + 4 * run.batch * model.vocab / run.tensor


def _per_token(model: Architecture, size: float) -> tuple[float, float]:
    """Bytes per token that tensor parallelism divides, and those that only sequence parallelism divides too."""
    hidden, branches = model.hidden, 1 if model.parallel else 2
    attention = size * (2 * hidden + 2 * model.kv_width)  # queries, what the projection reads; keys, values
    feed_forward = size * (4 if model.gated else 2) * model.intermediate
    norm = 4 if model.norm is Norm.RMS else size  # an RMS norm works on, and keeps, an fp32 copy of its input
    inputs = branches * hidden * (size + norm)
    masks = 2 * hidden if model.dropout else 0
    return attention + feed_forward, inputs + masks


def _scores(run: Training) -> float:
    """Bytes per token of the a × s attention scores: the softmax, and with dropout its mask and its result."""
    size = computed(run.precision)
    return run.model.heads * run.sequence * (2 * size + 1 if run.model.dropout else size)
