"""What Rota wants of django-allauth beyond its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings

if TYPE_CHECKING:
    from django.http import HttpRequest

    from teams.models import User


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Accounts are made by an admin or by the identity provider; a changed password is no longer a one-time one."""

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        return False

    def get_password_change_redirect_url(self, _request: HttpRequest) -> str:
        return str(settings.LOGIN_REDIRECT_URL)

    def set_password(self, user: User, password: str) -> None:
        user.must_change_password = False
        super().set_password(user, password)
