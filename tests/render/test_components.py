"""Values, cells, tables, marks and pictures of a page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pages import plain

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.render.components import (
    Cell,
    Table,
    change_marks,
    changed,
    grouped_table,
    measured,
    picture,
    pieces,
    readable,
)
from cxrlab.render.page import templates


def drawn(macro: str, value: Any) -> str:
    """What a macro of components.html makes of a value."""
    text = f'{{% from "components.html" import {macro} %}}{{{{ {macro}(value) }}}}'
    return plain(templates().from_string(text).render(value=value)).strip()


def test_values_are_written_for_people() -> None:
    cases = {
        "–": [None, math.nan, [], {}],
        "yes": [True],
        "12,345": [12345],
        "44.9": [44.87],
        "0.481": [0.4811],
        "a 1, b –": [{"a": 1, "b": None}],
        "x, 2": [["x", 2], ("x", 2)],
    }
    for written, values in cases.items():
        assert [readable(value) for value in values] == [written] * len(values)


def test_every_value_is_inert() -> None:
    """Text, keys and nested values cannot become markup."""
    evil = '<a href="x">&\''
    assert drawn("cell", evil) == '&lt;a href="x"&gt;&amp;\''
    assert drawn("cell", {"<b>": ["<i>"]}) == "&lt;b&gt; &lt;i&gt;"
    assert drawn("facts", {"<k>": "<v>"}) == "<dl><dt>&lt;k&gt;</dt><dd>&lt;v&gt;</dd></dl>"
    assert "<a" not in drawn("cell", Cell(evil, below=(evil,), aside=evil, lines=(Cell(evil),)))


def test_a_cell_has_a_value_words_beside_and_lines_beneath() -> None:
    cell = Cell("1", below=("2", "3"), aside="4", tone="bad", strong=True, lines=(Cell("5"),))
    wanted = "<span class=bad><b>1</b> <span class=later>4</span></span><br><span class=small>2</span>"
    assert drawn("cell", cell) == wanted + "<br><span class=small>3</span><br>5"
    assert drawn("cell", Cell(lines=(Cell("a"), Cell("b")))) == "a<br>b"


def test_a_table_sets_its_numbers_flush_right_and_draws_a_line_between_groups() -> None:
    made = drawn("table", Table(["a", "b"], [["x", 1]], words=1))
    assert "<th>a</th><th class=number>b</th>" in made and "<td>x</td><td class=number>1</td>" in made
    grouped = drawn("table", grouped_table([("", ["a"]), ("two", ["b", "c"])], [["x", 1, 2]]))
    assert "<th colspan=1></th><th colspan=2 class=edge>two</th>" in grouped
    assert '<td class="number edge">1</td><td class=number>2</td>' in grouped
    assert drawn("table", Table(["a"], [])) == ""


def test_a_bar_is_as_wide_as_its_share() -> None:
    for share, width in ((0.0, "0.0%"), (0.5, "50.0%"), (1.0, "100.0%"), (7.0, "100.0%")):
        assert f"width:{width}" in drawn("cell", Cell(bar=share))


def test_a_difference_is_marked_as_worse_only_where_it_is_sure() -> None:
    cases = [
        (-0.5, "higher", None, "▼"),
        (-0.5, "lower", None, "▲"),
        (0.5, "lower", None, "▼"),
        (-0.5, "", None, ""),
        (0.03125, "higher", None, ""),  # zero lies in the interval
        (-0.5, "higher", False, ""),  # a test says that it may be chance
    ]
    for value, better, sure, mark in cases:
        found = {"value": value, "low": value - 0.0625, "high": value + 0.0625}
        assert str(changed(found, better, sure).value)[0] == (mark or f"{value:+}"[0]), (value, better, sure)


def test_a_measurement_without_an_interval_has_none() -> None:
    assert measured({"value": 0.5, "low": 0.25, "high": 0.75}) == Cell("0.500", below=("0.250 to 0.750",))
    assert measured(0.5) == measured({"value": 0.5, "low": None, "high": 1.0}) == Cell("0.500")
    assert measured(None).value == measured({"value": math.nan}).value == "–"


def test_marks_stand_where_the_spans_are() -> None:
    cases = [
        ([[0, 1, "changed"]], [("a", "changed", ("≠ changed",)), ("b<c", None, ())]),
        ([[2, 99, "new"]], [("ab", None, ()), ("<c", "new", ("+ new",))]),  # cut at the end of the text
        ([[0, 2, "odd"], [3, 1, "new"], "x", None, ["a", 2, "new"]], [("ab<c", None, ())]),  # none of them is a span
        (None, [("ab<c", None, ())]),
    ]
    for spans, wanted in cases:
        assert [(one.text, one.marked, one.labels) for one in pieces("ab<c", change_marks(spans))] == wanted


def test_a_picture_carries_its_bytes() -> None:
    png = encode_png(np.zeros((2, 2), np.uint8))
    assert 'src="data:image/png;base64,iVBOR' in drawn("image", picture(png, "an image", "a.png"))
    assert 'src="data:image/jpeg;' in drawn("image", picture(b"\xff\xd8\xff\xe0", "an image", "a.jpg"))
    with pytest.raises(DataError, match=r"thumbs/0\.png"):
        picture(b"<svg onload=x>", "an image", "thumbs/0.png")
