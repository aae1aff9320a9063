"""The strict reader of YAML and JSON text."""

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.reading import SpecError
from scheduler.drive.scenario.plain import load


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: -1.5", {"a": -1.5}),
        ("a: 1.0e+3", {"a": 1000.0}),
        ("a: true", {"a": True}),
        ("a: null\nb:\nc: ~", {"a": None, "b": None, "c": None}),
        ("a: 20:00", {"a": "20:00"}),
        ("a: 08:00", {"a": "08:00"}),
        ("a: no", {"a": "no"}),
        ("a: 2026-03-02T00:00:00", {"a": "2026-03-02T00:00:00"}),
        ("a: 1e9", {"a": "1e9"}),
        ("a: 010", {"a": "010"}),
        ("a: 0x1F", {"a": "0x1F"}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: '5'", {"a": "5"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: [1, [2, {b: c}]]", {"a": [1, [2, {"b": "c"}]]}),
        ("{a: b}", {"a": "b"}),
        ('{"a": 1e3}', {"a": 1000.0}),
        ("x: &x {a: 1}\ny: *x", {"x": {"a": 1}, "y": {"a": 1}}),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}),
        ("y: {<<: [{a: 1}, {a: 2, b: 2}]}", {"y": {"a": 1, "b": 2}}),
        ("", None),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
    ],
    ids=range(24),
)
def test_values(text: str | bytes, value: object) -> None:
    assert load(text) == value


def test_not_a_number_and_infinity_are_read_so_that_they_can_be_refused_by_name() -> None:
    value: Any = load("[.nan, .inf, -.inf]")
    assert str(value) == "[nan, inf, -inf]"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "a: is there twice"),
        ('{"jobs": [{"name": "x"}, {"name": "x", "name": "y"}]}', "jobs[1].name: is there twice"),
        ("jobs:\n- {name: x}\n- {name: x, name: y}", "jobs[1].name: is there twice"),
        ("a: [1", "line 2: is not YAML: did not find expected ',' or ']'"),
        ("a: 1\n b: 2", "line 2: is not YAML: mapping values are not allowed in this context"),
        ("a: 1\n\tb: 2", "line 2: is not YAML: found a tab character that violates indentation"),
        ("a: 1\n---\nb: 2", "the file must hold one document"),
        ("a: !!python/object:os.system x", 'a: the tag "tag:yaml.org,2002:python/object:os.system" is not supported'),
        ("a: !!set {x: null}", 'a: the tag "tag:yaml.org,2002:set" is not supported'),
        ("? [a]\n: b", "a key must be text"),
        ("a: *b", 'a: the alias "b" has nothing complete to stand for'),
        ("a: &a [*a]", 'a[0]: the alias "a" has nothing complete to stand for'),
        ("a: {<<: 5}", "a: << takes a mapping or a list of them"),
        (BOMB, "f[7]: aliases stand for more than 1000000 values"),
        ("[" * 100 + "]" * 100, "[0]" * 64 + ": is nested too deeply"),
        ('{"a":' * 100_000, "a." * 63 + "a: is nested too deeply"),
        ("- " * 100_000, "[0]" * 64 + ": is nested too deeply"),
        (b"a: \xff", "the file is not UTF-8 text (byte 3)"),
    ],
    ids=range(18),
)
def test_refusals(text: str | bytes, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(SpecError) as caught:
        load(text)
    assert str(caught.value) == message
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("text", ["\0", "a: \x07", "\ud800", "%YAML 9.9\n---\na", "'", '"\\x"', "{" * 9, "9" * 9_999])
def test_broken_text_gets_one_line(text: str) -> None:
    line = ""
    try:
        load(text)
    except SpecError as error:
        line = str(error)
    assert len(line.splitlines()) <= 1


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    line = ""
    try:
        load(text)
    except SpecError as error:
        line = str(error)
    assert len(line.splitlines()) <= 1


WORDS = st.text("0123456789abefxon.:+-_~<= ", max_size=8) | st.text(max_size=8).filter(str.isprintable)


@given(st.dictionaries(WORDS, WORDS | st.integers(-(10**15), 10**15) | st.booleans() | st.none(), max_size=4))
def test_what_others_write_reads_as_it_was_meant(values: dict[str, Any]) -> None:
    """Writers of YAML 1.1 and JSON alike: a team called 6214e9 or no stays one.

    But for characters that cannot be seen, where the two versions of YAML differ.
    """
    assert load(yaml.safe_dump(values, allow_unicode=True)) == values
    assert load(json.dumps(values)) == values
