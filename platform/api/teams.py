"""Teams: the tree, who is in it, making, renaming, draining and archiving."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from api.etags import answer, require_match
from api.jobs import IF_NONE_MATCH
from api.parsing import body_of
from api.scopes import Scope
from api.views import NAME, SLUG, Resource, StrictSerializer, parsed
from jobs.models import LIVE_STATES, WAITING_STATES
from jobs.services import archive_team
from teams import services
from teams.models import Membership, Role, Team, TeamState, User
from teams.permissions import may_see_team
from teams.problems import Invalid, NotFound
from teams.selectors import live_teams

IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="412 where it is no longer so.")
MODES = ("", "drain")


class TeamSerializer(serializers.ModelSerializer[Team]):
    """A team."""

    parent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)  # type: ignore[assignment]
    state = serializers.SerializerMethodField()
    running = serializers.IntegerField(help_text="Jobs that hold cards.")
    pending = serializers.IntegerField(help_text="Jobs that wait.")

    class Meta:
        model = Team
        fields = (
            "id", "slug", "name", "parent", "weight", "state", "running", "pending", "created_at", "archived_at"
        )  # fmt: skip

    def get_state(self, team: Team) -> str:
        """`open`, `draining` or `archived`."""
        return "archived" if team.archived_at else team.state


class BranchSerializer(serializers.Serializer[Any]):
    """A team with those below it."""

    slug = serializers.CharField()
    name = serializers.CharField()
    weight = serializers.FloatField()
    state = serializers.ChoiceField(TeamState.choices)
    teams = serializers.ListField(child=serializers.DictField(), help_text="Those below it, of the same form.")


class NewTeamSerializer(StrictSerializer):
    """A team to make."""

    name = serializers.CharField(max_length=200)
    slug = serializers.CharField(max_length=63, required=False, help_text="Default: made of the name.")
    parent = serializers.CharField(max_length=63, required=False, allow_null=True, default=None)  # type: ignore[assignment]
    weight = serializers.FloatField(required=False, default=1.0, min_value=0.001, max_value=1e6)
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")


class TeamChangeSerializer(StrictSerializer):
    """What is to be different about a team."""

    name = serializers.CharField(max_length=200, required=False)
    slug = serializers.CharField(max_length=63, required=False)
    weight = serializers.FloatField(required=False, min_value=0.001, max_value=1e6)
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A user in a team."""

    user = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)

    class Meta:
        model = Membership
        fields = ("user", "role", "until", "created_at")


class NewMemberSerializer(StrictSerializer):
    """A user to let into a team, or a membership to change."""

    user = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(Role.choices, default=Role.MEMBER)
    until = serializers.DateTimeField(allow_null=True, default=None)


