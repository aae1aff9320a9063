"""YAML or JSON text to plain values, strictly: one document, no key twice, no tags, and nothing that explodes.

Unquoted scalars are numbers, true, false or null only where YAML 1.1 and 1.2 agree on it and text everywhere else:
``20:00``, ``no``, ``010``, ``1e9`` and ``2026-03-02`` are text. So whatever a writer of either version leaves unquoted
reads as it was meant. JSON is read by the JSON parser, many times faster, where the text begins with ``{``.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from jobs.reading import SpecError, key_name, shown

DEPTH_MOST = 64
COPIES_MOST = 1_000_000
"""Values that aliases may add to those that are written out."""
DIGITS_MOST = 18

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMERIC = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_TEXT_TAGS = ("tag:yaml.org,2002:str", "!")
_MERGE = object()


def load(text: str | bytes) -> object:
    """Return the plain value that YAML or JSON ``text`` (bytes: UTF-8) holds; None when it is empty.

    Raises:
        SpecError: one line with the path, or the number of the line, and the fault.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SpecError("", f"the file is not UTF-8 text (byte {error.start})") from None
    if text.lstrip()[:1] == "{":
        try:
            return json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            pass  # a YAML mapping that only looks like JSON, or a fault for which the other reader knows the place
    try:
        return _Builder().build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SpecError(line, f"is not YAML: {_one_line(error.problem or error.context or 'broken')}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise SpecError("", f"is not YAML: {_one_line(str(error))}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _one_line(message: str) -> str:
    return " ".join(message.split())


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is being read; ``key`` is where its next value goes."""

    value: Any
    anchor: str | None
    began: int
    keyed: bool = False
    key: Any = None
    merged: list[dict[Any, Any]] = field(default_factory=list)


class _Builder:
    """Builds values from YAML events on a stack of its own, so that neither depth nor aliases exhaust anything."""

    def __init__(self) -> None:
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.size = 0  # values so far, those behind aliases counted each time
        self.copied = 0  # those behind aliases alone
        self.documents = 0
        self.root: Any = None

    def build(self, events: Iterator[yaml.Event]) -> Any:
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self.size += 1
                self.add(self.scalar(event), event.anchor, 1)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self.open(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.close()
            elif isinstance(event, yaml.AliasEvent):
                self.alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    raise SpecError("", "the file must hold one document")
        return self.root

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            raise self.fault(f"the tag {shown(event.tag)} is not supported")
        word = str(event.value)
        if not event.implicit[0]:  # in quotes, a block of text, or tagged as text
            return word
        if word == "<<" and self.stack and isinstance(self.stack[-1].value, dict) and not self.stack[-1].keyed:
            return _MERGE
        return _resolve(word)

    def open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag is not None and not event.implicit:
            raise self.fault(f"the tag {shown(event.tag)} is not supported")
        if self.stack and isinstance(self.stack[-1].value, dict) and not self.stack[-1].keyed:
            raise self.fault("a key must be text")
        if len(self.stack) == DEPTH_MOST:
            raise self.fault("is nested too deeply")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self.stack.append(_Frame({} if mapping else [], event.anchor, self.size))
        self.size += 1

    def close(self) -> None:
        frame = self.stack.pop()
        value = frame.value
        if frame.merged:  # what stands first wins, and what is written out wins over all
            value = {key: one for part in reversed(frame.merged) for key, one in part.items()} | value
        self.add(value, frame.anchor, self.size - frame.began)

    def alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self.anchors:
            raise self.fault(f"the alias {shown(event.anchor)} has nothing complete to stand for")
        value, size = self.anchors[event.anchor]
        self.size += size
        self.copied += size
        if self.copied > COPIES_MOST:
            raise self.fault(f"aliases stand for more than {COPIES_MOST} values")
        self.add(value, None, size)

    def add(self, value: Any, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif not frame.keyed:
            self.begin_key(frame, value)
        else:
            frame.keyed = False
            if frame.key is _MERGE:
                self.merge(frame, value)
            else:
                frame.value[frame.key] = value

    def begin_key(self, frame: _Frame, key: Any) -> None:
        if isinstance(key, dict | list):
            raise self.fault("a key must be text")
        if key is not _MERGE and key in frame.value:
            raise self.fault("is there twice", key)
        frame.key, frame.keyed = key, True

    def merge(self, frame: _Frame, value: Any) -> None:
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise self.fault("<< takes a mapping or a list of them")
        frame.merged += parts

    def fault(self, problem: str, key: Any = None) -> SpecError:
        """Return the error with the path of what is being read."""
        error = SpecError("" if key is None else key_name(str(key)), problem)
        for frame in reversed(self.stack):
            if isinstance(frame.value, list):
                error = error.under(len(frame.value))
            elif frame.keyed and frame.key is not _MERGE:
                error = error.under(str(frame.key))
        return error


def _resolve(word: str) -> Any:
    """Read an unquoted scalar."""
    if word in _WORDS:
        return _WORDS[word]
    if word[0] not in _NUMERIC:
        return word
    if _INTEGER.fullmatch(word):
        return int(word) if len(word) <= DIGITS_MOST else float(word)
    return float(word) if _FLOAT.fullmatch(word) else word
