"""Text without its layout: of the same length for finding headers, folded for reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import every_row

from cxrlab.data.sections import folded, is_markup, plain


@given(
    st.text()
    | st.lists(st.sampled_from(["<br>", "</b>", "&nbsp;", "**", "__A b__", "\r\n", "# ", "\x85"])).map("".join),
    st.booleans(),
)
def test_a_place_in_the_plain_text_is_a_place_in_the_text(text: str, markup: bool) -> None:
    """The length never changes, so offsets hold."""
    assert len(plain(text, markup=markup)) == len(text)


@every_row(
    ("text", "expected"),
    [
        ("a\nb", "a b"),
        ("a \n  b\n\n c", "a b\nc"),
        ("1. a\n b\n2) c\n(3) d\n- e", "1. a b\n2) c\n(3) d\n- e"),
        ("a\n3.5 cm", "a 3.5 cm"),
        ("a  b\u00a0c\td", "a  b c d"),
        ("**a** b", "a b"),
        ("a &amp; <b>b</b>", "a &amp; <b>b</b>"),
        (" \n ", ""),
    ],
)
def test_folding(text: str, expected: str) -> None:
    """Wraps become blanks, paragraphs and list items lines; a number that is no item stays in its line."""
    assert folded(text, markup=False) == expected


def test_folding_markup() -> None:
    """Tags go or become line ends, references are resolved once."""
    assert folded("<p>a&nbsp;&lt; b</p>c &amp;lt; <i>d</i>", markup=True) == "a < b c &lt; d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a<br>b", False), ("a<br>b<br>c", True), ("a</b>", True), ("1 < 2 > 1", False), ("<unknown></unknown>", False)],
)
def test_what_is_markup(text: str, expected: bool) -> None:
    """One closing tag, or two tags of HTML; a single one is a remnant."""
    assert is_markup(text) is expected
