"""What a token may be used for. Pure. A token never allows more than the person who made it may do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """From little to much; each includes those before it."""

    READ = "read"
    """See what its owner sees."""
    SUBMIT = "submit"
    """Submit jobs; cancel, retry, hold and release those that its owner may change."""
    MANAGE = "manage"
    """Look after teams and members, and what else is neither a job nor for admins."""
    ADMIN = "admin"
    """What only platform admins may do: users, clusters, nodes, quotas; and making and revoking tokens."""


ALL = tuple(Scope)


def allows(granted: Iterable[str], wanted: Scope) -> bool:
    """Whether one of the scopes ``granted`` includes ``wanted``."""
    return any(ALL.index(Scope(scope)) >= ALL.index(wanted) for scope in granted)


def within(asked: Iterable[str], granted: Iterable[str]) -> bool:
    """Whether all scopes ``asked`` for are included in those ``granted``."""
    held = tuple(granted)
    return all(allows(held, Scope(scope)) for scope in asked)
