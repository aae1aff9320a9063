"""The English sentences that the rest of Rota stores, so that the pages can say them in other languages.

A test compares them with the sources: one that is missing here fails the build.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

HOLDS: tuple[str, ...] = (
    # scheduler/engine/gates.py
    _("held: {why}"),
    _("its last attempt failed; it is tried again at {at}"),
    _("not to start before {at}"),
    _("waits for other jobs: {jobs}"),
    # scheduler/engine/cycle.py
    _("the cluster has not been looked at completely yet"),
    # scheduler/engine/feasibility.py
    _("may not use {names} again, and no other node could hold it"),
    _("{gone} of the {total} nodes that fit are out of service{names}, and {cards} more cards"),
    _("{having} of the {total} nodes with {what} have the labels {labels}"),
    _("{shut} of the {total} nodes that fit have taints it does not tolerate: {taints}"),
    _("no node has {what}"),
    _("needs {need} GiB on each card, no {what} has more than {most} GiB for it"),
    _("one replica needs {need:g} {unit}, the largest node has {largest:g}"),
    _("needs {need} {what}{parts}, the cluster has {have}"),
    _("does not fit on the {nodes} nodes with {what} even when they are empty"),
    # scheduler/engine/throttle.py
    _("{starting} jobs are starting, the limit is {limit}"),
    _("{started} jobs started in the last minute, the limit is {limit}"),
    _("{started} jobs of {team} started in the last minute, the limit is {limit}"),
    # scheduler/engine/explain.py
    _("needs {need:g} {what}{parts}, {team} may never hold more than {limit:g}"),
    _("{team} holds {used:g} of its limit of {limit:g} {what}, this job needs {need:g}"),
    _("{ahead} of {team} goes first"),
    _("others go first"),
    _("a replica needs {need:g} {short}, the most free on one of {nodes} nodes is {best:g}"),
    _("needs {need} {what}{parts}, {free} of {total} are free"),
    _("needs {need} × {mib} MiB, {room} fit: the most left on one card is {most} MiB"),
    _("{free} {what} are free, not {replicas} × {gpus} together: the most on one node is {most}"),
)
"""Templates of :class:`scheduler.engine.reasons.Hold`."""

VERDICTS: tuple[str, ...] = (
    # platform/jobs/states.py
    _("it completed"),
    _("it reached its time limit"),
    _("it was cancelled"),
    _("it held cards that it did not use"),
    _("a job of higher priority took its cards"),
    _("its cards were on loan and were taken back"),
    _("the infrastructure ended it {count} times in a row"),
    _("it was {end} through no fault of its own"),
    _("it hung, and its {allowed} retries are used up"),
    _("it failed, and its {allowed} retries are used up"),
    _("it hung, retry {own} of {allowed}"),
    _("it failed, retry {own} of {allowed}"),
)
"""What becomes of a job at the end of an attempt, with names for its numbers."""

SENTENCES: tuple[str, ...] = (*HOLDS, *VERDICTS)

WORDS: frozenset[str] = frozenset({_("GPUs"), _("CPUs"), _("GiB of host memory"), _("lost"), _("evicted")})
"""English words that stand among the facts."""
