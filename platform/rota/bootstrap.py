"""Steps of a first start, run by `manage.py bootstrap` after the migrations, at every start and in this order.

A step is idempotent, takes nothing and returns a mapping (or None) of what must be told once. Known keys:
`admin_username` and `admin_password` (printed once by `rota up`) and `cli_token` (written to the home's cli.json for
the command line on this machine). A package adds its own step by name to ROTA_BOOTSTRAP_STEPS in the settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from teams.models import User
from teams.passwords import give_new, new_password

ADMIN = "admin"


def first_admin() -> Mapping[str, str] | None:
    """Make the first administrator, with a one-time password, where there is none yet."""
    with transaction.atomic():
        if User.objects.filter(is_superuser=True).exists():
            return None
        password = new_password()
        User.objects.create_superuser(username=ADMIN, password=password, must_change_password=True)
    return {"admin_username": ADMIN, "admin_password": password}


def replace_password(username: str) -> Mapping[str, str]:
    """Give `username` a new one-time password; raises User.DoesNotExist."""
    with transaction.atomic():
        user = User.objects.select_for_update().get(username=username)
        password = give_new(user)
    return {"admin_username": username, "admin_password": password}
