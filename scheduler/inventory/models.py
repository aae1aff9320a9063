"""Clusters, pools, nodes, GPUs, and the allocations that say who holds which card."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from jobs.models import Attempt
from jobs.states import Actor
from scheduler.engine.cluster import CardState, NodeState
from scheduler.inventory.triggers import KEEP_THE_BOOKS
from teams.models import SLUG_PATTERN, Team

DEFAULT_RESERVE_MIB = 1024


class BackendKind(models.TextChoices):
    """What runs a cluster's jobs."""

    LOCAL = "local", _("this machine")
    SIMULATED = "simulated", _("simulated")
    KUBERNETES = "kubernetes", "Kubernetes"
    VOLCANO = "volcano", "Volcano"
    SLURM = "slurm", "Slurm"


class Contact(models.TextChoices):
    """Whether the backend sees a node."""

    READY = NodeState.READY.value, _("ready")
    DOWN = NodeState.DOWN.value, _("down")
    SYNCING = NodeState.SYNCING.value, _("syncing")


class Cordon(models.TextChoices):
    """Whether somebody keeps new work off a node, and perhaps wants the present work off it too."""

    NO = "", _("no")
    CORDONED = NodeState.CORDONED.value, _("cordoned")
    DRAINING = NodeState.DRAINING.value, _("draining")


class Cluster(models.Model):
    """One cluster, behind one backend.

    ``epoch`` is the fencing number: whoever schedules takes a new one first, and what was decided under an older one
    is refused. ``synced`` is False until the backend has been looked at completely since the start. ``reserve_mib`` is
    what the driver keeps of each card. ``policy`` None: every rule has its default.
    """

    slug = models.CharField(_("short name"), max_length=63, unique=True, validators=[RegexValidator(SLUG_PATTERN)])
    name = models.CharField(_("name"), max_length=200)
    backend = models.CharField(_("backend"), max_length=12, choices=BackendKind)
    config = models.JSONField(default=dict, blank=True)
    chooses_gpu = models.BooleanField(default=True)
    reserve_mib = models.PositiveIntegerField(default=DEFAULT_RESERVE_MIB)
    is_default = models.BooleanField(_("default"), default=False)
    open_to_all = models.BooleanField(_("open to all teams"), default=False)
    tick_group = models.CharField(max_length=31, default="main")
    policy = models.ForeignKey("scheduler.PolicyVersion", models.PROTECT, null=True, blank=True, related_name="+")
    epoch = models.PositiveBigIntegerField(default=0)
    synced = models.BooleanField(default=False)
    sync_problem = models.CharField(max_length=1000, blank=True)
    observed_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="cluster_one_default"),
            models.CheckConstraint(condition=Q(slug__regex=SLUG_PATTERN), name="cluster_slug_form"),
            models.CheckConstraint(condition=Q(backend__in=BackendKind.values), name="cluster_backend_known"),
        ]

    def __str__(self) -> str:
        return self.slug


class ClusterAccess(models.Model):
    """A team, with all below it, that an admin opened a cluster to. ``is_default``: where its jobs go unless said."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="access")
    team = models.ForeignKey(Team, models.CASCADE, related_name="cluster_access")
    is_default = models.BooleanField(default=False)
    granted_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    granted_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("cluster access")
        verbose_name_plural = _("cluster access")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "team"], name="cluster_access_once"),
            models.UniqueConstraint(fields=["team"], condition=Q(is_default=True), name="cluster_access_one_default"),
        ]

    def __str__(self) -> str:
        return f"{self.team} on {self.cluster}"


class Pool(models.Model):
    """The nodes of one GPU model in one cluster."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="pools")
    model = models.CharField(_("GPU model"), max_length=200)

    class Meta:
        verbose_name = _("pool")
        verbose_name_plural = _("pools")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "model"], name="pool_once"),
            models.CheckConstraint(condition=~Q(model__in=["", "*"]), name="pool_model_named"),
        ]

    def __str__(self) -> str:
        return self.model


class Node(models.Model):
    """One machine. ``state`` follows from ``contact`` and ``cordon``; ``removed_at``: it has left the cluster.

    ``cordon_actor`` says who cordoned it: only the same kind of actor, or a person, may undo that.
    """

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="nodes")
    pool = models.ForeignKey(Pool, models.PROTECT, null=True, blank=True, related_name="nodes")
    name = models.CharField(_("name"), max_length=253)
    contact = models.CharField(max_length=10, choices=Contact, default=Contact.SYNCING)
    contact_at = models.DateTimeField(default=timezone.now)
    note = models.CharField(max_length=1000, blank=True)
    cordon = models.CharField(max_length=10, choices=Cordon, default=Cordon.NO, blank=True)
    cordon_actor = models.CharField(max_length=10, blank=True)
    cordon_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    cordon_why = models.CharField(max_length=1000, blank=True)
    cordon_at = models.DateTimeField(null=True, blank=True)
    state = models.GeneratedField(
        expression=Case(
            When(contact=Contact.DOWN.value, then=Value(NodeState.DOWN.value)),
            When(~Q(cordon=""), then=F("cordon")),
            default=F("contact"),
        ),
        output_field=models.CharField(max_length=10),
        db_persist=True,
    )
    vram_mib = models.PositiveIntegerField(default=0)
    cpus_milli = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveBigIntegerField(default=0)
    labels = models.JSONField(default=dict, blank=True)
    taints = models.JSONField(default=list, blank=True)
    rack = models.CharField(max_length=200, blank=True)
    switch = models.CharField(max_length=200, blank=True)
    nvlink = models.CharField(max_length=200, blank=True)
    last_seen = models.DateTimeField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("node")
        verbose_name_plural = _("nodes")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="node_name_once"),
            models.CheckConstraint(condition=~Q(name=""), name="node_named"),
            models.CheckConstraint(condition=Q(contact__in=Contact.values), name="node_contact_known"),
            models.CheckConstraint(condition=Q(cordon__in=Cordon.values), name="node_cordon_known"),
            models.CheckConstraint(
                condition=Q(cordon="", cordon_actor="", cordon_why="", cordon_at=None)
                | (
                    ~Q(cordon="")
                    & Q(cordon_actor__in=[actor.value for actor in Actor], cordon_at__isnull=False)
                    & ~Q(cordon_why="")
                ),
                name="node_cordon_says_who_and_why",
            ),
        ]
        indexes = [models.Index(fields=["cluster", "state"], name="node_by_state")]

    def __str__(self) -> str:
        return self.name

    @property
    def model(self) -> str:
        """The model of its GPUs; empty without any."""
        return self.pool.model if self.pool else ""

    @property
    def seen_at(self) -> datetime | None:
        """When the backend last saw it: with the rest of the cluster for as long as it is there."""
        return self.cluster.observed_at if self.contact == Contact.READY else self.last_seen


