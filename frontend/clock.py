"""How lengths of time are said: the same patterns serve the templates and, as data, the browser."""

from __future__ import annotations

from django.utils.translation import gettext, gettext_noop, pgettext

AGO = {
    "s": gettext_noop("%d s ago"),
    "m": gettext_noop("%d min ago"),
    "h": gettext_noop("%d h ago"),
    "d": gettext_noop("%d d ago"),
}
AHEAD = {
    "s": gettext_noop("in %d s"),
    "m": gettext_noop("in %d min"),
    "h": gettext_noop("in %d h"),
    "d": gettext_noop("in %d d"),
}
UNITS = {"s": gettext_noop("%d s"), "m": gettext_noop("%d min"), "h": gettext_noop("%d h"), "d": gettext_noop("%d d")}
SIZES = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def ago(seconds: float) -> str:
    """``seconds`` in the past (negative: ahead) in its largest whole unit."""
    patterns, length = (AGO, seconds) if seconds >= 0 else (AHEAD, -seconds)
    if length < 1:
        return pgettext("time", "now")
    unit = next(unit for unit, size in SIZES.items() if length >= size)
    return gettext(patterns[unit]) % (length // SIZES[unit])


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    left = max(0, round(seconds))
    said: list[str] = []
    for unit, size in SIZES.items():
        count, left = divmod(left, size)
        if count or (unit == "s" and not said):
            said.append(gettext(UNITS[unit]) % count)
        elif said:
            break
    return " ".join(said[:2])


def patterns() -> dict[str, dict[str, str] | str]:
    """What the browser needs to say the same, in the language of this request."""
    spoken = {name: {unit: gettext(text) for unit, text in table.items()} for name, table in _TABLES.items()}
    return {**spoken, "now": pgettext("time", "now")}


_TABLES = {"ago": AGO, "ahead": AHEAD, "units": UNITS}
