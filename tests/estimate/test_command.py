"""`rota estimate` as people and programs call it."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from typer.testing import CliRunner

from rota_client import cli

WORDS = {"estimate": EntryPoint("estimate", "scheduler.estimate_command:estimate", cli.GROUP)}


def call(text: str) -> tuple[int, str]:
    """Return exit status and output of `rota estimate TEXT`."""
    arguments = ["estimate", *text.split()]
    result = CliRunner().invoke(cli.build(arguments, WORDS), arguments)
    return result.exit_code, result.output


def answer(text: str) -> dict[str, Any]:
    status, output = call(f"{text} -o json")
    assert status == 0, output
    found: dict[str, Any] = json.loads(output)
    return found


def test_a_training_as_a_table() -> None:
    status, output = call(
        "--model llama-2-7b --task training --optimizer adamw --zero 3 --gpus 8 --batch 1 --sequence 4096"
    )
    assert status == 0
    lines = {line.strip().rsplit("  ", 1)[0].strip() for line in output.splitlines()}
    assert {"weights", "gradients", "optimizer", "activations", "fragmentation", "overhead", "total"} <= lines
    assert output.splitlines()[0] == "llama-2-7b, 6.74B parameters, on each of 8 GPU"
    assert output.splitlines()[-1].startswith("smallest setup: 1 × H200 (tensor 1, pipeline 1, data 1; ")


def test_json_holds_the_parts_and_their_sums() -> None:
    mib = answer("--model llama-2-7b --gpus 2 --batch 8 --sequence 2048")["mib"]
    parts = ("weights", "gradients", "optimizer", "activations", "kv_cache")
    assert sum(mib[part] for part in parts) == mib["allocated"]
    assert mib["allocated"] + mib["fragmentation"] == mib["reserved"]
    assert mib["reserved"] + mib["overhead"] == mib["total"]
    assert mib["kv_cache"] == 8 * 2048 // 4  # 512 KiB a token, halved by tensor parallelism over both


def test_the_smallest_setup_is_looked_for_among_the_cards_that_are_named() -> None:
    assert answer("--model llama-2-7b --card H100:80 --card T4:16")["smallest"]["card"] == "T4"
    assert answer("--model llama-3-405b --card P4:0.5")["smallest"] is None


def test_a_model_may_be_known_by_its_size_alone() -> None:
    assert answer("--parameters 7B")["mib"]["weights"] == pytest.approx(7e9 * 2 / 2**20, rel=0.001)
    assert answer("--parameters 350m")["model"] == "0.35B"


def test_the_known_models_are_listed() -> None:
    status, output = call("--model list")
    assert status == 0
    assert "llama-2-7b" in output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "model: give either --model or --parameters"),
        ("--parameters seven", "parameters: must be a number such as 7B or 350M, not 'seven'"),
        ("--model gpt2 --task dance", "task: must be training or inference, not 'dance'"),
        ("--model gpt2 --task training --zero 9", "zero: must be from 0 to 3, not 9"),
        ("--model gpt2 --gpus 0", "gpus: must be from 1 to 1000000, not 0"),
        ("--model gpt2 --card H100", "card: must be MODEL:GIB such as H100:80, not 'H100'"),
        ("--model gpt2 -o yaml", "output: must be table or json, not 'yaml'"),
        ("--model gpt2 --precision fp5", "precision: must be one of fp32, bf16, fp16, fp8, int8, int4, not 'fp5'"),
    ],
)
def test_bad_usage_is_one_line_that_names_the_field(text: str, problem: str) -> None:
    assert call(text) == (2, f"rota estimate: {problem}\n")


def test_neither_numpy_nor_a_server_is_loaded() -> None:
    script = "import sys, scheduler.estimate_command; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert {"django", "numpy", "rest_framework", "httpx"}.isdisjoint(loaded)
