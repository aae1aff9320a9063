"""Making, checking and revoking tokens: `rota_<key>.<secret>`, of which only an HMAC-SHA256 of the secret is kept.

The secret has 256 random bits, so a slow password hash would protect nothing; the HMAC's key is the installation's
secret key, so a stolen table alone is of no use either.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

import pghistory
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from api.models import ApiToken
from api.scopes import Scope
from jobs.models import KEY_LENGTH, KEY_LETTERS
from teams.models import User
from teams.problems import Forbidden, Invalid, NotFound
from teams.selectors import standing_of

PREFIX = "rota_"
SECRET_BYTES = 32
DEFAULT_DAYS, MOST_DAYS = 90, 366
USED_EVERY = timedelta(minutes=1)
_SALT = "rota.api.token"
_TEXT = re.compile(rf"{PREFIX}([{KEY_LETTERS}]{{{KEY_LENGTH}}})\.([A-Za-z0-9_-]{{43}})")


def key_of(text: str) -> str | None:
    """The public half of what looks like a token, None for anything else."""
    match = _TEXT.fullmatch(text)
    return match[1] if match else None


def issue(
    *, author: User, user: User, name: str, scopes: Sequence[str], expires_at: datetime | None = None,
    local: bool = False,
) -> tuple[ApiToken, str]:  # fmt: skip
    """Make a token for ``user`` and return it with its whole text, which is never to be had again.

    Raises Forbidden where ``author`` makes one for somebody else without being an admin, Invalid for bad values.
    """
    if author.pk != user.pk and not standing_of(author).admin:
        raise Forbidden("admin_only", "only a platform admin may make tokens for others")
    name = name.strip()
    if not 0 < len(name) <= 200 or not name.isprintable():
        raise Invalid("invalid", "name: must be 1 to 200 printable characters", field="name")
    if not scopes or not set(scopes) <= set(Scope):
        raise Invalid("invalid", f"scopes: must be some of {', '.join(Scope)}", field="scopes")
    now = timezone.now()
    expires_at = expires_at or now + timedelta(days=DEFAULT_DAYS)
    if not now < expires_at <= now + timedelta(days=MOST_DAYS):
        raise Invalid("invalid", f"expires_at: must be within the next {MOST_DAYS} days", field="expires_at")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    with transaction.atomic(), pghistory.context(user=author.pk, reason="token made"):
        token = ApiToken.objects.create(
            user=user, name=name, scopes=[scope for scope in Scope if scope in set(scopes)], digest=_digest(secret),
            created_at=now, expires_at=expires_at, local=local,
        )  # fmt: skip
    return token, f"{PREFIX}{token.key}.{secret}"


def check(text: str, *, now: datetime) -> ApiToken | None:
    """The live token with this text and an active user; None for a wrong, an expired and a revoked one alike."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    token = ApiToken.objects.select_related("user").filter(key=match[1]).first()
    # Compared also where there is no such key, so that the time it takes does not tell which keys there are.
    right = constant_time_compare(_digest(match[2]), token.digest if token else "0" * 64)
    if token is None or not right or token.revoked_at or token.expires_at <= now or not token.user.is_active:
        return None
    return token


def note_use(token: ApiToken, *, now: datetime) -> None:
    """Write down that a token is in use, at most once a minute."""
    if token.last_used_at is None or now - token.last_used_at >= USED_EVERY:
        due = Q(last_used_at=None) | Q(last_used_at__lte=now - USED_EVERY)
        ApiToken.objects.filter(due, pk=token.pk).update(last_used_at=now)


def visible_to(user: User) -> QuerySet[ApiToken]:
    """A person's own tokens, newest first; all of them for an admin."""
    tokens = ApiToken.objects.select_related("user").order_by("-id")
    return tokens if standing_of(user).admin else tokens.filter(user=user)


def token_for(user: User, key: str) -> ApiToken:
    """The token of that key. Raises NotFound where ``user`` has none such."""
    token = visible_to(user).filter(key=key).first()
    if token is None:
        raise NotFound("token_not_found", f"there is no token {key}")
    return token


def revoke(*, author: User, token: ApiToken) -> None:
    """End a token at once. Again: does nothing."""
    if author.pk != token.user_id and not standing_of(author).admin:
        raise Forbidden("admin_only", "only a platform admin may revoke the tokens of others")
    with transaction.atomic(), pghistory.context(user=author.pk, reason="token revoked"):
        ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())


def _digest(secret: str) -> str:
    return salted_hmac(_SALT, secret, algorithm="sha256").hexdigest()