class TeamViewSet(Resource):
    """The teams that one belongs to, leads, or, as an admin, all."""

    queryset = Team.objects.none()
    serializer_class = TeamSerializer
    lookup_field = "slug"
    lookup_value_regex = SLUG
    scopes = dict.fromkeys(("create", "partial_update", "destroy", "members", "member"), Scope.MANAGE) | {
        "list_members": Scope.READ
    }

    def get_queryset(self) -> QuerySet[Team]:
        """Those that whoever asks may see, archived ones too, with the numbers of their jobs."""
        standing = self.standing
        teams = Team.objects.select_related("parent").order_by("slug", "id").annotate(
            running=Count("jobs", filter=Q(jobs__state__in=LIVE_STATES)),
            pending=Count("jobs", filter=Q(jobs__state__in=WAITING_STATES)),
        )  # fmt: skip
        return teams if standing.admin else teams.filter(id__in=standing.member | standing.lead)

    @extend_schema(
        summary="List teams",
        parameters=[OpenApiParameter("archived", bool, description="Those that are archived, instead.")],
    )
    def list(self, request: Request) -> Response:
        """A page of teams by their slugs."""
        archived = request.query_params.get("archived", "").lower() in ("true", "1")
        return self.page(self.get_queryset().filter(archived_at__isnull=not archived), request, TeamSerializer)

    @extend_schema(summary="The teams as a tree", responses=BranchSerializer(many=True))
    @action(detail=False, url_path="_tree", pagination_class=None)  # no slug looks like that
    def tree(self, request: Request) -> Response:
        """Each with those below it; one whose parent one does not see stands at the top."""
        rows = [team for team in live_teams() if may_see_team(self.standing, team.pk)]
        branches = {
            team.pk: {"slug": team.slug, "name": team.name, "weight": team.weight, "state": team.state, "teams": []}
            for team in rows
        }
        top: list[Any] = []
        for team in rows:
            parent: Any = branches.get(team.parent_id or 0)
            (parent["teams"] if parent else top).append(branches[team.pk])
        return Response(top)

    @extend_schema(summary="Make a team", request=NewTeamSerializer, responses={201: TeamSerializer})
    def create(self, request: Request) -> Response:
        """For admins."""
        said = parsed(NewTeamSerializer, body_of(request))
        parent = None if said["parent"] is None else self._team(said["parent"], field="parent")
        team = services.create_team(
            author=self.user, name=said["name"], slug=said.get("slug", ""), parent=parent, weight=said["weight"],
            reason=said["why"],
        )  # fmt: skip
        return answer(request, self._data(team.slug), status=201, headers={"Location": f"/api/v1/teams/{team.slug}/"})

    @extend_schema(summary="Look at a team", parameters=[IF_NONE_MATCH])
    def retrieve(self, request: Request, slug: str) -> Response:
        """One team that is not archived."""
        return answer(request, self._data(slug))

    @extend_schema(
        summary="Rename a team, or change its weight", request=TeamChangeSerializer, responses=TeamSerializer,
        parameters=[IF_MATCH],
    )  # fmt: skip
    def partial_update(self, request: Request, slug: str) -> Response:
        """For admins. Its jobs and its history stay."""
        said = parsed(TeamChangeSerializer, body_of(request))
        why = said.pop("why")
        with transaction.atomic():
            team = self._team(slug)
            services.lock_team(team.pk, exclusive=True)
            require_match(request, self._data(slug))
            team = services.change_team(author=self.user, team=team, reason=why, **said)
            data = self._data(team.slug)
        return answer(request, data)

    @extend_schema(
        summary="Archive a team",
        parameters=[
            OpenApiParameter("mode", str, enum=["drain"], description="Cancel what waits, let finish what runs."),
            OpenApiParameter("why", str, description="For people, and kept."),
            IF_MATCH,
        ],
        responses={
            204: OpenApiResponse(description="It is archived."),
            202: OpenApiResponse(TeamSerializer, "It is archived as soon as its last job has ended."),
        },
    )
    def destroy(self, request: Request, slug: str) -> Response:
        """For admins. With jobs that have not ended it is refused, unless `mode=drain`; with teams below it, always."""
        mode, why = (request.query_params.get(name, "") for name in ("mode", "why"))
        if mode not in MODES:
            raise Invalid("invalid", "mode: must be drain, or left out", field="mode")
        if "\0" in why:
            raise Invalid("invalid", "why: must be text", field="why")
        with transaction.atomic():
            team = self._team(slug)
            services.lock_team(team.pk, exclusive=True)
            require_match(request, self._data(slug))
            team = archive_team(author=self.user, team=team, drain=mode == "drain", reason=why[:1000])
        return Response(status=204) if team.archived_at else answer(request, self._data(slug), status=202)

    @extend_schema(operation_id="teams_members_list", summary="Who is in it", responses=MemberSerializer(many=True))
    @action(detail=True, url_path="members")
    def list_members(self, request: Request, slug: str) -> Response:
        """A page of members by name."""
        rows = self._team(slug).memberships.select_related("user").order_by("user__username")
        return self.page(rows, request, MemberSerializer)

    @extend_schema(
        operation_id="teams_members_create", summary="Let somebody in, or change a membership",
        request=NewMemberSerializer, responses=MemberSerializer,
    )  # fmt: skip
    @list_members.mapping.post
    def members(self, request: Request, slug: str) -> Response:
        """For its leads, those of teams above it, and admins."""
        said, team = parsed(NewMemberSerializer, body_of(request)), self._team(slug)
        user = _user(said["user"])
        until = said["until"]
        if until is not None and until <= timezone.now():
            raise Invalid("invalid", "until: must lie in the future", field="until")
        membership = services.add_member(author=self.user, team=team, user=user, role=said["role"], until=until)
        return Response(MemberSerializer(membership).data)

    @extend_schema(
        operation_id="teams_members_destroy", summary="Take somebody out", request=None,
        responses={204: OpenApiResponse(description="The user is not in it any more.")},
        parameters=[OpenApiParameter("username", str, OpenApiParameter.PATH)],
    )  # fmt: skip
    @action(detail=True, methods=["delete"], url_path=rf"members/(?P<username>{NAME})")
    def member(self, request: Request, slug: str, username: str) -> Response:
        """For its leads, those of teams above it, admins, and for oneself. Jobs stay the team's."""
        services.remove_member(author=self.user, team=self._team(slug), user=_user(username))
        return Response(status=204)

    def _team(self, slug: str, field: str | None = None) -> Team:
        team = live_teams().select_related("parent").filter(slug=slug).first()
        if team is None or not may_see_team(self.standing, team.pk):
            where = {} if field is None else {"field": field}
            raise NotFound("team_not_found", f"{'' if field is None else field + ': '}there is no team {slug}", **where)
        return team

    def _data(self, slug: str) -> dict[str, Any]:
        return TeamSerializer(self.get_queryset().get(pk=self._team(slug).pk)).data


def _user(username: str) -> User:
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise NotFound("user_not_found", f"user: there is no user {username}", field="user")
    return user
