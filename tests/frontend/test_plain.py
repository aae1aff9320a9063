"""A job's output as text: no escape sequence, no half character, nothing that turns a line around."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.plain import plain_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07after", "after"),
        (b"a\x1b(Bb", "ab"),
        (b"one\r\ntwo\r", "one\ntwo\r"),
        (b"bell\x07 null\x00", "bell null"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("\u202eevil".encode(), "evil"),
        ("中文\n".encode(), "中文\n"),
    ],
)
def test_text(data: bytes, text: str) -> None:
    assert plain_text(data, last=True) == (text, len(data))


def test_what_is_cut_off_waits_for_the_rest() -> None:
    """C73: a piece of a log may end in the middle of a character."""
    assert plain_text(b"a\x1b[3", last=False) == ("a", 1)
    assert plain_text("a中".encode()[:-1], last=False) == ("a", 1)
    assert plain_text("a中".encode()[:-1], last=True)[1] == 3


@given(st.text(), st.integers(1, 7))
def test_pieces_say_what_the_whole_says(text: str, size: int) -> None:
    data, said, at = text.encode("utf-8", "replace"), "", 0
    end = size
    while at < len(data):
        piece, used = plain_text(data[at:end], last=end >= len(data))
        said, at, end = said + piece, at + used, end + size
    assert said.replace("\r\n", "\n") == plain_text(data, last=True)[0].replace("\r\n", "\n")


@given(st.binary(max_size=200))
def test_anything_at_all_is_taken_in_whole(data: bytes) -> None:
    text, used = plain_text(data, last=True)
    assert used == len(data)
    assert "\x1b" not in text
