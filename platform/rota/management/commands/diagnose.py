"""`manage.py diagnose`: the part of `rota check` that needs Django."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, INFO, WARNING, CheckMessage, run_checks
from django.core.management.base import BaseCommand

from rota import probes

KINDS = ((ERROR, "error"), (WARNING, "warning"), (INFO, "note"))


class Command(BaseCommand):
    """One line for each finding; exit status 1 when one of them is an error."""

    help = "Say what is wrong with this configuration, its database, broker, clock, disk and tables."
    requires_system_checks = ()  # it runs them itself

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print the findings."""
        checks = run_checks(include_deployment_checks=settings.ENV.production)
        found = [message for message in (*checks, *probes.run()) if not message.is_silenced()]
        for message in sorted(found, key=lambda message: -message.level):
            self.stdout.write(line(message))
        errors = sum(message.level >= ERROR for message in found)
        self.stdout.write(f"{errors} errors" if errors else "ok       nothing here stops Rota from running")
        if errors:
            sys.exit(1)


def line(message: CheckMessage) -> str:
    """A finding as one line."""
    kind = next((word for level, word in KINDS if message.level >= level), "note")
    hint = f" {message.hint}" if message.hint else ""
    return " ".join(f"{kind:<8} {message.msg.rstrip('.')}.{hint} [{message.id}]".split("\n"))
