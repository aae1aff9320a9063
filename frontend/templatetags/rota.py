"""`{% load rota %}`: icons, badges, times and small drawings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django import template
from django.forms import BoundField
from django.templatetags.static import static
from django.utils import formats, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

from frontend import clock, words
from scheduler.inventory.models import BackendKind

register = template.Library()


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """An icon of the sprite, for the eye alone: what it says must also stand in words."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        classes, static("vendor/icons.svg"), name,
    )  # fmt: skip


def _badge(look: words.Look, title: str = "") -> SafeString:
    return format_html(
        '<span class="badge state-badge bg-{}-lt" title="{}">{}<span>{}</span></span>',
        look.colour, title or look.meaning, icon(look.icon), look.title,
    )  # fmt: skip


@register.filter
def job_state(state: str) -> SafeString:
    """The badge of a job's state."""
    return _badge(words.look(words.JOB_STATES, state))


@register.filter
def reason_badge(code: str) -> SafeString:
    """The badge of a reason."""
    return _badge(words.look(words.REASONS, code))


@register.filter
def node_state(state: str) -> SafeString:
    """The badge of a node's state."""
    return _badge(words.look(words.NODE_STATES, state))


@register.filter
def gpu_state(state: str) -> SafeString:
    """The badge of a card's state on the map."""
    return _badge(words.look(words.GPU_STATES, state))


@register.filter
def event_look(kind: str) -> words.Look:
    """How an event of a job looks."""
    return words.look(words.EVENTS, kind)


@register.filter
def end_title(end: str) -> str:
    """How an attempt ended, in words."""
    return str(words.ENDS.get(end, end))


@register.filter
def actor_title(actor: str) -> str:
    """Who caused an event, in words."""
    return str(words.ACTORS.get(actor, actor))


@register.filter
def said(text: str) -> str:
    """A stored English sentence in the reader's language."""
    return words.said(text or "")


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """A moment as "2 min ago" or "in 3 h", kept up to date by the browser, with the exact time as its title."""
    if moment is None:
        return "–"
    return format_html(
        '<time datetime="{}" data-ago title="{}">{}</time>',
        moment.isoformat(), exact(moment), clock.ago((timezone.now() - moment).total_seconds()),
    )  # fmt: skip


@register.filter
def since(moment: datetime | None) -> SafeString | str:
    """The time that has passed since a moment, running on in the browser."""
    if moment is None:
        return "–"
    return format_html(
        '<time datetime="{}" data-since title="{}">{}</time>',
        moment.isoformat(), exact(moment), clock.span((timezone.now() - moment).total_seconds()),
    )  # fmt: skip


@register.filter
def exact(moment: datetime | None) -> str:
    """A moment to the second, with its time zone."""
    if moment is None:
        return ""
    local = timezone.localtime(moment)
    return f"{formats.date_format(local, 'Y-m-d H:i:s')} {local.tzname() or ''}".strip()


@register.filter
def span(seconds: float | None) -> str:
    """A length of time as "1 h 5 min"."""
    return "–" if seconds is None else clock.span(seconds)


@register.simple_tag
def took(start: datetime | None, end: datetime | None) -> SafeString | str:
    """How long something took, or has been taking until now."""
    if start is None:
        return "–"
    return since(start) if end is None else clock.span((end - start).total_seconds())


@register.filter
def percent(share: float | None) -> str:
    """A share as a whole percentage; a dash where it is not known."""
    return "–" if share is None else f"{round(share * 100)}%"


@register.filter
def gib(mib: float | None) -> str:
    """MiB as GiB, with one digit where it is not whole."""
    return "–" if mib is None else f"{formats.localize(round(mib / 1024, 1)).removesuffix('.0')} GiB"


@register.filter
def styled(field: BoundField) -> SafeString:
    """A form field with Tabler's classes, marked as invalid and tied to its error where it has one."""
    kind = {"select": "form-select", "checkbox": "form-check-input"}.get(field.widget_type, "form-control")
    attributes: dict[str, str | bool] = {"class": f"{kind} is-invalid" if field.errors else kind}
    if field.errors:
        attributes |= {"aria-invalid": "true", "aria-describedby": f"{field.id_for_label}_error"}
    return field.as_widget(attrs=attributes)


