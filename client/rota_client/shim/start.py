"""How a shim is started: a clean interpreter, no site-packages, this package by its path, nothing else imported."""

from __future__ import annotations

import os
import sys

_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The path is appended: no module beside the package may ever shadow one of the standard library.
_CODE = "import sys; sys.path.append(sys.argv[1]); from shim import supervise; supervise.main(sys.argv[2])"


def command_line(folder: str) -> list[str]:
    """The argument list that runs the shim of the replica whose `spec` lies in `folder` (absolute)."""
    return [sys.executable, "-I", "-S", "-c", _CODE, _PARENT, folder]