class Gpu(models.Model):
    """One card.

    ``memory_mib`` is all of its memory, ``usable_mib`` what jobs may have of it now, ``capacity_mib`` what has been
    promised to be there: it follows ``usable_mib``, but never below what is held. ``allocated_mib`` and ``whole`` are
    kept by a trigger from the live allocations, in the same transaction; a whole holder takes all of the capacity, so
    that nobody fits beside it. ``missing_since``: its node no longer reports it.
    """

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="gpus")
    node = models.ForeignKey(Node, models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=200)
    index = models.PositiveSmallIntegerField()
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=[(state.value, state.value) for state in CardState],
        default=CardState.OK.value,
    )
    state_actor = models.CharField(max_length=10, blank=True)
    state_why = models.CharField(max_length=1000, blank=True)
    state_at = models.DateTimeField(default=timezone.now)
    missing_since = models.DateTimeField(null=True, blank=True)
    virtual = models.BooleanField(default=False)
    memory_mib = models.PositiveIntegerField()
    usable_mib = models.PositiveIntegerField()
    capacity_mib = models.PositiveIntegerField()
    allocated_mib = models.IntegerField(default=0, db_default=0)
    whole = models.BooleanField(default=False, db_default=False)

    class Meta:
        verbose_name = _("GPU")
        verbose_name_plural = _("GPUs")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uuid"], name="gpu_uuid_once"),
            models.UniqueConstraint(fields=["node", "index"], name="gpu_index_once"),
            models.CheckConstraint(condition=~Q(uuid=""), name="gpu_named"),
            models.CheckConstraint(condition=Q(state__in=[state.value for state in CardState]), name="gpu_state_known"),
            models.CheckConstraint(condition=Q(capacity_mib__gt=0), name="gpu_has_memory"),
            models.CheckConstraint(
                condition=Q(allocated_mib__gte=0, allocated_mib__lte=F("capacity_mib")), name="gpu_not_over_committed"
            ),
            models.CheckConstraint(
                condition=Q(whole=False) | Q(allocated_mib=F("capacity_mib")), name="gpu_whole_takes_all"
            ),
        ]

    def __str__(self) -> str:
        return self.uuid

    @property
    def free_mib(self) -> int:
        """MiB that a new slice could have; 0 where a shrunk card is over-committed."""
        return max(0, self.usable_mib - self.allocated_mib)


class Allocation(models.Model):
    """One card that a replica of an attempt holds, from placing until the backend confirms the end.

    ``mib`` 0: the whole card. ``slot`` is the index, on the node, of the card that was planned. Without ``gpu`` the
    row is provisional: the node itself picks which card, and it is *confirmed* when the node has said so (the other
    row that was planned there gets the slot that came free). Neither ``gpu`` nor ``slot``: a replica without cards.
    ``released_at`` None: live.
    """

    attempt = models.ForeignKey(Attempt, models.PROTECT, related_name="allocations")
    node = models.ForeignKey(Node, models.PROTECT, related_name="allocations")
    gpu = models.ForeignKey(Gpu, models.PROTECT, null=True, blank=True, related_name="allocations")
    group = models.CharField(max_length=200)
    replica = models.PositiveIntegerField()
    slot = models.PositiveSmallIntegerField(null=True, blank=True)
    mib = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(default=timezone.now)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("allocation")
        verbose_name_plural = _("allocations")
        constraints = [
            models.UniqueConstraint(
                fields=["gpu"],
                condition=Q(released_at=None, mib=0, gpu__isnull=False),
                name="allocation_whole_gpu_once",
            ),
            models.UniqueConstraint(
                fields=["node", "slot"],
                condition=Q(released_at=None, mib=0, gpu=None, slot__isnull=False),
                name="allocation_whole_slot_once",
            ),
            models.CheckConstraint(condition=Q(gpu=None) | Q(slot__isnull=False), name="allocation_card_has_slot"),
            models.CheckConstraint(
                condition=Q(released_at=None) | Q(released_at__gte=F("started_at")), name="allocation_ends_after_start"
            ),
        ]
        indexes = [
            models.Index(fields=["node"], condition=Q(released_at=None), name="allocation_live_on_node"),
            models.Index(fields=["attempt"], condition=Q(released_at=None), name="allocation_live_of_attempt"),
            models.Index(fields=["gpu", "-started_at"], name="allocation_of_gpu"),
        ]
        triggers = KEEP_THE_BOOKS

    def __str__(self) -> str:
        return f"{self.attempt_id} on {self.gpu_id or self.node_id}"
