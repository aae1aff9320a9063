"""Who asks: the bearer of a token, or whoever is signed in with a browser; and what the token's scopes allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from django.utils import timezone
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request

from api import throttles, tokens
from api.models import ApiToken
from api.scopes import Scope, allows
from teams.models import User

if TYPE_CHECKING:  # at run time it would be a circle: that module reads the settings, which name this one
    from rest_framework.views import APIView


class TokenAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer rota_<key>.<secret>`."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """The token's user and the token; None where another way of signing in was chosen, or none."""
        word, _, text = request.headers.get("Authorization", "").strip().partition(" ")
        if word.lower() != "bearer":
            return None
        text, now = text.strip(), timezone.now()
        # Known keys may be guessed at from one address ten times a minute, whoever comes with the right secret then.
        address = throttles.address_of(request)
        pair = f"{address}/{tokens.key_of(text) or ''}"
        if throttles.counted("token_guess", pair) >= throttles.rate("token_guess"):
            raise exceptions.Throttled(throttles.left_of_minute())
        token = tokens.check(text, now=now)
        if token is None:
            throttles.count("token_guess", pair)
            if throttles.count("token_guesses", address) > throttles.rate("token_guesses"):
                raise exceptions.Throttled(throttles.left_of_minute())
            raise exceptions.AuthenticationFailed("this token is wrong, expired or revoked")
        tokens.note_use(token, now=now)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 says how to sign in."""
        return 'Bearer realm="rota"'


class SessionAuthentication(authentication.SessionAuthentication):
    """A browser's session, with Django's check against forged requests on everything that is not just reading."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        """The signed-in user, who must have a password of their own by now."""
        found = super().authenticate(request)
        if found is not None and found[0].must_change_password:
            raise exceptions.PermissionDenied(
                "change your one-time password first, at /accounts/password/change/", code="password_change_required"
            )
        return found


class HasScope(permissions.BasePermission):
    """A user who is signed in and, with a token, one that allows it: `scopes` of the view, by action or by method.

    A view without `scopes` takes `read` for reading and `admin` for the rest.
    """

    message = "this token does not allow that"
    code = "scope_missing"

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the request may go on."""
        if not isinstance(request.user, User):
            raise exceptions.NotAuthenticated("sign in, or send Authorization: Bearer with a token")
        token = token_of(request)
        if token is None:
            return True
        wanted = scope_of(view, request.method or "")
        self.message = f"this token has the scopes {', '.join(token.scopes)}; this needs {wanted}"
        return allows(token.scopes, wanted)


def scope_of(view: APIView, method: str) -> Scope:
    """The scope that a view wants for a method."""
    scopes = cast("Mapping[str, Scope]", getattr(view, "scopes", {}))
    action = getattr(view, "action", None) or method.lower()
    default = Scope.READ if method in permissions.SAFE_METHODS else Scope.ADMIN
    return scopes.get(action, scopes.get(method.lower(), default))


def token_of(request: Request) -> ApiToken | None:
    """The token that the request came with."""
    return request.auth if isinstance(request.auth, ApiToken) else None


def user_of(request: Request) -> User:
    """Whoever asks; HasScope has seen to it that there is somebody."""
    return cast(User, request.user)
