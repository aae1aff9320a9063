"""What the demo's teams are and what they run. Values and pure functions: the dice are an argument."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.backends.virtual import DURATION_LABEL, EXIT_LABEL

SLUG, NAME = "simulated", "Demo cluster (simulated)"
H100, A100, L40S = "H100-80G", "A100-40G", "L40S-48G"
CONFIG: Mapping[str, Any] = {
    "demo": True,
    "nodes": [
        {"prefix": "h", "count": 32, "gpus": 8, "model": H100, "gpu_gib": 80, "cpus": 192, "memory_gib": 2048},
        {"prefix": "a", "count": 24, "gpus": 8, "model": A100, "gpu_gib": 40, "cpus": 128, "memory_gib": 1024},
        {"prefix": "l", "count": 8, "gpus": 8, "model": L40S, "gpu_gib": 48, "cpus": 96, "memory_gib": 512},
    ],
    "launch_delay": 4,
    "stop_delay": 3,
}
"""64 nodes of 8 cards."""


@dataclass(frozen=True, slots=True)
class DemoTeam:
    """A team, its share, and its numbers by GPU model: (guaranteed, limit)."""

    slug: str
    name: str
    weight: float
    quotas: Mapping[str, tuple[int, int | None]]


TEAMS = (
    DemoTeam("language", "Language models", 3, {H100: (128, 208), A100: (48, 120)}),
    DemoTeam("vision", "Computer vision", 2, {H100: (64, 128), A100: (64, 128)}),
    DemoTeam("speech", "Speech", 1, {A100: (48, 80), L40S: (16, 32)}),
    DemoTeam("robotics", "Robotics", 1, {H100: (32, 64), L40S: (24, 48)}),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One sort of job. ``minutes``: the shortest and the longest; ``fails``: how many of 100 fail."""

    team: str
    name: str
    model: str
    gpus: int
    minutes: tuple[float, float]
    replicas: int = 1
    weight: int = 10
    priority: str = "normal"
    fails: int = 4
    more: Mapping[str, Any] = field(default_factory=dict)


RECIPES = (
    Recipe("language", "llama-8b-pretrain-{n}", H100, 8, (25, 60), replicas=4, weight=4, more={"retries": 2}),
    Recipe("language", "qwen-sft-{n}", H100, 8, (12, 35), replicas=2, weight=8),
    Recipe("language", "dpo-reward-{n}", H100, 4, (8, 25)),
    Recipe("language", "tokenizer-ablation-{n}", A100, 2, (4, 15), fails=10),
    Recipe("language", "eval-harness-{n}", A100, 1, (2, 8), weight=20, priority="high"),
    Recipe("language", "longctx-128k-{n}", H100, 8, (30, 70), replicas=8, weight=1, priority="high",
           more={"topology": {"prefer": "rack"}}),
    Recipe("vision", "vit-h-imagenet-{n}", H100, 8, (15, 45), replicas=2, weight=6),
    Recipe("vision", "detr-sweep-{n}", A100, 4, (8, 25), weight=14, fails=8),
    Recipe("vision", "diffusion-lora-{n}", A100, 2, (5, 20), weight=16),
    Recipe("vision", "segment-finetune-{n}", H100, 2, (8, 20), weight=12),
    Recipe("vision", "video-mae-{n}", A100, 8, (20, 50), replicas=2, weight=4, priority="low"),
    Recipe("vision", "notebook-{n}", A100, 1, (10, 40), weight=6, fails=0, more={"kind": "interactive"}),
    Recipe("speech", "whisper-finetune-{n}", A100, 8, (15, 40), weight=8),
    Recipe("speech", "tts-vocoder-{n}", L40S, 4, (8, 25), weight=10),
    Recipe("speech", "asr-decode-{n}", L40S, 1, (2, 10), weight=16, more={"share": True, "vram_gib": 20}),
    Recipe("speech", "wav2vec-pretrain-{n}", A100, 8, (25, 55), replicas=4, weight=3, fails=10, more={"retries": 1}),
    Recipe("robotics", "policy-ppo-{n}", L40S, 2, (6, 20), weight=16, fails=10),
    Recipe("robotics", "sim2real-{n}", L40S, 8, (12, 30), weight=6),
    Recipe("robotics", "world-model-{n}", H100, 8, (20, 45), replicas=2, weight=5),
    Recipe("robotics", "nightly-regression-{n}", L40S, 4, (10, 20), weight=4, priority="low",
           more={"not_before": "20m"}),
)  # fmt: skip


def draw_recipe(dice: random.Random, hungry: Mapping[str, float]) -> Recipe:
    """A recipe by its weight; ``hungry`` (0 to 1) is how much each model's pool wants for work."""
    weights = [recipe.weight * (0.05 + hungry.get(recipe.model, 0.0)) for recipe in RECIPES]
    return dice.choices(RECIPES, weights)[0]


def body_of(recipe: Recipe, number: int, dice: random.Random, *, begun: float = 0.0) -> dict[str, Any]:
    """A job of this recipe as its team would submit it; ``begun`` (0 to 1): how much of its work is done already."""
    shortest, longest = recipe.minutes
    seconds = 60 * dice.uniform(shortest, longest) * (1.0 - begun)
    fails = dice.randrange(100) < recipe.fails
    labels = {DURATION_LABEL: str(max(20, round(seconds * (dice.uniform(0.1, 0.6) if fails else 1.0))))}
    if fails:
        labels[EXIT_LABEL] = str(dice.choice((1, 1, 1, 137)))
    return {
        "name": recipe.name.format(n=number),
        "gpus": recipe.gpus,
        "replicas": recipe.replicas,
        "model": recipe.model,
        "priority": recipe.priority,
        "time_limit": f"{round(longest * 1.5)}m",
        "cpus": recipe.gpus * 4,
        "memory_gib": recipe.gpus * 32,
        "retries": 0,
        "command": ["python", "train.py", "--config", f"{recipe.name.removesuffix('-{n}')}.yaml"],
        "labels": labels,
        **recipe.more,
    }
