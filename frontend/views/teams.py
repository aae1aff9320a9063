"""The tree of teams, and one team: who is in it, what it may have and what it uses."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from frontend.selectors.joblist import PAGE, page_of
from frontend.selectors.teamtree import members_of, tree_for
from frontend.selectors.waits import waits_of
from frontend.views.page import PageRequest, attempt, page, show
from jobs.selectors import visible_to
from quotas.models import TeamQuota
from teams import services
from teams.models import Role, Team, User
from teams.permissions import may_lead_team, may_see_team
from teams.problems import Invalid
from teams.selectors import live_teams, standing_of

JOBS_SHOWN = 10


@page
def team_list(request: PageRequest) -> HttpResponse:
    """The tree; posted to, which is for admins, it makes a user and shows the one-time password, this once."""
    made = _add_person(request) if request.method == "POST" else None
    return show(request, "pages/teams.html", {"branches": tree_for(request.user, timezone.now()), "made": made})


@page
def team_page(request: PageRequest, slug: str) -> HttpResponse:
    """One team."""
    now, team = timezone.now(), _team(request, slug)
    branch = next((branch for branch in tree_for(request.user, now) if branch.team.pk == team.pk), None)
    jobs = page_of(visible_to(request.user).filter(team=team), size=min(JOBS_SHOWN, PAGE)).jobs
    waits = waits_of(jobs, now)
    return show(
        request,
        "pages/team.html",
        {
            "team": team,
            "branch": branch,
            "now": now,
            "members": members_of(team),
            "roles": Role.choices,
            "leads": may_lead_team(standing_of(request.user), team.pk),
            "quotas": TeamQuota.objects.filter(team=team).select_related("cluster").order_by("cluster__slug", "model"),
            "rows": [{"job": job, "wait": waits.get(job.pk)} for job in jobs],
        },
    )


@page
@require_POST
def team_create(request: PageRequest) -> HttpResponse:
    """Make a team; for admins."""
    parent = live_teams().filter(slug=request.POST.get("parent", "")).first()
    name, slug = request.POST.get("name", "").strip(), request.POST.get("slug", "").strip()
    done = _("The team %(team)s was made.") % {"team": name}
    attempt(request, lambda: services.create_team(author=request.user, name=name, slug=slug, parent=parent), done)
    return redirect("teams")


@page
@require_POST
def member(request: PageRequest, slug: str) -> HttpResponse:
    """Let somebody into a team, change a role, or take somebody out; for leads."""
    team = _team(request, slug)
    username = request.POST.get("user", "").strip()

    def change() -> None:
        user = User.objects.filter(username=username, is_active=True).first()
        if user is None:
            raise Invalid("invalid", f"user: there is no user {username}", field="user")
        if request.POST.get("remove"):
            services.remove_member(author=request.user, team=team, user=user)
        else:
            role, until = request.POST.get("role", Role.MEMBER), _until(request.POST.get("until", ""))
            services.add_member(author=request.user, team=team, user=user, role=role, until=until)

    said = _("%(user)s is no longer in the team.") if request.POST.get("remove") else _("%(user)s is in the team.")
    attempt(request, change, said % {"user": username})
    return redirect("team", slug)


def _add_person(request: PageRequest) -> dict[str, str] | None:
    """The name and the one-time password of a new user; None where it was refused, which is said in a message."""
    made: dict[str, str] = {}

    def make() -> None:
        user, password = services.create_user(
            author=request.user, username=request.POST.get("username", ""), name=request.POST.get("full_name", ""),
            email=request.POST.get("email", ""), admin=request.POST.get("admin") == "on",
        )  # fmt: skip
        made.update(username=user.get_username(), password=password)

    done = _("The user %(user)s was made.") % {"user": request.POST.get("username", "").strip()}
    return made if attempt(request, make, done) else None


def _team(request: PageRequest, slug: str) -> Team:
    team = get_object_or_404(live_teams().select_related("parent"), slug=slug)
    if not may_see_team(standing_of(request.user), team.pk):
        raise Http404
    return team


def _until(text: str) -> datetime | None:
    """The end of a day, from ``2026-12-31``; nothing: for ever."""
    if not text:
        return None
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("invalid", "until: must be a date such as 2026-12-31", field="until") from None
    moment = day.replace(hour=23, minute=59, second=59) if day.tzinfo is None else day.astimezone(UTC)
    return moment if day.tzinfo else timezone.make_aware(moment)
