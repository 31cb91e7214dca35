from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cxrlab.core.codec import encode_png
from cxrlab.core.errors import DataError
from cxrlab.render.html import bar, facts, picture, section, table, text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (True, "yes"),
        (12345, "12,345"),
        (44.87, "44.9"),
        (0.4811, "0.481"),
        ({"a": 1, "b": None}, "a 1, b –"),
        (["x", 2], "x, 2"),
        ([], "–"),
        ('<a href="x">&\'', "&lt;a href=&quot;x&quot;&gt;&amp;&#x27;"),
        ({"<b>": ["<i>"]}, "&lt;b&gt; &lt;i&gt;"),  # keys and nested values too
    ],
)
def test_values_become_inert_text(value: Any, shown: str) -> None:
    assert text(value) == shown


def test_a_table_sets_its_last_columns_flush_right() -> None:
    made = table(["a", "b"], [["x", "1"]], numbers=1)
    assert "<th>a</th><th class=number>b</th>" in made and "<td>x</td><td class=number>1</td>" in made


def test_a_section_without_material_is_not_there() -> None:
    assert section("Title", "", "", note="words") == ""
    assert "<h2>A &amp; B</h2>" in section("A & B", "x")


def test_names_and_values_are_escaped() -> None:
    assert facts({"<k>": "<v>"}) == "<dl><dt>&lt;k&gt;</dt><dd>&lt;v&gt;</dd></dl>"


def test_a_picture_carries_its_bytes() -> None:
    png = encode_png(np.zeros((2, 2), np.uint8))
    assert 'src="data:image/png;base64,iVBOR' in picture(png, "an image", "a.png")
    assert 'src="data:image/jpeg;' in picture(b"\xff\xd8\xff\xe0", "an image", "a.jpg")


def test_what_is_no_picture_is_named() -> None:
    with pytest.raises(DataError, match=r"thumbs/0\.png is not a PNG"):
        picture(b"<svg onload=x>", "an image", "thumbs/0.png")


@pytest.mark.parametrize(("share", "width"), [(0.0, "0.0%"), (0.5, "50.0%"), (1.0, "100.0%"), (7.0, "100.0%")])
def test_a_bar_is_as_wide_as_its_share(share: float, width: str) -> None:
    assert f"width:{width}" in bar(share)
