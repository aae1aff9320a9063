"""The output of a job as plain text: without the escape sequences by which programs colour a terminal. Pure."""

from __future__ import annotations

import re

# ECMA-48: CSI … final byte, OSC … BEL or ST, other two-byte escapes; and controls that are no white space.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)?$")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
LONGEST_ESCAPE = 1_024


def plain_text(data: bytes, *, last: bool) -> tuple[str, int]:
    """The text of ``data`` and how many of its bytes that takes.

    A character or an escape sequence that is cut off at the end is left for the next piece, unless this is the
    ``last`` one or it is longer than any should be. What is no UTF-8 is shown as �.
    """
    end = len(data)
    if not last:
        end -= _cut_character(data)
        cut = _UNFINISHED.search(data[max(0, end - LONGEST_ESCAPE) : end])
        if cut is not None:
            end -= len(cut.group())
    text = data[:end].decode("utf-8", "replace")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("", text), end


def _cut_character(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character that is not complete."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if length > back else 0
        if byte & 0x80 == 0:
            return 0
    return 0
