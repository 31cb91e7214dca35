from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.evaluation.report_files import ReportFile, assign_ids, parse_report, read_rows


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def read_reports(path: Path) -> ReportFile:
    return assign_ids(path, tuple(row for _, row in read_rows(path)))


def reports(path: Path) -> dict[str, str | None]:
    return {row.id: row.text("report") for row in read_reports(path).rows}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.jsonl", '{"id": "a", "report": "One."}\n\n{"id": 7, "report": null}\n{"id": "c", "report": NaN}\n'),
        ("r.json", '{"a": "One.", "7": [null], "c": NaN}'),
        ("r.JSON", '[{"id": "a", "report": "One."}, {"id": 7, "report": null}, {"id": "c", "report": NaN}]'),
        ("r.csv", "\ufeffID,Report\r\na,One.\r\n7,NaN\r\nc,null\r\n"),
        ("r.tsv", "id\treport\na\tOne.\n7\tnan\nc\tNULL\n"),
        ("s.csv", "id;report\na;One.\n7;nan\nc;NULL\n"),
    ],
)
def test_every_kind_of_file_gives_the_same_reports(tmp_path: Path, name: str, text: str) -> None:
    """Null, not-a-number and what a spreadsheet writes for them are reports that are not there, not dropped rows."""
    path = written(tmp_path, name, text)
    assert reports(path) == {"a": "One.", "7": None, "c": None}
    assert not read_reports(path).numbered


def test_a_text_file_is_one_report_a_line_and_nothing_shifts(tmp_path: Path) -> None:
    """A blank line is an empty report; form feeds and line separators inside a line do not start a new one."""
    found = read_reports(written(tmp_path, "r.txt", "one\r\n\n t\x0cw\u2028o 🫁\nthree"))
    assert found.numbered
    assert [row.text("report") for row in found.rows] == ["one", "", " t\x0cw\u2028o 🫁", "three"]
    assert [row.id for row in found.rows] == ["1", "2", "3", "4"]


def test_csv_keeps_commas_quotes_line_breaks_and_long_cells(tmp_path: Path) -> None:
    """The csv module alone refuses a cell of more than 131,072 characters."""
    long = "clear lungs " * 20_000
    path = written(tmp_path, "r.csv", f'id,report\na,"No ""acute"" disease,\nheart normal."\nb,{long}\nc,\n')
    assert reports(path) == {"a": 'No "acute" disease,\nheart normal.', "b": long, "c": ""}


def test_reports_without_ids_are_known_by_their_place(tmp_path: Path) -> None:
    for name, text in {
        "r.jsonl": '{"report": "x"}\n{"report": "y"}\n',
        "r.json": '["x", "y"]',
        "r.csv": "report\nx\ny\n",
    }.items():
        found = read_reports(written(tmp_path, name, text))
        assert found.numbered and reports(found.path) == {"1": "x", "2": "y"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("r.jsonl", '{"id": "a", "report": "x"}\n{"id": "a", "report": "y"}\n', r"'a' at .*r.jsonl:1 and .*r.jsonl:2"),
        ("r.csv", "id,report\na,x\na,y\n", "used twice"),
        ("r.jsonl", '{"id": "a", "report": "x"}\n{"report": "y"}\n', "r.jsonl:2 has no 'id'"),
        ("r.jsonl", '{"id": ["a"], "report": "x"}\n', "r.jsonl:1: the id is"),
        ("r.jsonl", "nonsense\n", "r.jsonl:1 is not valid JSON"),
        ("r.jsonl", '{"id": "a", "report": Infinity}\n', "Infinity"),
        ("r.json", "3", "holds 3"),
        ("r.json", "{", "r.json:1 is not valid JSON"),
        ("r.csv", "id,report\na,x,y\n", "r.csv:2 has 3 cells"),
        ("r.csv", "id,report,report\na,x,y\n", "not all different"),
        ("r.csv", "id,report\n ,x\n", "r.csv:2: the id is empty"),
        ("r.csv", 'id,report\na,"x\n', "is not CSV"),
        ("r.csv", "", "holds no report"),
        ("r.csv", "id,report\na,x\nb,y\0\n", "r.csv:3 holds a NUL byte"),
        ("r.tsv", "id\treport\n\0\ta\n", "r.tsv:2 holds a NUL byte"),
        ("r.txt", "", "holds no report"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_reports(written(tmp_path, name, text))


def test_a_blank_line_of_a_single_column_is_an_empty_report(tmp_path: Path) -> None:
    """Spreadsheets write an empty cell so; passing over it would pair every later report with a stranger's."""
    assert reports(written(tmp_path, "r.csv", "report\nx\n\ny\n")) == {"1": "x", "2": "", "3": "y"}
    assert reports(written(tmp_path, "s.csv", "id,report\na,x\n\nb,y\n")) == {"a": "x", "b": "y"}


class NAType:
    """As pandas writes a value that is not there; it equals nothing, not even itself."""

    def __ne__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize("value", [None, float("nan"), np.float32("nan"), np.float64("nan"), NAType()])
def test_nothing_comes_in_many_forms(value: object) -> None:
    assert parse_report(value, "line 4") is None


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        read_reports(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        read_reports(tmp_path / "no.csv")


@pytest.mark.parametrize("value", [3, 2.5, True, {"a": 1}, ["a", "b"], b"x"])
def test_only_text_and_nothing_are_reports(value: object) -> None:
    with pytest.raises(DataError, match=r"line 4 is .*not a report"):
        parse_report(value, "line 4")


def test_a_row_without_the_wanted_key_names_the_nearest(tmp_path: Path) -> None:
    row = read_reports(written(tmp_path, "r.csv", "id,raport\na,x\n")).rows[0]
    with pytest.raises(DataError, match=r"r.csv:2 has no 'report', only raport. Did you mean 'report'"):
        row.text("report")


@pytest.mark.parametrize("name", ["r.xlsx", "r.parquet"])
def test_spreadsheets_and_parquet_are_read_like_csv(tmp_path: Path, name: str) -> None:
    """A column of whole numbers that is stored as floats gives whole ids."""
    rows = {"ID": [7.0, 8.0], "Report": ["One.", None]}
    if name == "r.xlsx":
        from openpyxl import Workbook

        book = Workbook()
        for cells in (list(rows), *zip(*rows.values(), strict=True)):
            book.active.append(cells)
        book.save(tmp_path / name)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table(rows), tmp_path / name)
    assert reports(tmp_path / name) == {"7": "One.", "8": None}
