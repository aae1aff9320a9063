"""Users and teams."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.translation import gettext_lazy as _


class User(AbstractUser):
    """A person, or a program with an account of its own, who can sign in."""

    must_change_password = models.BooleanField(
        _("must change password"),
        default=False,
        help_text=_("The password was given out once and must be changed at the next sign-in."),
    )
