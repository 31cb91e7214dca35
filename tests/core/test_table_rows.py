"""Tables of every kind, row by row, with their places."""

from __future__ import annotations

import datetime
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.table_rows import Table, cell_text, find_delimiter, open_table

ROWS: list[dict[str, Any]] = [
    {"id": "a", "report": 'No "acute" disease,\nheart normal; stable.', "age": 61},
    {"id": "b", "report": None, "age": 7},
]


def written(folder: Path, ending: str) -> Path:
    """The rows above as a file of this kind."""
    path = folder / f"table{ending}"
    if ending == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    elif ending == ".xlsx":
        from openpyxl import Workbook

        book = Workbook()
        book.active.title = "first"
        for row in (list(ROWS[0]), *(list(row.values()) for row in ROWS)):
            book.active.append(row)
        book.create_sheet("second").append(["other"])
        book.save(path)
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in ROWS))
    elif ending == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        separator = {".csv": ",", ".tsv": "\t"}[ending]
        lines = ["id,report,age", 'a,"No ""acute"" disease,\nheart normal; stable.",61', "", "b,,7"]
        table = "\r\n".join(line.replace(",", separator) if '"' not in line else line for line in lines)
        quoted = table.replace('a,"', f'a{separator}"').replace('",61', f'"{separator}61')
        path.write_bytes(("\ufeff" + quoted).encode())
    return path


def texts(table: Table) -> list[dict[str, str]]:
    return [{name: cell_text(row.values.get(name)) for name in table.columns} for row in table.rows]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json", ".xlsx", ".parquet"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    table = open_table(written(tmp_path, ending))
    assert table.columns == ("id", "report", "age")
    assert texts(table) == [{name: cell_text(value) for name, value in row.items()} for row in ROWS]


def test_rows_are_placed_by_the_line_that_an_editor_shows(tmp_path: Path) -> None:
    """The CSV row with a line break ends on line 3; a spreadsheet counts its header as row 1."""
    for ending, places in ((".csv", [3, 5]), (".xlsx", [2, 3]), (".jsonl", [1, 3])):
        path = written(tmp_path, ending)
        assert [row.place for row in open_table(path).rows] == [f"{path}:{number}" for number in places]


@every_row(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), ""),
        ("NaN", ""),
        ("  x ", "x"),
        (123.0, "123"),
        (0.5, "0.5"),
        (True, "True"),
        (datetime.datetime(2024, 3, 5), "2024-03-05"),
        (datetime.datetime(2024, 3, 5, 10, 30), "2024-03-05 10:30:00"),
        (["a.png", "b.png"], '["a.png", "b.png"]'),
        ({"bytes": b"x", "path": "a.png"}, '{"path": "a.png"}'),
        (b"x", ""),
    ],
)
def test_cells_become_text(value: object, text: str) -> None:
    assert cell_text(value).replace('","', '", "').replace('":"', '": "') == text


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("id,report\na,one; two; three\n", ","),
        ("id;report\na;one, two, three\n", ";"),
        ("id\treport, whole\na\tone, two\n", "\t"),
        ('id;"report, text, all"\na;x\n', ";"),
        ("report\none; two, three\n", ","),
    ],
)
def test_the_delimiter_is_the_one_that_gives_equal_rows(tmp_path: Path, text: str, delimiter: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert find_delimiter(tmp_path / "t.csv") == delimiter


def test_utf_16_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_bytes("id\treport\na\tGröße\n".encode("utf-16"))
    assert texts(open_table(tmp_path / "t.tsv")) == [{"id": "a", "report": "Größe"}]


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("t.csv", b"id,report\na,x,y\n", "t.csv:2 has 3 cells"),
        ("t.csv", b'id,report\na,"x\n', "not CSV"),
        ("t.csv", b"id,id\na,x\n", "'id' more than once"),
        ("t.csv", b"\n", "names no column"),
        ("t.csv", b"id,report\na,\0\n", "t.csv:2 holds a NUL byte"),
        ("t.csv", "id,report\na,Größe\n".encode("latin-1"), "UTF-8"),
        ("t.json", b"{", "not valid JSON"),
        ("t.json", b"[1]", "list of objects"),
        ("t.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 encrypted", "password"),
        ("t.xlsx", b"PK\x03\x04 cut", "damaged"),
        ("t.parquet", b"PAR1 cut", "damaged"),
        ("t.xls", b"", "old Excel"),
        ("t.docx", b"", "not a table"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, data: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=found):
        list(open_table(tmp_path / name).rows)


def test_parquet_that_python_cannot_hold_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    late = pa.table({"day": pa.array([1 << 62], pa.timestamp("us"))})
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    for table, found in ((late, "rows 1 to 512"), (twice, "'id' more than once")):
        parquet.write_table(table, tmp_path / "t.parquet")
        with pytest.raises(DataError, match=found):
            list(open_table(tmp_path / "t.parquet").rows)


def test_a_cut_excel_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path, ".xlsx")
    whole = path.read_bytes()
    for share in (0.2, 0.5, 0.9, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DataError, match="damaged"):
            list(open_table(path).rows)


@pytest.mark.parametrize(
    ("result", "read"), [('<f>"p"&amp;0</f><v></v>', None), ('<f>"p"</f>', None), ("<f>1+1</f><v>2</v>", "2")]
)
def test_a_formula_without_its_result_is_no_empty_cell(tmp_path: Path, result: str, read: str | None) -> None:
    """Programs that do not compute write formulas alone; a spreadsheet program stores their results."""
    path, plain = tmp_path / "t.xlsx", written(tmp_path, ".xlsx")
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w") as changed:
        for name in source.namelist():
            data = source.read(name)
            if name == "xl/worksheets/sheet1.xml":
                data = re.sub(rb'<c r="C3".*?</c>', f'<c r="C3">{result}</c>'.encode(), data)
            changed.writestr(name, data)
    if read is None:
        with pytest.raises(DataError, match="cell C3"):
            open_table(path)
    else:
        assert texts(open_table(path))[1]["age"] == read


def test_rows_above_the_names_of_the_columns_are_refused(tmp_path: Path) -> None:
    from openpyxl import load_workbook

    book = load_workbook(written(tmp_path, ".xlsx"))
    book["first"].insert_rows(1)
    book["first"]["A1"] = "Export of 3 May"
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(DataError, match=r"t.xlsx:2 has 3 cells .* title"):
        list(open_table(tmp_path / "t.xlsx").rows)


def test_a_sheet_is_named_by_the_user(tmp_path: Path) -> None:
    path = written(tmp_path, ".xlsx")
    assert open_table(path, "second").columns == ("other",)
    assert "second" in open_table(path).kind
    with pytest.raises(ConfigError, match="Did you mean 'second'"):
        open_table(path, "secnd")
    with pytest.raises(ConfigError, match="sheet"):
        open_table(written(tmp_path, ".csv"), "second")
