"""How much a team has had: GPU time that fades, and the cards it holds at this moment."""

from quotas.limits import NANO
from scheduler.engine.snapshot import Use

HELD_COUNTS_FOR = 3_600.0
"""Seconds for which a card held right now counts in advance, so that starts of one cycle take turns."""


def settle(use: Use, held: float, now: float, half_life: float) -> Use:
    """Use at ``now``, ``held`` GPUs having been held since ``use.at``.

    Solves u' = held − u·ln 2 / half_life, the continuous form of the decayed usage of Slurm's multifactor priority
    (https://slurm.schedmd.com/priority_multifactor.html#fairshare).
    """
    elapsed = max(0.0, now - use.at)
    keep = 0.5 ** (elapsed / half_life)
    level = held * half_life / 0.6931471805599453
    return Use(use.gpu_seconds * keep + level * (1 - keep), now)


def standing(use: Use, held_nano: int, weight: float, now: float, half_life: float) -> float:
    """A team's place under the fair discipline, least first: decayed GPU-seconds per weight, held cards included."""
    held = held_nano / NANO
    return (settle(use, held, now, half_life).gpu_seconds + held * HELD_COUNTS_FOR) / weight
