"""Clusters, and which teams they are open to."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Count, Q, QuerySet
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from api.etags import answer
from api.jobs import IF_NONE_MATCH
from api.parsing import body_of
from api.scopes import Scope
from api.views import SLUG, Resource, StrictSerializer, parsed
from scheduler.inventory import services
from scheduler.inventory.models import Cluster, ClusterAccess, Pool
from scheduler.inventory.selectors import clusters_seen_by
from teams.models import Team
from teams.problems import Forbidden, NotFound
from teams.selectors import live_teams


class PoolSerializer(serializers.ModelSerializer[Pool]):
    """The nodes of one GPU model."""

    nodes = serializers.IntegerField(source="nodes_here")
    nodes_ready = serializers.IntegerField()
    gpus = serializers.IntegerField()
    gpus_held = serializers.IntegerField(help_text="GPUs that somebody holds, whole or in part.")

    class Meta:
        model = Pool
        fields = ("model", "nodes", "nodes_ready", "gpus", "gpus_held")


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A cluster."""

    pools = serializers.SerializerMethodField()

    class Meta:
        model = Cluster
        fields = (
            "slug", "name", "backend", "chooses_gpu", "is_default", "open_to_all", "synced", "sync_problem",
            "observed_at", "created_at", "pools",
        )  # fmt: skip

    @extend_schema_field(PoolSerializer(many=True))
    def get_pools(self, cluster: Cluster) -> Any:
        """Read for all clusters at once by the view."""
        return PoolSerializer(self.context["pools"].get(cluster.pk, []), many=True).data


class AccessSerializer(serializers.ModelSerializer[ClusterAccess]):
    """A team that a cluster is open to, with those below it."""

    team = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    granted_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = ClusterAccess
        fields = ("team", "is_default", "granted_by", "granted_at")


class NewAccessSerializer(StrictSerializer):
    """A team to open a cluster to."""

    team = serializers.CharField(max_length=63)
    is_default = serializers.BooleanField(default=False, help_text="Its jobs go there unless they say otherwise.")


class ClusterViewSet(Resource):
    """The clusters that are open to one's teams; all for an admin."""

    queryset = Cluster.objects.none()
    serializer_class = ClusterSerializer
    lookup_field = "slug"
    lookup_value_regex = SLUG
    scopes: ClassVar = {"list_access": Scope.READ}

    def get_queryset(self) -> QuerySet[Cluster]:
        """Those that whoever asks may see."""
        return clusters_seen_by(self.user)

    def context_of(self, rows: list[Any]) -> dict[str, Any]:
        """Their pools with numbers; two queries."""
        return {"pools": _pools([cluster.pk for cluster in rows])}

    @extend_schema(summary="List clusters")
    def list(self, request: Request) -> Response:
        """A page of clusters by their slugs."""
        return self.page(self.get_queryset(), request, ClusterSerializer)

    @extend_schema(summary="Look at a cluster", parameters=[IF_NONE_MATCH])
    def retrieve(self, request: Request, slug: str) -> Response:
        """One cluster with its pools."""
        cluster = cluster_seen(self.get_queryset(), slug)
        return answer(request, ClusterSerializer(cluster, context=self.context_of([cluster])).data)

    @extend_schema(
        operation_id="clusters_access_list", summary="Which teams it is open to", responses=AccessSerializer(many=True)
    )
    @action(detail=True, url_path="access")
    def list_access(self, request: Request, slug: str) -> Response:
        """For admins. One that is open to all needs no such list."""
        rows = self._access(slug).access.select_related("team", "granted_by").order_by("team__slug")
        return self.page(rows, request, AccessSerializer)

    @extend_schema(
        operation_id="clusters_access_create", summary="Open it to a team", request=NewAccessSerializer,
        responses=AccessSerializer,
    )  # fmt: skip
    @list_access.mapping.post
    def open_to(self, request: Request, slug: str) -> Response:
        """For admins. The team, and those below it, may use it from now on."""
        said, cluster = parsed(NewAccessSerializer, body_of(request)), self._access(slug)
        access = services.open_to(
            author=self.user, cluster=cluster, team=_team(said["team"]), default=said["is_default"]
        )
        return Response(AccessSerializer(access).data)

    @extend_schema(
        operation_id="clusters_access_destroy", summary="Close it to a team", request=None,
        responses={204: OpenApiResponse(description="It is not open to that team.")},
        parameters=[OpenApiParameter("team", str, OpenApiParameter.PATH)],
    )  # fmt: skip
    @action(detail=True, methods=["delete"], url_path=rf"access/(?P<team>{SLUG})")
    def close_to(self, request: Request, slug: str, team: str) -> Response:
        """For admins. It takes no new jobs of that team; those that are there stay."""
        services.close_to(author=self.user, cluster=self._access(slug), team=_team(team))
        return Response(status=204)

    def _access(self, slug: str) -> Cluster:
        cluster = cluster_seen(self.get_queryset(), slug)
        if not self.standing.admin:
            raise Forbidden("admin_only", "only a platform admin may see and change who may use a cluster")
        return cluster


def cluster_seen(clusters: QuerySet[Cluster], slug: str) -> Cluster:
    """The cluster of that slug among those that one sees. Raises NotFound."""
    cluster = clusters.filter(slug=slug).first()
    if cluster is None:
        raise NotFound("cluster_not_found", f"there is no cluster {slug}")
    return cluster


def _team(slug: str) -> Team:
    team = live_teams().filter(slug=slug).first()
    if team is None:
        raise NotFound("team_not_found", f"team: there is no team {slug}", field="team")
    return team


def _pools(clusters: list[int]) -> dict[int, list[Pool]]:
    here = Q(nodes__removed_at=None)
    rows = Pool.objects.filter(cluster__in=clusters).order_by("model").annotate(
        nodes_here=Count("nodes", filter=here, distinct=True),
        nodes_ready=Count("nodes", filter=here & Q(nodes__state="ready"), distinct=True),
        gpus=Count("nodes__gpus", filter=here & Q(nodes__gpus__missing_since=None)),
        gpus_held=Count("nodes__gpus", filter=here & Q(nodes__gpus__allocated_mib__gt=0)),
    )  # fmt: skip
    found: dict[int, list[Pool]] = {}
    for row in rows:
        found.setdefault(row.cluster_id, []).append(row)
    return found
