"""The numbers of each team, per cluster and GPU model."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from quotas.limits import ANY_MODEL
from teams.models import Team, with_history


def _sensible(*names: str) -> list[models.CheckConstraint]:
    """Numbers are 0 or more and finite, percentages at most 100."""
    return [
        models.CheckConstraint(
            condition=Q(**{name: None})
            | Q(**{f"{name}__gte": 0, f"{name}__lte": 100})
            | Q(**{f"{name}__gte": 0, f"{name}__lt": float("inf"), f"{name}_percent": False}),
            name=f"%(class)s_{name}_sensible",
        )
        for name in names
    ]


class _Numbers(models.Model):
    """What a quota and a window say. A number with ``…_percent`` is a share of the model's cards in the cluster."""

    team = models.ForeignKey(Team, models.PROTECT)
    cluster = models.ForeignKey("inventory.Cluster", models.PROTECT)
    model = models.CharField(_("GPU model"), max_length=200, default=ANY_MODEL)
    guaranteed = models.FloatField(_("guaranteed"), default=0.0)
    guaranteed_percent = models.BooleanField(default=False)
    limit = models.FloatField(_("limit"), null=True, blank=True)
    limit_percent = models.BooleanField(default=False)

    class Meta:
        abstract = True


@with_history
class TeamQuota(_Numbers):
    """A team's numbers for one model (``*``: all together). No ``limit``: unlimited; no ``lend_limit``: all is lent."""

    lend_limit = models.FloatField(_("lend limit"), null=True, blank=True)
    lend_limit_percent = models.BooleanField(default=False)

    class Meta:
        verbose_name = _("quota")
        verbose_name_plural = _("quotas")
        default_related_name = "quotas"
        constraints = [
            models.UniqueConstraint(fields=["team", "cluster", "model"], name="quota_once"),
            *_sensible("guaranteed", "limit", "lend_limit"),
        ]

    def __str__(self) -> str:
        return f"{self.team} on {self.model}"


@with_history
class QuotaWindow(_Numbers):
    """Numbers that replace those of the quota for the same model while the window is open.

    ``days`` (0 = Monday) are those on which it begins; an ``end`` before ``start`` lies on the next day.
    """

    days = ArrayField(models.PositiveSmallIntegerField(), size=7)
    start = models.TimeField()
    end = models.TimeField()
    reclaim_lead_s = models.FloatField(default=0.0)

    class Meta:
        verbose_name = _("quota window")
        verbose_name_plural = _("quota windows")
        default_related_name = "quota_windows"
        constraints = [
            models.UniqueConstraint(fields=["team", "cluster", "model", "days", "start"], name="quota_window_once"),
            models.CheckConstraint(condition=~Q(start=F("end")), name="quota_window_has_length"),
            models.CheckConstraint(
                condition=Q(days__contained_by=[0, 1, 2, 3, 4, 5, 6]) & Q(days__len__gte=1), name="quota_window_days"
            ),
            models.CheckConstraint(
                condition=Q(reclaim_lead_s__gte=0, reclaim_lead_s__lt=float("inf")), name="quota_window_lead"
            ),
            *_sensible("guaranteed", "limit"),
        ]

    def __str__(self) -> str:
        return f"{self.team} on {self.model} from {self.start} to {self.end}"
