"""Nodes with their GPUs: look, cordon, drain, uncordon."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from api.etags import answer
from api.jobs import IF_NONE_MATCH
from api.parsing import body_of
from api.views import NAME, SLUG, MustSayWhySerializer, Resource, parsed
from jobs.models import Job
from jobs.selectors import visible_to
from jobs.states import Actor
from scheduler.engine.cluster import CardState, NodeState
from scheduler.inventory import services
from scheduler.inventory.models import Gpu, Node
from scheduler.inventory.selectors import clusters_seen_by
from teams.problems import NotFound

CARD_STATES = [(state.value, state.value) for state in CardState]
STATES = [(state.value, state.value) for state in NodeState]
PATH = [OpenApiParameter("cluster", str, OpenApiParameter.PATH), OpenApiParameter("name", str, OpenApiParameter.PATH)]


class GpuSerializer(serializers.ModelSerializer[Gpu]):
    """One card."""

    class Meta:
        model = Gpu
        fields = (
            "index", "uuid", "state", "state_why", "virtual", "memory_mib", "usable_mib", "allocated_mib", "whole",
            "missing_since",
        )  # fmt: skip


class NodeSerializer(serializers.ModelSerializer[Node]):
    """One machine."""

    cluster = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    model = serializers.CharField(help_text="Of its GPUs; empty without any.")
    state = serializers.ChoiceField(STATES, read_only=True)
    cordon_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)
    labels = serializers.DictField(child=serializers.CharField())
    taints = serializers.ListField(child=serializers.CharField())
    seen_at = serializers.DateTimeField(allow_null=True)
    gpus = GpuSerializer(many=True, read_only=True)

    class Meta:
        model = Node
        fields = (
            "cluster", "name", "model", "state", "note", "cordon_actor", "cordon_by", "cordon_why", "cordon_at",
            "vram_mib", "cpus_milli", "memory_mib", "labels", "taints", "rack", "switch", "nvlink", "seen_at", "gpus",
        )  # fmt: skip


class JobOnNodeSerializer(serializers.ModelSerializer[Job]):
    """A job that holds something of a node."""

    team = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)

    class Meta:
        model = Job
        fields = ("key", "name", "team", "state")


class NodeDetailSerializer(NodeSerializer):
    """One machine, with those of its jobs that one may see."""

    jobs = serializers.SerializerMethodField()

    class Meta(NodeSerializer.Meta):
        fields = (*NodeSerializer.Meta.fields, "jobs")  # type: ignore[assignment]

    @extend_schema_field(JobOnNodeSerializer(many=True))
    def get_jobs(self, node: Node) -> Any:
        """Those that hold anything of it now."""
        live = visible_to(self.context["user"]).filter(
            attempts__ended_at=None, attempts__allocations__node=node, attempts__allocations__released_at=None
        )
        return JobOnNodeSerializer(live.distinct().order_by("id"), many=True).data


class NodeFilter(django_filters.FilterSet):  # type: ignore[misc]
    """What a list of nodes can be narrowed down to."""

    cluster = django_filters.CharFilter("cluster__slug")
    state = django_filters.MultipleChoiceFilter(choices=STATES, help_text="May be given several times.")
    model = django_filters.CharFilter("pool__model")
    name = django_filters.CharFilter("name", help_text="Exactly this name.")
    rack = django_filters.CharFilter("rack")

    class Meta:
        model = Node
        fields: tuple[str, ...] = ()


class NodeViewSet(Resource):
    """The nodes of the clusters that one sees."""

    queryset = Node.objects.none()
    serializer_class = NodeSerializer
    filterset_class = NodeFilter

    def get_queryset(self) -> QuerySet[Node]:
        """Those that whoever asks may see, with their cards."""
        seen = clusters_seen_by(self.user).order_by().values("pk")
        rows = Node.objects.filter(cluster__in=seen, removed_at=None).select_related("cluster", "pool", "cordon_by")
        return rows.prefetch_related(Prefetch("gpus", Gpu.objects.order_by("index"))).order_by("cluster__slug", "name")

    @extend_schema(summary="List nodes")
    def list(self, request: Request) -> Response:
        """A page of nodes by cluster and name."""
        return self.page(self.filter_queryset(self.get_queryset()), request, NodeSerializer)

    @extend_schema(summary="Look at a node", responses=NodeDetailSerializer, parameters=[*PATH, IF_NONE_MATCH])
    @action(detail=False, url_path=rf"(?P<cluster>{SLUG})/(?P<name>{NAME})", url_name="detail", filterset_class=None)
    def show(self, request: Request, cluster: str, name: str) -> Response:
        """One node, its cards, and who is on it."""
        return answer(request, self._data(self._node(cluster, name)))

    @extend_schema(
        summary="Keep new work off a node", request=MustSayWhySerializer, responses=NodeDetailSerializer,
        parameters=PATH,
    )  # fmt: skip
    @action(detail=False, methods=["post"], url_path=rf"(?P<cluster>{SLUG})/(?P<name>{NAME})/cordon")
    def cordon(self, request: Request, cluster: str, name: str) -> Response:
        """For admins. What runs there goes on."""
        return self._cordoned(cluster, name, drain=False)

    @extend_schema(
        summary="Get a node empty", request=MustSayWhySerializer, responses=NodeDetailSerializer, parameters=PATH
    )
    @action(detail=False, methods=["post"], url_path=rf"(?P<cluster>{SLUG})/(?P<name>{NAME})/drain")
    def drain(self, request: Request, cluster: str, name: str) -> Response:
        """For admins. No new work comes, and what runs there is stopped and waits again."""
        return self._cordoned(cluster, name, drain=True)

    @extend_schema(summary="Let a node take work again", request=None, responses=NodeDetailSerializer, parameters=PATH)
    @action(detail=False, methods=["post"], url_path=rf"(?P<cluster>{SLUG})/(?P<name>{NAME})/uncordon")
    def uncordon(self, request: Request, cluster: str, name: str) -> Response:
        """For admins. Ends a cordon and a drain, whoever began it."""
        node = services.uncordon(node=self._node(cluster, name), actor=Actor.ADMIN, user=self.user)
        return answer(request, self._data(self._node(cluster, node.name)))

    def _cordoned(self, cluster: str, name: str, *, drain: bool) -> Response:
        why = parsed(MustSayWhySerializer, body_of(self.request))["why"]
        node = self._node(cluster, name)
        services.cordon(node=node, actor=Actor.ADMIN, user=self.user, why=why, drain=drain)
        return answer(self.request, self._data(self._node(cluster, name)))

    def _node(self, cluster: str, name: str) -> Node:
        node = self.get_queryset().filter(cluster__slug=cluster, name=name).first()
        if node is None:
            raise NotFound("node_not_found", f"there is no node {name} in the cluster {cluster}")
        return node

    def _data(self, node: Node) -> dict[str, Any]:
        return NodeDetailSerializer(node, context={"user": self.user}).data
