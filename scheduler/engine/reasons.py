"""Why a job waits: the one ordered table of reasons, read by scenarios, API, CLI and pages alike."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

NAMES_SHOWN = 3


class Reason(StrEnum):
    """The gates in the order in which they are asked; the first that blocks is a job's reason."""

    HELD = "held"
    BACKOFF = "backoff"
    NOT_BEFORE = "not_before"
    IMPOSSIBLE = "impossible"
    QUOTA = "quota"
    MODEL = "model"
    LABELS = "labels"
    TAINTS = "taints"
    UNHEALTHY = "unhealthy"
    EXCLUDED = "excluded"
    HOST = "host"
    STOPPING = "stopping"
    RECLAIM = "reclaim"
    GPUS = "gpus"
    VRAM = "vram"
    FRAGMENTED = "fragmented"
    TOPOLOGY = "topology"
    RESERVED = "reserved"
    TURN = "turn"
    BACKPRESSURE = "backpressure"
    SYNCING = "syncing"


ORDER: tuple[Reason, ...] = tuple(Reason)

BLOCKS_NOBODY: frozenset[Reason] = frozenset(
    {Reason.HELD, Reason.BACKOFF, Reason.NOT_BEFORE, Reason.IMPOSSIBLE, Reason.QUOTA, Reason.MODEL, Reason.LABELS,
     Reason.TAINTS, Reason.UNHEALTHY, Reason.EXCLUDED}
)  # fmt: skip
"""Reasons that no card coming free would end: a job that waits for one of them holds no place in the line."""


class Hold(NamedTuple):
    """A reason with the facts behind it.

    ``template`` is an English sentence with ``{names}``, the key of its translations; ``facts`` fills it in.
    """

    reason: Reason
    template: str
    facts: tuple[tuple[str, object], ...] = ()

    @property
    def message(self) -> str:
        """The sentence people read, in English."""
        return self.template.format(**dict(self.facts))


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def hold(reason: Reason, template: str, **facts: object) -> Hold:
    """Make a :class:`Hold`; ``facts`` are kept in the order given, so that equal holds compare equal."""
    return Hold(reason, template, tuple(facts.items()))
