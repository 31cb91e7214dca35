from __future__ import annotations

import csv
import io
import math
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.core.errors import MissingExtra
from cxrlab.core.tables import Column, Interval, Table, as_html, as_text, lay_out, output_width, to_csv

COLUMNS = (Column("metric"), Column("value [95 %]", "value"), Column("n"), Column("raw", only="data"))
TABLE = Table(
    COLUMNS,
    (("bleu4:coco", Interval(1 / 3, 0.25, 0.5), 1234, None), ("none", Interval(math.nan), 0, "a|b_c")),
    "scores",
)
CELLS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=40)


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), strict=True))


def test_text_shows_an_interval_in_one_cell_and_aligns_numbers() -> None:
    assert TABLE.to_text().splitlines() == [
        "scores",
        "metric      value [95 %]              n",
        "bleu4:coco  0.333 [0.250, 0.500]  1,234",
        "none        –                         0",
    ]


def test_csv_has_full_precision_and_ends_in_columns_of_their_own() -> None:
    head, first, second = read_csv(to_csv([TABLE]))
    assert head == ["metric", "value", "low", "high", "n", "raw"]
    assert [float(cell) for cell in first[1:4]] == [1 / 3, 0.25, 0.5] and first[4] == "1234"
    assert second[1:4] == ["", "", ""] and second[5] == "a|b_c"


def test_csv_of_several_tables_names_them() -> None:
    rows = read_csv(to_csv([TABLE, Table(COLUMNS, TABLE.rows[:1], "again")]))
    assert rows[0][:2] == ["table", "metric"] and [row[0] for row in rows[1:]] == ["scores", "scores", "again"]


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5))
def test_csv_reads_back(rows: list[tuple[str, str]]) -> None:
    """Every text survives, apart from the apostrophe before what a spreadsheet would run."""
    table = Table((Column("a"), Column("b")), tuple(rows))
    found = read_csv(to_csv([table]))[1:]
    assert [[cell.removeprefix("'") for cell in row] for row in found] == [
        [cell.removeprefix("'") for cell in row] for row in rows
    ]


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_markdown_and_latex_keep_their_cells_apart(rows: list[tuple[str, str]]) -> None:
    """As many separators per row as columns ask for; braces of LaTeX are balanced, and no command comes from a cell."""
    table = Table((Column("a"), Column("b")), tuple(rows))
    for line in table.to_markdown().splitlines():
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    body = table.to_latex().splitlines()[4:-2]
    assert len(body) == len(rows)
    for line in body:
        inner = line.removesuffix(r" \\")
        assert len(re.findall(r"(?<!\\)&", inner)) == 1 and not re.search(r"(?<!\\)[%#_]", inner)
        assert len(re.findall(r"(?<!\\){", inner)) == len(re.findall(r"(?<!\\)}", inner))


def test_latex_reads_signs_and_minus() -> None:
    table = Table(
        (Column("m_1"), Column("x", sign="+")), (("50 % & more ↑", Interval(-0.5, -1.0, 0.25)), ("[a]", None))
    )
    assert table.to_latex().splitlines() == [
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"m\_1 & x \\",
        r"\midrule",
        r"50 \% \& more $\uparrow$ & $-$0.500 [$-$1.000, +0.250] \\",
        r"{}[a] &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_html_escapes() -> None:
    table = Table((Column("<b>"),), (("a&b",),), "t<")
    assert "&lt;b&gt;" in table.to_html() and "a&amp;b" in table.to_html() and "t&lt;" in table.to_html()
    assert as_html(["x\n<y>", table]).startswith("<p>x<br>&lt;y&gt;</p><table>")


LONG = (
    ("chexpert14.micro.f1:uncertain-positive ↑", Interval(0.38, 0.244, 0.532), "0.194 repeated-word *", 35),
    ("findings.f1 ↑", Interval(0.271, 0.167, 0.367), "0.037 shuffled", 35),
)
WIDE = Table((Column("metric"), Column("value"), Column("best floor"), Column("n")), LONG)


@pytest.mark.parametrize("width", [120, 80, 70, 60, 50, 40])
def test_a_table_fits_the_width_and_loses_no_word(width: int) -> None:
    text = WIDE.to_text(width)
    assert max(map(len, text.splitlines())) <= width
    squeezed = "".join(text.split())
    assert all(word in squeezed for word in ("35", "uncertain-", "positive"))
    if width >= 70:  # words are narrowed first
        assert "0.380 [0.244, 0.532]" in text and "0.271 [0.167, 0.367]" in text


def test_a_table_without_enough_width_has_a_line_for_each_column() -> None:
    lines = WIDE.to_text(30).splitlines()
    assert "  value: 0.271 [0.167, 0.367]" in lines and "  n: 35" in lines


def test_without_a_width_nothing_is_wrapped() -> None:
    assert len(WIDE.to_text().splitlines()) == 3
    assert lay_out([["a" * 300, "b"]]) == ["a" * 300 + "  b"]


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=4), st.integers(20, 100))
def test_wrapping_keeps_every_letter(rows: list[list[str]], width: int) -> None:
    lines = lay_out(rows, width)
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(map("".join, rows)).split()))


def test_a_flag_keeps_its_dashes() -> None:
    assert lay_out([["check", "Give the model (--model) or --control-studies."]], 22) == [
        "check  Give the model",
        "       (--model) or",
        "       --control-",
        "       studies.",
    ]


def test_a_name_is_broken_only_where_the_column_is_narrower() -> None:
    """A metric stays whole in a sentence, with its arrow where that fits."""
    assert lay_out([["Better in rougeL:google, bleu4:coco."]], 18) == ["Better in", "rougeL:google,", "bleu4:coco."]
    assert lay_out([["the bleu4:coco ↑"]], 12) == ["the", "bleu4:coco ↑"]
    assert lay_out([["Better in rougeL:google"]], 10) == ["Better in", "rougeL:", "google"]


def test_sentences_are_wrapped_and_commands_are_not() -> None:
    text = "one two three four five\ncxrlab score a b --out c --metrics d"
    assert as_text([text], 12).splitlines() == ["one two", "three four", "five", text.splitlines()[1]]
    assert as_text([text]) == text


def test_the_width_is_that_of_columns_or_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe or a file has none, so that nothing in it is broken."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output_width() is None
    for value, width in (("80", 80), ("0", None), ("wide", None)):
        monkeypatch.setenv("COLUMNS", value)
        assert output_width() == width


def test_a_row_must_fit_its_columns() -> None:
    with pytest.raises(ValueError, match="2 cells"):
        Table((Column("a"),), (("b", "c"),))


def test_a_frame_has_full_precision() -> None:
    pandas = pytest.importorskip("pandas")
    frame = TABLE.to_frame()
    assert frame["value"][0] == 1 / 3 and pandas.isna(frame["value"][1]) and list(frame["n"]) == [1234, 0]


def test_without_pandas_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        TABLE.to_frame()
