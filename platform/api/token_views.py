"""Tokens: make one (its text is shown once), list, revoke."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import tokens
from api.authentication import token_of
from api.models import ApiToken
from api.parsing import body_of
from api.scopes import Scope, allows, within
from api.views import KEY, Resource, StrictSerializer, parsed
from teams.models import User
from teams.problems import Forbidden, Invalid, NotFound

SCOPES = [(scope.value, scope.value) for scope in Scope]


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    """A token, without its secret."""

    user = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES))

    class Meta:
        model = ApiToken
        fields = ("key", "name", "user", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at")


class MadeTokenSerializer(TokenSerializer):
    """A token just made, with its text: keep it, it is not shown again."""

    token = serializers.SerializerMethodField(help_text="`rota_<key>.<secret>`, shown this once.")

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "token")  # type: ignore[assignment]

    def get_token(self, token: ApiToken) -> str:
        """Known to whoever has just made it, and to nobody else."""
        return str(self.context["text"])


class NewTokenSerializer(StrictSerializer):
    """A token to make."""

    name = serializers.CharField(max_length=200, help_text="What it is for.")
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES), min_length=1, max_length=len(SCOPES))
    expires_in_days = serializers.IntegerField(min_value=1, max_value=tokens.MOST_DAYS, default=tokens.DEFAULT_DAYS)
    user = serializers.CharField(max_length=150, required=False, help_text="Whose; only admins make them for others.")


class TokenViewSet(Resource):
    """One's own tokens; all of them for an admin."""

    queryset = ApiToken.objects.none()
    serializer_class = TokenSerializer
    lookup_field = "key"
    lookup_value_regex = KEY
    scopes: ClassVar = {"create": Scope.ADMIN, "destroy": Scope.READ}

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Those that whoever asks may see."""
        return tokens.visible_to(self.user)

    @extend_schema(summary="List tokens, newest first")
    def list(self, request: Request) -> Response:
        """A page of tokens, revoked ones too."""
        return self.page(self.get_queryset(), request, TokenSerializer)

    @extend_schema(summary="Make a token", request=NewTokenSerializer, responses={201: MadeTokenSerializer})
    def create(self, request: Request) -> Response:
        """With a token only one that allows no more than that token does."""
        said = parsed(NewTokenSerializer, body_of(request))
        mine = token_of(request)
        if mine is not None and not within(said["scopes"], mine.scopes):
            raise Forbidden("scope_missing", "a token cannot make one that allows more than itself")
        expires_at = timezone.now() + timedelta(days=said["expires_in_days"])
        token, text = tokens.issue(
            author=self.user, user=self._owner(said.get("user")), name=said["name"], scopes=said["scopes"],
            expires_at=expires_at,
        )  # fmt: skip
        data = MadeTokenSerializer(token, context={"text": text}).data
        return Response(data, status=201, headers={"Cache-Control": "no-store"})

    @extend_schema(summary="Revoke a token", responses={204: OpenApiResponse(description="It allows nothing more.")})
    def destroy(self, request: Request, key: str) -> Response:
        """A token may revoke itself; another one only with the scope `admin`."""
        token, mine = tokens.token_for(self.user, key), token_of(request)
        if mine is not None and mine.pk != token.pk and not allows(mine.scopes, Scope.ADMIN):
            raise Forbidden("scope_missing", "this token may revoke none but itself")
        tokens.revoke(author=self.user, token=token)
        return Response(status=204)

    def _owner(self, username: str | None) -> User:
        if username is None or username == self.user.get_username():
            return self.user
        if not self.standing.admin:
            raise Forbidden("admin_only", "only a platform admin may make tokens for others")
        user = User.objects.filter(username=username).first()
        if user is None:
            raise NotFound("user_not_found", f"user: there is no user {username}", field="user")
        if not user.is_active:
            raise Invalid("invalid", "user: has been deactivated", field="user")
        return user
