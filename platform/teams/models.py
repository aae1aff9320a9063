"""Users, the tree of teams, and who is in which."""

from __future__ import annotations

from typing import TypeVar

import pghistory
from django.contrib.auth.models import AbstractUser
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

M = TypeVar("M", bound=models.Model)
SLUG_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def with_history(model: type[M]) -> type[M]:
    """Keep every version of a table's rows, with who changed them: for what people decide, never for what loops do."""
    trackers = (pghistory.InsertEvent(), pghistory.UpdateEvent(), pghistory.DeleteEvent())
    tracked: type[M] = pghistory.track(*trackers, append_only=True)(model)
    return tracked


class User(AbstractUser):
    """A person, or a program with an account of its own, who can sign in. ``is_superuser``: a platform admin."""

    must_change_password = models.BooleanField(
        _("must change password"),
        default=False,
        help_text=_("The password was given out once and must be changed at the next sign-in."),
    )


class TeamState(models.TextChoices):
    """A draining team takes no new jobs and is archived when its last job has ended."""

    OPEN = "open", _("open")
    DRAINING = "draining", _("draining")


class Role(models.TextChoices):
    """What a membership allows; a lead of a team also leads every team below it."""

    MEMBER = "member", _("member")
    LEAD = "lead", _("lead")


@with_history
class Team(models.Model):
    """A team. Its slug is what people write and what the engine calls it; an archived team has given it free."""

    slug = models.CharField(_("short name"), max_length=63, validators=[RegexValidator(SLUG_PATTERN)])
    name = models.CharField(_("name"), max_length=200)
    parent = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="children")
    weight = models.FloatField(_("weight"), default=1.0, validators=[MinValueValidator(0.001)])
    state = models.CharField(_("state"), max_length=10, choices=TeamState, default=TeamState.OPEN)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("team")
        verbose_name_plural = _("teams")
        constraints = [
            models.UniqueConstraint(fields=["slug"], condition=Q(archived_at=None), name="team_live_slug"),
            models.UniqueConstraint(fields=["name"], condition=Q(archived_at=None), name="team_live_name"),
            models.CheckConstraint(condition=Q(slug__regex=SLUG_PATTERN), name="team_slug_form"),
            models.CheckConstraint(condition=~Q(name=""), name="team_named"),
            models.CheckConstraint(condition=Q(weight__gt=0, weight__lt=float("inf")), name="team_weight_positive"),
            models.CheckConstraint(condition=Q(state__in=TeamState.values), name="team_state_known"),
            models.CheckConstraint(condition=Q(parent=None) | ~Q(parent=F("id")), name="team_not_its_own_parent"),
        ]

    def __str__(self) -> str:
        return self.slug


@with_history
class Membership(models.Model):
    """A user in a team, for ever or until a moment."""

    team = models.ForeignKey(Team, models.PROTECT, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=Role, default=Role.MEMBER)
    until = models.DateTimeField(_("until"), null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        constraints = [
            models.UniqueConstraint(fields=["team", "user"], name="membership_once"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


class Revision(models.Model):
    """One row whose number rises with every change of a team or of a quota.

    A decision is made with the numbers of one revision and refused if another is in force when it is carried out.
    The row is written last in the changing transaction, so its lock orders those changes.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    number = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="revision_is_one_row")]

    def __str__(self) -> str:
        return str(self.number)
