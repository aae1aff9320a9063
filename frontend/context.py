"""What every page is given: where one can go, and the words that the browser needs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import Resolver404, resolve, reverse
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from frontend import clock
from frontend.consumers import LIVE_PATH

NAVIGATION = (
    ("dashboard", _("Dashboard"), "dashboard", frozenset[str]()),
    ("jobs", _("Jobs"), "list-details", frozenset({"job"})),
    ("queue", _("Queue"), "hourglass", frozenset[str]()),
    ("clusters", _("Clusters"), "layout-grid", frozenset({"cluster"})),
    ("nodes", _("Nodes"), "server-2", frozenset({"node"})),
    ("teams", _("Teams"), "users-group", frozenset({"team"})),
    ("events", _("Events"), "history", frozenset[str]()),
    ("help", _("Help"), "help", frozenset[str]()),
)


def pages(request: HttpRequest) -> dict[str, Any]:
    """The menu with the present page marked, and the browser's configuration."""
    here = _name(request)
    navigation = [
        {"url": reverse(name), "title": title, "icon": icon, "active": here == name or here in below}
        for name, title, icon, below in NAVIGATION
    ]
    return {
        "navigation": navigation,
        "submit_allowed": here != "submit",
        "page_config": {
            "language": get_language(),
            "time": clock.patterns(),
            "socket": LIVE_PATH,
            "words": _words(),
        },
    }


def _name(request: HttpRequest) -> str:
    try:
        return (request.resolver_match or resolve(request.path)).url_name or ""
    except Resolver404:
        return ""


def _words() -> dict[str, str]:
    return {
        "back": gettext("Back"),
        "live": gettext("live"),
        "connecting": gettext("connecting"),
        "offline": gettext("offline, trying again"),
        "paused": gettext("paused"),
        "copied": gettext("Copied"),
        "follow": gettext("Follow"),
        "pause": gettext("Pause"),
        "log_ended": gettext("The output ends here."),
        "log_empty": gettext("No output yet."),
        "log_failed": gettext("The output cannot be read at the moment; trying again."),
        "log_gap": gettext("Older output has been dropped."),
        "held": gettext("GPUs held"),
        "total": gettext("GPUs in all"),
        "running": gettext("Jobs running"),
        "waiting": gettext("Jobs waiting"),
        "map": gettext("Map of GPUs"),
    }
