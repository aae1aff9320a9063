"""Changing users, teams and memberships. Each verb is one transaction; a refusal is a `teams.problems.Problem`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pghistory
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.text import slugify

from teams.models import Membership, Role, Team, TeamState, User
from teams.passwords import give_new, new_password
from teams.permissions import may_lead_team
from teams.problems import Conflict, Forbidden, Invalid
from teams.selectors import standing_of


@contextmanager
def change_numbers(author: User | None, reason: str) -> Iterator[None]:
    """One transaction that changes teams or quotas: says in their history who did it and why, raises the revision."""
    with transaction.atomic(), pghistory.context(user=author.pk if author else None, reason=reason):
        yield
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO teams_revision (id, number) VALUES (1, 1)"
                " ON CONFLICT (id) DO UPDATE SET number = teams_revision.number + 1"
            )


def create_team(
    *, author: User, name: str, slug: str = "", parent: Team | None = None, weight: float = 1.0, reason: str = ""
) -> Team:
    """Make a team; ``slug`` is made of the name where none is given."""
    _admin(author)
    team = Team(name=name.strip(), slug=slug or slugify(name), parent=parent, weight=weight)
    with change_numbers(author, reason or "created"):
        if parent is not None:
            _lock_open(parent)
        _save(team)
    return team


def change_team(
    *, author: User, team: Team, name: str | None = None, slug: str | None = None, weight: float | None = None,
    reason: str = "",
) -> Team:  # fmt: skip
    """Rename a team or change its weight; its id, jobs and history stay."""
    _admin(author)
    with change_numbers(author, reason or "changed"):
        team = _lock(team)
        team.name = team.name if name is None else name.strip()
        team.slug = team.slug if slug is None else slug
        team.weight = team.weight if weight is None else weight
        _save(team)
    return team


def add_member(
    *, author: User, team: Team, user: User, role: str = Role.MEMBER, until: datetime | None = None
) -> Membership:
    """Let a user into a team, or change the role or the end of a membership."""
    _lead(author, team)
    if role not in Role.values:
        raise Invalid("role_unknown", f"role: must be one of {', '.join(Role.values)}", field="role")
    with transaction.atomic(), pghistory.context(user=author.pk, reason="member added"):
        _lock_open(team)
        membership, _ = Membership.objects.update_or_create(
            team=team, user=user, defaults={"role": role, "until": until}
        )
    return membership


def remove_member(*, author: User, team: Team, user: User) -> None:
    """End a membership at once; jobs that the user has submitted stay the team's. Nothing to do: does nothing."""
    if author.pk != user.pk:
        _lead(author, team)
    with transaction.atomic(), pghistory.context(user=author.pk, reason="member removed"):
        Membership.objects.filter(team=team, user=user).delete()


def begin_drain(*, author: User, team: Team, reason: str) -> Team:
    """Let a team take no new jobs. Idempotent; `jobs.services.archive_team` decides what becomes of those it has."""
    _admin(author)
    with change_numbers(author, reason):
        team = _lock(team)
        _no_children(team)
        team.state = TeamState.DRAINING
        team.save(update_fields=["state"])
    return team


def mark_archived(*, author: User | None, team: Team, reason: str) -> Team:
    """Archive a team, which frees its slug and name. The caller has seen, under the team's lock, that it is idle."""
    with change_numbers(author, reason):
        team = _lock(team)
        _no_children(team)
        team.archived_at = timezone.now()
        team.save(update_fields=["archived_at"])
    return team


def create_user(
    *, author: User, username: str, name: str = "", email: str = "", admin: bool = False
) -> tuple[User, str]:  # fmt: skip
    """Make an account and return it with its one-time password, which is never to be had again.

    One signs in with the user name or the e-mail address in any case, so neither may differ from another by case alone.
    """
    _admin(author)
    password = new_password()
    user = User(
        username=User.normalize_username(username.strip()), first_name=name.strip(), email=email.strip(),
        is_superuser=admin, is_staff=admin, must_change_password=True,
    )  # fmt: skip
    user.set_password(password)
    _check_user(user)
    try:
        with transaction.atomic(), pghistory.context(user=author.pk, reason="account made"):
            user.save()
    except IntegrityError:
        _check_user(user)
        raise
    return user, password


