"""What the estimator promises beside single figures: the two hard rules, directions, layouts, errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.reading import SpecError
from scheduler.estimate.activations import kept_in_layer
from scheduler.estimate.architecture import Architecture, typical
from scheduler.estimate.catalogue import catalogue, known
from scheduler.estimate.formats import Optimizer, Precision
from scheduler.estimate.memory import estimate
from scheduler.estimate.smallest import smallest_setup
from scheduler.estimate.workload import Checkpointing, Inference, Training

SEVENS = ("llama-2-7b", "mistral-7b", "falcon-7b", "qwen2.5-7b")
CARDS = [("RTX4090", 24 * 1024), ("A100", 40 * 1024), ("H100", 80 * 1024)]


@pytest.mark.parametrize("name", SEVENS)
def test_7b_in_fp16_is_served_by_a_card_of_24_gib(name: str) -> None:
    assert estimate(Inference(known(name))).total <= 24 * 1024


@pytest.mark.parametrize("name", SEVENS)
@pytest.mark.parametrize("checkpointing", Checkpointing)
def test_7b_is_not_wholly_trained_with_adam_on_one_card_of_80_gib(name: str, checkpointing: Checkpointing) -> None:
    run = Training(known(name), sequence=512, checkpointing=checkpointing)
    assert estimate(run).total > 80 * 1024


@pytest.mark.parametrize("model", catalogue().values(), ids=lambda model: model.name)
def test_published_counts_are_what_the_fields_give(model: Architecture) -> None:
    assert model.counted_parameters == pytest.approx(model.total_parameters, rel=0.006)
    assert model.source


@pytest.mark.parametrize(("batch", "heads_share"), [(1, 5.0), (4, 5.0)])
def test_a_gpt_layer_keeps_what_the_formula_of_korthikanti_says(batch: int, heads_share: float) -> None:
    model, sequence = known("gpt-3-175b"), 2048
    run = Training(model, batch=batch, sequence=sequence, flash=False)
    expected = sequence * batch * model.hidden * (34 + heads_share * model.heads * sequence / model.hidden)
    assert kept_in_layer(run) == pytest.approx(expected)


def test_tensor_parallelism_alone_repeats_ten_of_the_thirty_four() -> None:
    """Their equation 2: s·b·h·(10 + 24/t + 5·a·s/(h·t))."""
    model = known("gpt-3-175b")
    run = Training(model, gpus=8, tensor=8, sequence=2048, sequence_parallel=False, flash=False)
    per_hidden = 10 + 24 / 8 + 5 * model.heads * 2048 / (model.hidden * 8)
    assert kept_in_layer(run) == pytest.approx(2048 * model.hidden * per_hidden)


def test_selective_checkpointing_drops_the_scores_alone() -> None:
    plain = Training(known("gpt-3-175b"), flash=True)
    selective = Training(known("gpt-3-175b"), flash=False, checkpointing=Checkpointing.SELECTIVE)
    assert kept_in_layer(plain) == kept_in_layer(selective)


def test_optimizers_by_their_bytes() -> None:
    def bytes_of(optimizer: Optimizer, **more: Any) -> float:
        run = Training(known("llama-2-7b"), optimizer=optimizer, **more)
        return estimate(run).optimizer * 2**20 / run.model.total_parameters

    assert bytes_of(Optimizer.ADAMW) == pytest.approx(12, rel=0.001)
    assert bytes_of(Optimizer.ADAMW, precision=Precision.FP32) == pytest.approx(8, rel=0.001)
    assert bytes_of(Optimizer.ADAMW, master=False) == pytest.approx(4, rel=0.001)
    assert bytes_of(Optimizer.ADAM8BIT, master=False) == pytest.approx(2, rel=0.001)
    assert bytes_of(Optimizer.SGD, precision=Precision.FP32) == pytest.approx(4, rel=0.001)
    assert bytes_of(Optimizer.ADAFACTOR, precision=Precision.FP32) < 0.01
    assert bytes_of(Optimizer.NONE) == 0


@given(
    zero=st.integers(0, 2), data=st.sampled_from([2, 4, 8]), batch=st.integers(1, 4),
    sequence=st.sampled_from([128, 2048]), flash=st.booleans(),
)  # fmt: skip
def test_a_higher_stage_and_more_checkpointing_never_cost_states_or_activations(
    zero: int, data: int, batch: int, sequence: int, flash: bool
) -> None:
    model = known("llama-2-70b")

    def at(stage: int, checkpointing: Checkpointing) -> int:
        run = Training(
            model, zero=stage, gpus=data, batch=batch, sequence=sequence, flash=flash, checkpointing=checkpointing
        )
        return estimate(run).total

    assert at(zero + 1, Checkpointing.NONE) < at(zero, Checkpointing.NONE)
    by_checkpointing = [at(zero, each) for each in Checkpointing]
    assert by_checkpointing == sorted(by_checkpointing, reverse=True)


@given(batch=st.integers(1, 64), context=st.integers(1, 32_768))
def test_a_kv_cache_grows_with_requests_and_context_and_with_kv_heads(batch: int, context: int) -> None:
    grouped, whole = known("llama-3-8b"), known("llama-2-7b")
    cache = estimate(Inference(whole, batch=batch, context=context)).kv_cache
    assert estimate(Inference(whole, batch=batch, context=context + 64)).kv_cache > cache
    assert estimate(Inference(grouped, batch=batch, context=context)).kv_cache <= -(-cache // 4) + 1
    halved = Inference(whole, batch=batch, context=context, kv_precision=Precision.FP8)
    assert estimate(halved).kv_cache <= cache / 2 + 1


def test_kv_heads_are_repeated_beyond_their_number() -> None:
    model = known("falcon-7b")  # one head of keys and values, 71 of queries
    with pytest.raises(SpecError, match=r"^tensor: must divide the 71 heads of falcon-7b, 2 does not$"):
        Inference(model, gpus=2, tensor=2)
    narrow = known("starcoder-15b")
    one = estimate(Inference(narrow, batch=64)).kv_cache
    assert estimate(Inference(narrow, batch=64, gpus=8, tensor=8)).kv_cache == one


def test_the_last_stage_of_a_pipeline_may_be_the_fullest() -> None:
    model = known("llama-3-8b")
    run = Training(model, gpus=4, pipeline=4, checkpointing=Checkpointing.FULL, sequence=8192)
    assert estimate(run).activations > 8192 * model.vocab * 12 / 2**20


@pytest.mark.parametrize(
    ("run", "setup"),
    [
        (Inference(known("llama-2-7b")), ("RTX4090", 1, 1, 1)),
        (Inference(known("llama-2-13b")), ("A100", 1, 1, 1)),
        (Inference(known("llama-2-70b")), ("H100", 2, 2, 1)),
        (Inference(known("llama-2-70b"), Precision.INT4), ("A100", 1, 1, 1)),
        (Inference(known("llama-3-405b"), Precision.BF16), ("H100", 16, 8, 2)),
        (Training(known("llama-2-7b"), checkpointing=Checkpointing.FULL), ("H100", 2, 1, 1)),
    ],
)  # fmt: skip
def test_smallest_setup(run: Training | Inference, setup: tuple[str, int, int, int]) -> None:
    found = smallest_setup(run, CARDS)
    assert found is not None
    assert (found.card, found.gpus, found.tensor, found.pipeline) == setup
    assert found.memory.total <= found.vram_mib
    assert found.gpus == found.tensor * found.pipeline * found.data


def test_no_setup_is_a_value() -> None:
    assert smallest_setup(Inference(known("llama-3-405b")), [("P4", 8 * 1024)], most_gpus=8) is None


def test_a_setup_of_training_divides_states_before_weights() -> None:
    found = smallest_setup(Training(known("llama-2-7b"), checkpointing=Checkpointing.FULL), CARDS)
    assert found is not None
    assert (found.zero, found.data) == (3, 2)


@pytest.mark.parametrize("size", [1_500_000_000, 7_000_000_000, 70_000_000_000])
def test_a_model_known_by_size_alone_has_that_size(size: int) -> None:
    model = typical(size)
    assert model.total_parameters == size
    assert model.counted_parameters == pytest.approx(size, rel=0.1)


MODEL = known("llama-2-7b")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Training, {"batch": 0}, "batch: must be from 1 to 1000000, not 0"),
        (Training, {"batch": True}, "batch: must be a whole number, not True"),
        (Training, {"zero": 4}, "zero: must be from 0 to 3, not 4"),
        (Training, {"optimizer": "x"}, "optimizer: must be one of adamw, adam8bit, adafactor, sgd, none, not 'x'"),
        (Training, {"lora": 1.5}, "lora: must be a share above 0 and below 1, not 1.5"),
        (Training, {"precision": Precision.INT4}, "precision: int4 weights are frozen: give lora, or train in bf16"),
        (Training, {"gpus": 6, "tensor": 4}, "gpus: must be a multiple of tensor × pipeline = 4, 6 is not"),
        (Training, {"pipeline": 33, "gpus": 33}, "pipeline: must be at most the 32 layers of llama-2-7b, not 33"),
        (Inference, {"gpus": 4, "tensor": 2}, "gpus: must be tensor × pipeline = 2, not 4"),
        (Inference, {"context": 0}, "context: must be from 1 to 100000000, not 0"),
        (Inference, {"precision": "fp9"}, "precision: must be one of fp32, bf16, fp16, fp8, int8, int4, not 'fp9'"),
    ],
)  # fmt: skip
def test_errors_name_the_field(kind: type[Training | Inference], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        kind(MODEL, **fields)
    assert str(caught.value) == message


def test_unknown_models_and_cards_are_named() -> None:
    with pytest.raises(SpecError, match=r"^model: 'llama-7b' is not known; try llama-2-7b"):
        known("llama-7b")
    with pytest.raises(SpecError, match=r"^cards: must name at least one card$"):
        smallest_setup(Inference(MODEL), [])
    with pytest.raises(SpecError, match=r"^cards\.H100: must be from 1 to"):
        smallest_setup(Inference(MODEL), [("H100", 0)])
    with pytest.raises(SpecError, match=r"^heads: must divide hidden \(10\), 3 does not$"):
        Architecture("x", 1, 10, 3, 1, 4, 4)
