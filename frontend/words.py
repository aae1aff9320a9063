"""What states, reasons, events and sentences of the rest of Rota are called on the pages, and how they look.

The engine and the state machine speak English and know no Django. Their sentences are listed in `sentences.py`; here
they are found again by their template and said in the language of whoever reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_noop, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from frontend.sentences import SENTENCES, WORDS


class Look(NamedTuple):
    """The name of a state, the colour (of Tabler) and the icon that always go with it, and what it means."""

    title: str | Promise
    colour: str
    icon: str
    meaning: str | Promise = ""


JOB_STATES: Mapping[str, Look] = {
    "queued": Look(pgettext_lazy("job", "waiting"), "yellow", "hourglass"),
    "held": Look(pgettext_lazy("job", "held"), "purple", "player-pause"),
    "starting": Look(pgettext_lazy("job", "starting"), "cyan", "rocket"),
    "running": Look(pgettext_lazy("job", "running"), "blue", "player-play"),
    "stopping": Look(pgettext_lazy("job", "stopping"), "orange", "player-stop"),
    "succeeded": Look(pgettext_lazy("job", "succeeded"), "green", "circle-check"),
    "failed": Look(pgettext_lazy("job", "failed"), "red", "circle-x"),
    "cancelled": Look(pgettext_lazy("job", "cancelled"), "secondary", "ban"),
    "rejected": Look(pgettext_lazy("job", "rejected"), "red", "ban"),
}

REASONS: Mapping[str, Look] = {
    "held": Look(pgettext_lazy("job", "held"), "purple", "player-pause", _("Somebody has to release it.")),
    "backoff": Look(_("pause after a failure"), "orange", "clock-pause", _("It is tried again by itself.")),
    "not_before": Look(_("not yet"), "azure", "calendar-time", _("It waits for a time or for other jobs.")),
    "impossible": Look(
        _("impossible"), "red", "ban", _("Nothing that ends will help: ask for less, or for another cluster.")
    ),
    "quota": Look(
        _("quota"), "orange", "gauge", _("Its team holds as much as it may. It starts when some of it ends.")
    ),
    "model": Look(_("no such GPU"), "red", "cpu", _("No node has the GPU that it asks for.")),
    "labels": Look(_("labels"), "orange", "tag", _("Too few nodes have the labels that it asks for.")),
    "taints": Look(
        _("taints"), "orange", "shield", _("The nodes that fit keep out what does not tolerate their taints.")
    ),
    "unhealthy": Look(
        _("nodes out of service"), "red", "alert-triangle", _("It fits only on nodes that are out of service.")
    ),
    "excluded": Look(_("nodes excluded"), "orange", "ban", _("It failed on the nodes that would fit.")),
    "host": Look(_("CPU or memory"), "yellow", "server", _("GPUs are free, but not with so much CPU or host memory.")),
    "stopping": Look(_("others are stopping"), "cyan", "player-stop", _("GPUs are being freed for it.")),
    "reclaim": Look(_("loan called back"), "cyan", "history", _("GPUs on loan are being taken back for it.")),
    "gpus": Look(_("too few GPUs free"), "yellow", "cpu", _("It starts when enough GPUs are free.")),
    "vram": Look(_("too little GPU memory"), "yellow", "database", _("No GPU has so much memory left.")),
    "fragmented": Look(_("fragmented"), "pink", "puzzle", _("Enough GPUs are free, but not side by side.")),
    "topology": Look(_("topology"), "pink", "sitemap", _("Enough GPUs are free, but not as near as it asks for.")),
    "reserved": Look(_("reserved"), "azure", "pin", _("The free GPUs are kept for a job that goes first.")),
    "turn": Look(_("others go first"), "yellow", "list-details", _("Jobs before it in the queue get the free GPUs.")),
    "backpressure": Look(_("many are starting"), "cyan", "hourglass", _("Starts are spread over time.")),
    "syncing": Look(
        _("cluster is being read"), "cyan", "refresh", _("Nothing starts before it has been read completely.")
    ),
}

NODE_STATES: Mapping[str, Look] = {
    "ready": Look(pgettext_lazy("node", "ready"), "green", "circle-check", _("takes new work")),
    "cordoned": Look(pgettext_lazy("node", "cordoned"), "purple", "ban", _("keeps its work, takes no new work")),
    "draining": Look(pgettext_lazy("node", "draining"), "orange", "hourglass", _("its work is moved away")),
    "down": Look(pgettext_lazy("node", "down"), "red", "circle-x", _("not reached")),
    "syncing": Look(pgettext_lazy("node", "syncing"), "cyan", "refresh", _("is being read")),
}

# The order is that of the bytes of a map (frontend.selectors.gpumap), which the browser draws by these names.
GPU_STATES: Mapping[str, Look] = {
    "free": Look(pgettext_lazy("GPU", "free"), "free", "circle"),
    "shared": Look(pgettext_lazy("GPU", "shared"), "azure", "circle-dotted"),
    "held": Look(pgettext_lazy("GPU", "held"), "blue", "circle-check"),
    "suspect": Look(pgettext_lazy("GPU", "suspect"), "yellow", "alert-triangle"),
    "out": Look(pgettext_lazy("GPU", "out of service"), "red", "circle-x"),
    "unknown": Look(pgettext_lazy("GPU", "unknown"), "secondary", "help"),
    "cordoned": Look(pgettext_lazy("GPU", "cordoned"), "purple", "ban"),
    "down": Look(pgettext_lazy("GPU", "node down"), "dark", "circle-x"),
}

ENDS: Mapping[str, str | Promise] = {
    "completed": _("completed"),
    "failed": _("failed"),
    "preempted": _("preempted by a higher priority"),
    "reclaimed": _("loan taken back"),
    "evicted": _("moved away"),
    "hung": _("hung"),
    "idle": _("held GPUs without use"),
    "time_limit": _("reached its time limit"),
    "cancelled": _("cancelled"),
    "lost": _("lost"),
}

EVENTS: Mapping[str, Look] = {
    "submit": Look(_("submitted"), "secondary", "plus"),
    "reject": Look(_("rejected"), "red", "ban"),
    "place": Look(_("placed"), "cyan", "rocket"),
    "run": Look(_("started running"), "blue", "player-play"),
    "preempt": Look(_("preempted"), "orange", "arrow-up"),
    "reclaim": Look(_("loan called back"), "orange", "history"),
    "evict": Look(_("moved away"), "orange", "logout"),
    "hang": Look(_("hung"), "red", "clock-pause"),
    "idle": Look(_("idle"), "orange", "clock-pause"),
    "time_limit": Look(_("reached its time limit"), "red", "clock"),
    "cancel": Look(_("cancelled"), "secondary", "ban"),
    "succeed": Look(_("succeeded"), "green", "circle-check"),
    "fail": Look(_("failed"), "red", "circle-x"),
    "requeue": Look(_("back in the queue"), "yellow", "rotate-clockwise"),
    "stopped": Look(_("stopped"), "secondary", "player-stop"),
    "hold": Look(pgettext_lazy("job", "held"), "purple", "player-pause"),
    "release": Look(_("released"), "azure", "player-play"),
    "expire": Look(_("waited too long"), "red", "hourglass"),
}

ACTORS: Mapping[str, str | Promise] = {
    "user": _("user"),
    "lead": _("team lead"),
    "admin": _("administrator"),
    "engine": _("scheduler"),
    "backend": _("cluster"),
    "health": _("health watch"),
    "driver": _("scheduler"),
}


def sentence(template: str, facts: Mapping[str, object]) -> str:
    """A sentence of the engine in the reader's language; words among the facts are translated too."""
    try:
        return gettext(template).format(**{name: word(value) for name, value in facts.items()})
    except (KeyError, ValueError, IndexError):
        return template


