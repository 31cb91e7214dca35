"""Tables as hosts ship them: marks, gzip, broken rows, missing columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cxrlab.core import table_rows
from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.data import bounded_reading, source_tables
from cxrlab.data.source_tables import find_file, find_optional, read_rows, record_source_file, record_source_files


def rows(path: Path, *needed: str, **options: object) -> list[dict[str, str]]:
    return [row for _, row in read_rows(path, needed, **options)]  # type: ignore[arg-type]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    """Spreadsheets write one; the column would be called '\\ufeffid' otherwise."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfid,age\r\n x , 5\r\n")
    assert rows(tmp_path / "a.csv", "id") == [{"id": "x", "age": "5"}]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_gzip_is_recognised_by_content(tmp_path: Path, name: str) -> None:
    """Some hosts unpack on the way and keep the name."""
    (tmp_path / name).write_bytes(gzip.compress(b'id,text\n1,"two\nlines, one cell"\n'))
    assert list(read_rows(tmp_path / name, ["id"])) == [(3, {"id": "1", "text": "two\nlines, one cell"})]


def test_long_cells_and_empty_lines(tmp_path: Path) -> None:
    """A run-length mask is longer than the module's own limit of 128 KiB."""
    (tmp_path / "a.csv").write_text(f"id,mask\n\n1,{'7 ' * 200_000}\n\n")
    assert len(rows(tmp_path / "a.csv", "mask")[0]["mask"]) == 399_999


def test_a_packed_table_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all that it unpacks to, though each row is short."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,text\n" + b"1,x\n" * 500_000))
    assert sum(1 for _ in read_rows(tmp_path / "a.csv.gz", ["id"])) == 500_000
    monkeypatch.setattr(bounded_reading, "MAX_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(DataError, match=r"a\.csv\.gz unpacks to more than 1,048,576 bytes"):
        rows(tmp_path / "a.csv.gz", "id")


@pytest.mark.parametrize("row", [b"x" * (3 << 20), b"x," * (1 << 20), b'"x\n",' * (1 << 20)])
def test_a_row_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes) -> None:
    """One long cell, many cells, or quoted line breaks on and on."""
    for module in (source_tables, table_rows):
        monkeypatch.setattr(module, "MAX_ROW_CHARS", 1 << 20)
    for name, data in (("a.csv", row), ("b.csv", gzip.compress(row))):
        (tmp_path / name).write_bytes(b"id,text\n1,x\n" + data if name == "a.csv" else data)
        with pytest.raises(DataError, match=rf"{name} holds a row of more than 1,048,576 characters"):
            rows(tmp_path / name)


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ImageID,Projection\n1,PA\n")
    with pytest.raises(DataError, match="no column 'Image_ID'. Did you mean 'ImageID'"):
        rows(tmp_path / "a.csv", "Image_ID")


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(DataError, match="no column 'id'.*nothing"):
        rows(tmp_path / "a.csv", "id")


def test_a_row_of_another_length_is_a_sentence_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"a\.csv:3 has 1 cells under 2 columns"):
        rows(tmp_path / "a.csv", "a")
    assert rows(tmp_path / "a.csv", "a", padded=True)[1] == {"a": "3", "b": ""}


def test_a_cut_or_foreign_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-20])
    (tmp_path / "latin.csv").write_bytes(b"a,b\n1,\xe9\n")
    for name, reported in (("cut.csv.gz", "damaged"), ("latin.csv", "not UTF-8"), ("none.csv", "does not exist")):
        with pytest.raises(CxrlabError, match=reported):
            rows(tmp_path / name, "a")


def test_the_most_wanted_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "x_2.csv").write_text("")
    (tmp_path / "x_1.csv").write_text("")
    assert find_file(tmp_path, "x.csv", "x_*.csv", what="the table").name == "x_1.csv"
    assert find_optional(tmp_path, "y.csv") is None
    with pytest.raises(DataError, match=r"does not hold the table: looked for y\.csv, z\.csv"):
        find_file(tmp_path, "y.csv", "z.csv", what="the table")
    with pytest.raises(DataError, match="is a file, not a folder"):
        find_optional(tmp_path / "x_1.csv", "y.csv")


def test_a_root_one_level_off_is_named(tmp_path: Path) -> None:
    """The commonest slip: the folder above, or the folder of images."""
    (tmp_path / "set" / "images").mkdir(parents=True)
    (tmp_path / "set" / "table_v2.csv").write_text("a\n")
    for wrong in (tmp_path, tmp_path / "set" / "images"):
        with pytest.raises(DataError, match="the table: looked for .* it lies in .*/set, so give that folder"):
            find_file(wrong, "table.csv", "table_*.csv", what="the table")
    with pytest.raises(DataError, match="give the folder that holds it"):
        find_file(tmp_path, "other.csv", what="the table")


def test_what_is_found_is_remembered_while_somebody_asks(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / name).write_text("x\n")
    find_optional(tmp_path, "a.csv")
    with record_source_files() as files:
        find_optional(tmp_path, "none.csv", "b.csv")
        record_source_file(tmp_path / "c.csv")
    find_optional(tmp_path, "a.csv")
    assert list(files) == [tmp_path / "b.csv", tmp_path / "c.csv"]


@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_nul_byte_is_refused_with_its_line(tmp_path: Path, line: int) -> None:
    lines = ["id,report", "a,x", "b,y"]
    lines[line - 1] += "\0"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"t\.csv:{line} holds a NUL byte"):
        list(read_rows(tmp_path / "t.csv", ["id"]))
