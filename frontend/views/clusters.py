"""Clusters, their nodes and their GPUs; keeping new work off a node, and who may use a cluster."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from frontend import live
from frontend.selectors import gpumap, nodes
from frontend.views.dashboard import chart, histogram, reason_rows
from frontend.views.page import PageRequest, attempt, back, page, show
from frontend.words import GPU_STATES, NODE_STATES
from jobs.states import Actor
from scheduler.connect import user_of_jobs
from scheduler.inventory import services
from scheduler.inventory.models import BackendKind, Cluster, Node
from teams.selectors import live_teams


@page
def clusters(request: PageRequest) -> HttpResponse:
    """All clusters with their numbers."""
    live.watch()
    return show(request, "pages/clusters.html", {"clusters": list(live.numbers()["clusters"].values())})


@page
def cluster_page(request: PageRequest, slug: str) -> HttpResponse:
    """One cluster: its map, its pools, its nodes, who may use it."""
    live.watch()
    cluster = get_object_or_404(Cluster, slug=slug)
    found = live.numbers()["clusters"].get(slug)
    if found is None:  # made a moment ago
        found = live.refreshed()["clusters"][slug]
    past = live.history(slug)
    return show(
        request,
        "pages/cluster.html",
        {
            "cluster": cluster,
            "numbers": found,
            "map": _map(request, cluster),
            "legend": GPU_STATES,
            "history": chart(past, found["cards"]["total"]),
            "histogram": histogram(found["cards"]["by_free"]),
            "reasons": reason_rows(found),
            "nodes": nodes.page_of(nodes.Filter(cluster=slug), size=nodes.SOME),
            "local": cluster.backend == BackendKind.LOCAL,
            "user_of_jobs": user_of_jobs(),
            "access": cluster.access.select_related("team", "granted_by").order_by("team__slug"),
            "teams": live_teams() if request.user.is_superuser else [],
        },
    )


def _map(request: PageRequest, cluster: Cluster) -> dict[str, object]:
    version, cards = live.gpu_map(cluster.pk)
    return {
        "cluster": cluster.pk,
        "version": version,
        "states": cards.hex(),
        "nodes": gpumap.layout(cluster.pk),
        "names": {state: str(look.title) for state, look in GPU_STATES.items()},
        "href": f"{request.path}nodes/",
    }


@page
@require_POST
def access(request: PageRequest, slug: str) -> HttpResponse:
    """Open a cluster to a team, or close it again; for admins."""
    cluster = get_object_or_404(Cluster, slug=slug)
    team = get_object_or_404(live_teams(), slug=request.POST.get("team", ""))
    if request.POST.get("close"):
        done = _("%(cluster)s is closed to %(team)s.") % {"cluster": cluster.name, "team": team.name}
        attempt(request, lambda: services.close_to(author=request.user, cluster=cluster, team=team), done)
    else:
        done = _("%(cluster)s is open to %(team)s.") % {"cluster": cluster.name, "team": team.name}
        default = bool(request.POST.get("default"))
        attempt(
            request,
            lambda: services.open_to(author=request.user, cluster=cluster, team=team, default=default),
            done,
        )
    return redirect("cluster", slug)


@page
def node_list(request: PageRequest) -> HttpResponse:
    """The nodes of all clusters, filtered, a page at a time."""
    wanted = nodes.Filter.of(request.GET)
    return show(
        request,
        "pages/nodes.html",
        {
            "wanted": wanted,
            "nodes": nodes.page_of(wanted, offset=nodes.offset_of(request.GET)),
            "counts": nodes.counts(wanted),
            "looks": NODE_STATES,
            "clusters": Cluster.objects.order_by("slug").only("slug", "name"),
        },
    )


@page
def node_page(request: PageRequest, slug: str, name: str) -> HttpResponse:
    """One node: its cards, who holds them, and what keeps it from new work."""
    node = get_object_or_404(
        Node.objects.select_related("cluster", "pool", "cordon_by"), cluster__slug=slug, name=name, removed_at=None
    )
    return show(
        request,
        "pages/node.html",
        {
            "node": node,
            "cards": nodes.cards_of(node, request.user),
            "cpus": node.cpus_milli / 1000,
            "unnamed": nodes.unnamed_on(node),
        },
    )


@page
@require_POST
def node_action(request: PageRequest, slug: str, name: str, verb: str) -> HttpResponse:
    """Cordon, drain or uncordon a node; for admins."""
    node = get_object_or_404(Node, cluster__slug=slug, name=name, removed_at=None)
    why, user = request.POST.get("why", "").strip(), request.user
    if verb == "uncordon":
        done = _("%(node)s takes new work again.") % {"node": name}
        attempt(request, lambda: services.uncordon(node=node, actor=Actor.ADMIN, user=user), done)
    else:
        done = _("%(node)s takes no new work.") % {"node": name}
        drain = verb == "drain"
        attempt(
            request,
            lambda: services.cordon(node=node, actor=Actor.ADMIN, why=why, user=user, drain=drain),
            done,
        )
    return back(request, "node", slug, name)
