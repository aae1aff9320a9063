"""Users: list them, make one, give a new password, shut out and let in again. All of it for admins."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from api.parsing import body_of
from api.views import NAME, Resource, StrictSerializer, parsed
from teams import services
from teams.models import User
from teams.problems import Forbidden, NotFound

ONCE = {"Cache-Control": "no-store"}


class UserSerializer(serializers.ModelSerializer[User]):
    """A person, or a program with an account of its own."""

    name = serializers.CharField(source="get_full_name", read_only=True)
    email = serializers.CharField(read_only=True, help_text="Empty where there is none.")
    admin = serializers.BooleanField(source="is_superuser", read_only=True, help_text="Runs the platform.")
    active = serializers.BooleanField(source="is_active", read_only=True, help_text="May come in.")

    class Meta:
        model = User
        fields = ("username", "name", "email", "admin", "active", "must_change_password", "date_joined", "last_login")
        read_only_fields = fields


class MadeUserSerializer(UserSerializer):
    """A user with a one-time password: pass it on, it is not shown again."""

    one_time_password = serializers.SerializerMethodField(help_text="Shown this once; changed at the first sign-in.")

    class Meta(UserSerializer.Meta):
        fields = (*UserSerializer.Meta.fields, "one_time_password")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]

    def get_one_time_password(self, user: User) -> str:
        """Known to whoever has just made it, and to nobody else."""
        return str(self.context["password"])


class NewUserSerializer(StrictSerializer):
    """A user to make."""

    username = serializers.CharField(max_length=150, help_text="Letters, digits and @ . + - _")
    name = serializers.CharField(max_length=150, required=False, allow_blank=True, default="")
    email = serializers.EmailField(max_length=254, required=False, allow_blank=True, default="")
    admin = serializers.BooleanField(required=False, default=False, help_text="Whether it may run the platform.")


class UserViewSet(Resource):
    """The accounts, for admins."""

    queryset = User.objects.none()
    serializer_class = UserSerializer
    lookup_field = "username"
    lookup_value_regex = NAME

    def get_queryset(self) -> QuerySet[User]:
        """All of them by name. Raises Forbidden."""
        if not self.standing.admin:
            raise Forbidden("admin_only", "only a platform admin may look after users")
        return User.objects.order_by("username")

    @extend_schema(summary="List users")
    def list(self, request: Request) -> Response:
        """A page of users by name, deactivated ones too. For admins."""
        return self.page(self.get_queryset(), request, UserSerializer)

    @extend_schema(summary="Make a user", request=NewUserSerializer, responses={201: MadeUserSerializer})
    def create(self, request: Request) -> Response:
        """For admins. The answer holds the one-time password, this once."""
        said = parsed(NewUserSerializer, body_of(request))
        user, password = services.create_user(author=self.user, **said)
        return Response(MadeUserSerializer(user, context={"password": password}).data, status=201, headers=ONCE)

    @extend_schema(summary="Give a new one-time password", request=None, responses=MadeUserSerializer)
    @action(detail=True, methods=["post"], url_path="reset-password")
    def reset_password(self, request: Request, username: str) -> Response:
        """For admins. The old password and the sessions end at once; tokens stay until they are revoked."""
        user = self._user(username)
        password = services.reset_password(author=self.user, user=user)
        user.refresh_from_db()
        return Response(MadeUserSerializer(user, context={"password": password}).data, headers=ONCE)

    @extend_schema(summary="Shut a user out", request=None, responses=UserSerializer)
    @action(detail=True, methods=["post"])
    def deactivate(self, request: Request, username: str) -> Response:
        """For admins. Sessions and tokens are worth nothing from now on; jobs stay. Not for oneself."""
        return self._set_active(username, active=False)

    @extend_schema(summary="Let a user in again", request=None, responses=UserSerializer)
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, username: str) -> Response:
        """For admins."""
        return self._set_active(username, active=True)

    def _set_active(self, username: str, *, active: bool) -> Response:
        user = services.set_active(author=self.user, user=self._user(username), active=active)
        return Response(UserSerializer(user).data)

    def _user(self, username: str) -> User:
        user = self.get_queryset().filter(username=username).first()
        if user is None:
            raise NotFound("user_not_found", f"there is no user {username}")
        return user
