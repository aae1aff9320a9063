"""`manage.py bootstrap`: bring the database up to date and make what a first start needs. Safe to repeat."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import import_string

from rota.bootstrap import replace_password
from teams.models import User


class Command(BaseCommand):
    """Prints the results of the steps as one JSON object, in its last line."""

    help = "Migrate, then run the steps of ROTA_BOOTSTRAP_STEPS; the last line is a JSON object of their results."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-migrate", action="store_true", help="leave the tables as they are")
        parser.add_argument("--new-password", metavar="USER", help="only give USER a new one-time password")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["new_password"]:
            try:
                results = dict(replace_password(options["new_password"]))
            except User.DoesNotExist:
                raise CommandError(f"--new-password: there is no user {options['new_password']!r}") from None
        else:
            results = self._steps(migrate=not options["no_migrate"])
        self.stdout.write(json.dumps(results))

    def _steps(self, *, migrate: bool) -> dict[str, str]:
        if migrate:
            call_command("migrate", interactive=False, verbosity=0)
        results: dict[str, str] = {}
        for name in settings.ROTA_BOOTSTRAP_STEPS:
            results |= import_string(name)() or {}
        return results