@register.simple_tag
def bar(*parts: object, label: str = "") -> SafeString:
    """A bar of shares: pairs of a colour and a number from 0 to 1. The label says in words what it shows."""
    pairs = [(str(colour), float(share or 0)) for colour, share in zip(parts[::2], parts[1::2], strict=True)]  # type: ignore[arg-type]
    rects, x = [], 0.0
    for colour, share in pairs:
        width = max(0.0, min(share * 100, 100 - x))
        if width:
            rects.append((f"{x:.2f}%", f"{width:.2f}%", colour))
        x += width
    inner = format_html_join("", '<rect x="{}" y="0" width="{}" height="100%" class="fill-{}"></rect>', rects)
    if not label:  # the number beside it says the same
        return format_html('<svg class="share-bar" aria-hidden="true">{}</svg>', inner)
    return format_html('<svg class="share-bar" role="img" aria-label="{}">{}</svg>', label, inner)


@register.simple_tag
def spark(values: Sequence[float] | None, colour: str = "blue", top: float | None = None) -> SafeString:
    """A line of the last values, for the eye: the number beside it says the last."""
    numbers = list(values or ())
    if len(numbers) < 2:
        return mark_safe('<svg class="spark" aria-hidden="true"></svg>')
    most = top or max(*numbers, 1e-9)
    points = " ".join(
        f"{100 * i / (len(numbers) - 1):.1f},{30 - 27 * min(1.0, value / most):.1f}" for i, value in enumerate(numbers)
    )
    return format_html(
        '<svg class="spark stroke-{}" viewBox="0 0 100 32" preserveAspectRatio="none" aria-hidden="true">'
        '<polygon points="0,32 {} 100,32"></polygon><polyline points="{}"></polyline></svg>',
        colour, points, points,
    )  # fmt: skip


@register.filter
def joined(values: Iterable[object]) -> str:
    """Values with commas between them."""
    return ", ".join(str(value) for value in values)


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: object) -> str:
    """The address's query with some values changed; a change to nothing removes one."""
    values = context["request"].GET.copy()
    for name, value in changes.items():
        if value in (None, ""):
            values.pop(name, None)
        else:
            values[name] = str(value)
    return f"?{values.urlencode()}" if values else "?"


@register.simple_tag
def yes_no(value: object) -> str:
    """Yes or no, in words."""
    return gettext("yes") if value else gettext("no")


@register.simple_tag
def svg_top(share: float) -> str:
    """Where a column of that height (0 to 1) begins in a drawing of height 100; a small one is still seen."""
    return f"{100 - _column(share):.1f}"


@register.simple_tag
def svg_height(share: float) -> str:
    """The height of a column (0 to 1) in a drawing of height 100."""
    return f"{_column(share):.1f}"


def _column(share: float) -> float:
    return max(2.0, share * 100) if share else 0.0


@register.simple_tag
def cards(states: Sequence[str]) -> SafeString:
    """The cards of a node as small cells, one for each, with their states in words for who does not see them."""
    cells = format_html_join(
        "", '<rect x="{}" y="0" width="10" height="14" rx="2" class="map-{}"></rect>',
        ((place * 13, state) for place, state in enumerate(states)),
    )  # fmt: skip
    counts = ((words.look(words.GPU_STATES, state).title, states.count(state)) for state in dict.fromkeys(states))
    label = ", ".join(f"{count} {title}" for title, count in counts)
    width = max(1, 13 * len(states) - 3)
    return format_html(
        '<svg class="cards" viewBox="0 0 {} 14" width="{}" height="14" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>",
        width, width, label, label, cells,
    )  # fmt: skip


@register.filter
def at(values: Mapping[str, object], key: str) -> object:
    """What stands under a key."""
    return values.get(key)


@register.filter
def backend_title(backend: str) -> str:
    """What a kind of cluster is called."""
    return str(dict(BackendKind.choices).get(backend, backend))
