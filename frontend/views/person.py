"""Pages about whoever reads them, and the help."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from frontend import words
from frontend.views.page import PageRequest, page, show
from rota_client import __version__


@page
def profile(request: PageRequest) -> HttpResponse:
    """Who one is here, the teams one is in, and the settings of one's own."""
    memberships = request.user.memberships.filter(team__archived_at=None).select_related("team").order_by("team__slug")
    return show(request, "pages/profile.html", {"memberships": memberships, "now": timezone.now()})


@page
def tokens(request: PageRequest) -> HttpResponse:
    """The tokens of whoever reads; the browser asks the REST interface for them, so no rule is said twice."""
    scopes = {"read": _("read"), "submit": _("submit jobs"), "manage": _("look after teams")}
    if request.user.is_superuser:
        scopes["admin"] = _("do everything")
    texts = {
        "scopes": scopes,
        "revoke": _("Revoke"),
        "revoked": _("revoked"),
        "sure": _("Revoke this token? What uses it is shut out at once."),
        "none": _("None yet."),
    }
    return show(request, "pages/tokens.html", {"scopes": list(scopes.items()), "texts": texts})


@page
def help_page(request: PageRequest) -> HttpResponse:
    """What the words, colours and reasons mean, and how to submit from elsewhere."""
    return show(
        request,
        "pages/help.html",
        {
            "job_states": words.JOB_STATES,
            "reasons": words.REASONS,
            "node_states": words.NODE_STATES,
            "gpu_states": words.GPU_STATES,
            "version": __version__,
            "address": f"{request.scheme}://{request.get_host()}",
        },
    )
