"""Reading the hardware."""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet

from scheduler.inventory.models import Cluster, ClusterAccess, Node
from teams.models import Team, User
from teams.problems import Forbidden, NotFound
from teams.selectors import ancestors, standing_of, with_ancestors


def capacity_of(cluster_id: int) -> dict[str, int]:
    """The cards of each model in a cluster, whatever their state."""
    rows = (
        Node.objects.filter(cluster_id=cluster_id, removed_at=None, pool__isnull=False)
        .values_list("pool__model")
        .annotate(cards=Count("gpus"))
        .order_by("pool__model")
    )
    return dict(rows)


def clusters_for(user: User, team: Team) -> QuerySet[Cluster]:
    """The clusters that ``user`` may use for ``team``: open to all, opened to it or a team above; all for an admin."""
    if standing_of(user).admin:
        return Cluster.objects.order_by("slug")
    line = [above.pk for above in ancestors(team)]
    return Cluster.objects.filter(Q(open_to_all=True) | Q(access__team__in=line)).distinct().order_by("slug")


def clusters_seen_by(user: User) -> QuerySet[Cluster]:
    """The clusters that are open to all or to any team of ``user`` or one above it; all for an admin."""
    standing = standing_of(user)
    if standing.admin:
        return Cluster.objects.order_by("slug")
    line = with_ancestors(standing.member | standing.lead)
    open_to = ClusterAccess.objects.filter(team__in=line).values("cluster")
    return Cluster.objects.filter(Q(open_to_all=True) | Q(pk__in=open_to)).order_by("slug")


def cluster_for(user: User, team: Team, slug: str | None = None) -> Cluster:
    """The cluster that a job of ``team`` goes to: the one named, else the nearest default of the team or one above,
    else the default cluster, else the only one that is open to it.

    Raises NotFound, or Forbidden where it is not open to the team.
    """
    if slug is not None:
        cluster = Cluster.objects.filter(slug=slug).first()
        if cluster is None:
            raise NotFound("cluster_not_found", f"cluster: there is no cluster {slug}", field="cluster")
    else:
        cluster = _default_of(team) or Cluster.objects.filter(is_default=True).first()
    usable = list(clusters_for(user, team))
    if cluster is None and len(usable) == 1:
        return usable[0]
    if cluster is None:
        slugs = [each.slug for each in usable]
        raise NotFound(
            "cluster_required", f"cluster: is missing; it can be {', '.join(slugs) or 'none yet'}", field="cluster"
        )
    if cluster not in usable:
        raise Forbidden("cluster_closed", f"the cluster {cluster.slug} is not open to the team {team.slug}")
    return cluster


def _default_of(team: Team) -> Cluster | None:
    line = [above.pk for above in ancestors(team)]
    rows = ClusterAccess.objects.filter(team__in=line, is_default=True).select_related("cluster")
    nearest = min(rows, key=lambda row: line.index(row.team_id), default=None)
    return None if nearest is None else nearest.cluster
