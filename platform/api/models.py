"""The tokens that programs show instead of a password."""

from __future__ import annotations

import secrets

import pghistory
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from api.scopes import Scope
from jobs.models import KEY_LENGTH, KEY_LETTERS


def new_token_key() -> str:
    """The public half of a token, which names it: in lists, in logs, in its address."""
    return "".join(secrets.choice(KEY_LETTERS) for _ in range(KEY_LENGTH))


# Neither the digest nor the time of use belongs into a history that many may read and nobody may change.
@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    pghistory.DeleteEvent(),
    append_only=True,
    exclude=["digest", "last_used_at"],
)
class ApiToken(models.Model):
    """A token, without its secret half: of that only an HMAC is kept.

    ``key`` names it. A revoked one stays, so that it can be told what became of it. ``last_used_at`` is right to a
    minute. ``local`` is the one that `rota up` gives to the command line on its own machine.
    """

    key = models.CharField(max_length=KEY_LENGTH, unique=True, default=new_token_key, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens")
    name = models.CharField(_("name"), max_length=200)
    digest = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=20, choices=[(scope.value, scope.value) for scope in Scope]))
    local = models.BooleanField(default=False, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(_("expires"))
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("token")
        verbose_name_plural = _("tokens")
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="token_named"),
            models.CheckConstraint(condition=Q(digest__regex=r"^[0-9a-f]{64}$"), name="token_digest_form"),
            models.CheckConstraint(
                condition=Q(scopes__contained_by=[scope.value for scope in Scope]) & Q(scopes__len__gte=1),
                name="token_scopes_known",
            ),
            models.CheckConstraint(condition=Q(expires_at__gt=models.F("created_at")), name="token_expires"),
        ]
        indexes = [models.Index(fields=["user", "-id"], name="token_of_user")]

    def __str__(self) -> str:
        return f"{self.name} ({self.key})"
