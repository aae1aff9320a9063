#!/usr/bin/env python
"""Django's management commands, with Rota's source roots on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
for source_root in ("client", "platform", "."):
    sys.path.insert(0, str((ROOT / source_root).resolve()))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rota.settings")
os.environ.setdefault("ROTA_DB_POOL", "0")  # one thread, one connection, and a clear error at once where it fails

from django.core.management import execute_from_command_line  # noqa: E402

from rota.env import EnvError  # noqa: E402


def main() -> int:
    """Run the command; a wrong environment is said in a line each, without a traceback."""
    try:
        execute_from_command_line(sys.argv)
    except EnvError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
