"""One-time passwords: given out once, to be changed at the first sign-in."""

from __future__ import annotations

import secrets

from teams.models import User

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def new_password() -> str:
    """A password that can be read aloud: five groups of four letters and digits, about 100 bits."""
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(4)) for _ in range(5))


def give_new(user: User) -> str:
    """Replace the password of a user, whose row the caller has locked, and return the new one; ends all sessions."""
    password = new_password()
    user.set_password(password)
    user.must_change_password = True
    user.save(update_fields=["password", "must_change_password"])
    return password
