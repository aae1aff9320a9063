"""The rules of each cluster, version by version, and why its lanes wait."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from scheduler.engine.reasons import Reason
from scheduler.inventory.models import Cluster
from teams.models import with_history


@with_history
class PolicyVersion(models.Model):
    """A cluster's rules as they were put in force at ``at``: never changed, a new number instead.

    ``policy`` holds what differs from the defaults, in the form of a scenario's ``policy``.
    """

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="policy_versions")
    number = models.PositiveIntegerField()
    policy = models.JSONField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    reason = models.CharField(max_length=1000)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = _("policy version")
        verbose_name_plural = _("policy versions")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "number"], name="policy_number_once"),
            models.CheckConstraint(condition=~Q(reason=""), name="policy_says_why"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster} {self.number}"


class LaneHold(models.Model):
    """Why the waiting jobs of one lane (``Job.lane``) do not start. ``template`` and ``facts`` make the sentence."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="lane_holds")
    lane = models.CharField(max_length=32)
    code = models.CharField(max_length=12, choices=[(reason.value, reason.value) for reason in Reason])
    template = models.CharField(max_length=1000)
    facts = models.JSONField(default=dict)
    since = models.DateTimeField()

    class Meta:
        verbose_name = _("reason")
        verbose_name_plural = _("reasons")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "lane"], name="lane_hold_once"),
            models.CheckConstraint(
                condition=Q(code__in=[reason.value for reason in Reason]), name="lane_hold_code_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def message(self) -> str:
        """The sentence in English."""
        return self.template.format(**self.facts)