def reset_password(*, author: User, user: User) -> str:
    """Replace a password that was lost and return the new one-time password; ends the sessions, not the tokens."""
    _admin(author)
    with transaction.atomic(), pghistory.context(user=author.pk, reason="password replaced"):
        return give_new(User.objects.select_for_update(no_key=True).get(pk=user.pk))


def set_active(*, author: User, user: User, active: bool) -> User:
    """Shut an account out at once, with its sessions and tokens, or let it in again. Jobs stay. Idempotent.

    Nobody shuts out oneself, so there is always an administrator left.
    """
    if author.pk == user.pk and not active:
        raise Conflict("own_account", "nobody deactivates the own account", field="username")
    with transaction.atomic(), pghistory.context(user=author.pk, reason="activated" if active else "deactivated"):
        # Both rows, in one order: of two admins who shut out each other the second is none any more.
        both = User.objects.select_for_update(no_key=True).filter(pk__in=(author.pk, user.pk)).order_by("pk")
        rows = {row.pk: row for row in both}
        _admin(rows[author.pk])
        locked = rows[user.pk]
        locked.is_active = active
        locked.save(update_fields=["is_active"])
    return locked


def lock_team(team_id: int, *, exclusive: bool = False) -> TeamState | None:
    """Lock a team's row and return its state, None where it is archived or gone.

    Shared: it cannot be drained or archived before this transaction ends. Exclusive: nobody else holds either lock.
    """
    how = "FOR NO KEY UPDATE" if exclusive else "FOR SHARE"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT state FROM teams_team WHERE id = %s AND archived_at IS NULL {how}", [team_id])  # noqa: S608
        row = cursor.fetchone()
    return None if row is None else TeamState(row[0])


def _lock(team: Team) -> Team:
    try:
        return Team.objects.select_for_update(no_key=True).get(pk=team.pk, archived_at=None)
    except Team.DoesNotExist:
        raise Conflict("team_archived", f"the team {team.slug} is archived") from None


def _lock_open(team: Team) -> Team:
    locked = _lock(team)
    if locked.state != TeamState.OPEN:
        raise Conflict("team_draining", f"the team {locked.slug} is being archived")
    return locked


def _no_children(team: Team) -> None:
    children = list(team.children.filter(archived_at=None).values_list("slug", flat=True).order_by("slug"))
    if children:
        raise Conflict(
            "team_has_children", f"the team {team.slug} still has the teams {', '.join(children)}", children=children
        )


def _save(team: Team) -> None:
    """Save a team; what the table would refuse is refused in words, also when two ask for one name at once."""
    _check(team)
    try:
        with transaction.atomic():
            team.save()
    except IntegrityError:
        _check(team)
        raise


def _check(team: Team) -> None:
    for field in ("name", "slug", "weight"):
        try:
            team.clean_fields(exclude={each.name for each in Team._meta.fields} - {field})
        except ValidationError as error:
            raise Invalid("invalid", f"{field}: {'; '.join(error.messages)}", field=field) from None
    taken = Team.objects.filter(Q(slug=team.slug) | Q(name=team.name), archived_at=None).exclude(pk=team.pk).first()
    if taken is not None:
        field = "slug" if taken.slug == team.slug else "name"
        raise Conflict("taken", f"{field}: there is already a team {getattr(team, field)}", field=field)


def _check_user(user: User) -> None:
    """Refuse what the table, or the page to sign in, would stumble over."""
    for field, column in (("username", "username"), ("name", "first_name"), ("email", "email")):
        try:
            user.clean_fields(exclude={each.name for each in User._meta.fields} - {column})
        except ValidationError as error:
            raise Invalid("invalid", f"{field}: {'; '.join(error.messages)}", field=field) from None
    if not user.username.strip("."):
        raise Invalid("invalid", "username: must be more than dots", field="username")
    if not user.first_name.isprintable():
        raise Invalid("invalid", "name: must be printable characters", field="name")
    if User.objects.filter(username__iexact=user.username).exists():
        raise Conflict("taken", f"username: there is already a user {user.username}", field="username")
    if user.email and User.objects.filter(email__iexact=user.email).exists():
        raise Conflict("taken", f"email: there is already a user with the address {user.email}", field="email")


def _admin(user: User) -> None:
    if not standing_of(user).admin:
        raise Forbidden("admin_only", "only a platform admin may do that")


def _lead(user: User, team: Team) -> None:
    if not may_lead_team(standing_of(user), team.pk):
        raise Forbidden("lead_only", f"only a lead of {team.slug} or a platform admin may do that")
