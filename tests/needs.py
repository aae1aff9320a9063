"""What a test may need that this machine may lack, with the one line that says how to get it.

`@pytest.mark.needs("shared")` skips a test without it; with ROTA_REQUIRE_ALL=1 the test fails instead.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("ROTA_SHARED", ROOT.parent / "shared"))


class Need(NamedTuple):
    """A thing that is there or not, and the line that a person reads when it is not."""

    there: Callable[[], bool]
    missing: str


CHROMIUM = Path(os.environ.get("ROTA_CHROMIUM", "/usr/bin/chromium"))

NEEDS = {
    "chromium": Need(
        there=CHROMIUM.exists,
        missing="a browser: install Debian's chromium and fonts-noto-cjk, or set ROTA_CHROMIUM to one",
    ),
    "shared": Need(
        there=(SHARED / "scenarios").is_dir,
        missing="the scenario files and traces: set ROTA_SHARED to the folder that holds scenarios/ and data/",
    ),
}


def required() -> bool:
    """Return whether a missing need is a failure."""
    return os.environ.get("ROTA_REQUIRE_ALL") == "1"
