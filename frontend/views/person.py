"""Pages about whoever reads them, and the help."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils import timezone

from frontend import words
from frontend.views.page import PageRequest, page, show
from rota_client import __version__


@page
def profile(request: PageRequest) -> HttpResponse:
    """Who one is here, the teams one is in, and the settings of one's own."""
    memberships = request.user.memberships.filter(team__archived_at=None).select_related("team").order_by("team__slug")
    return show(request, "pages/profile.html", {"memberships": memberships, "now": timezone.now()})


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