def word(value: object) -> object:
    """A fact as the reader says it: the few English words that stand among numbers and names."""
    return gettext(value) if isinstance(value, str) and value in WORDS else value


def said(text: str) -> str:
    """A stored English sentence in the reader's language, where its template is known; else as it is."""
    if (found := _said(text)) is not None:
        return found
    head, colon, note = text.partition(": ")  # a verdict with the backend's own word behind it
    if colon and (found := _said(head)) is not None:
        return f"{found}: {_said(note) or note}"
    return text


def refused(message: str, path: str = "") -> str:
    """Why something was refused, in the reader's language; ``path``, which may stand before it, stays as it is."""
    rest = message.removeprefix(f"{path}: ")
    return f"{path}: {said(rest)}" if path and rest != message else said(message)


def _said(text: str) -> str | None:
    for template in SENTENCES:
        if found := _pattern(template).fullmatch(text):
            facts = {name: word(value) for name, value in found.groupdict().items()}
            return gettext(template).replace(":g}", "}").format(**facts)
    return None


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)(?::g)?\}", template)
    pattern = "".join(f"(?P<{part}>(?:(?!: ).)+?)" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
    return re.compile(pattern, re.DOTALL)


def look(looks: Mapping[str, Look], key: str) -> Look:
    """How ``key`` looks; one that has no look yet is shown by its own name rather than not at all."""
    return looks.get(key) or Look(gettext_noop(key), "secondary", "circle-dotted")
