"""The step of `manage.py bootstrap` that gives the command line on this machine its token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from api import tokens
from api.models import ApiToken
from api.scopes import Scope
from teams.models import User

DAYS = 180
RENEW_BEFORE = timedelta(days=60)
NAME = "command line on this machine"


def local_token() -> Mapping[str, str] | None:
    """Make the first admin's token for this machine, unless the one in the home is good for a while yet."""
    now = timezone.now()
    known = tokens.check(_written(), now=now)
    if known is not None and known.expires_at - now > RENEW_BEFORE:
        return None
    admin = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if admin is None:
        return None
    with transaction.atomic():
        for old in ApiToken.objects.filter(local=True, revoked_at=None, user=admin):
            tokens.revoke(author=admin, token=old)
        expires_at = now + timedelta(days=DAYS)
        _, text = tokens.issue(
            author=admin, user=admin, name=NAME, scopes=[Scope.ADMIN], expires_at=expires_at, local=True
        )
    return {"cli_token": text}


def _written() -> str:
    try:
        written = json.loads(settings.LAYOUT.cli.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    token = written.get("token") if isinstance(written, dict) else None
    return token if isinstance(token, str) else ""
