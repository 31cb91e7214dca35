"""Read the rows of a table one by one, each with its file and line: CSV, TSV, Excel, JSON, JSONL and Parquet."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import read_text, unreadable
from cxrlab.core.json_values import InvalidJson, dumps, loads
from cxrlab.core.jsonl import read_jsonl

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".xlsx", ".parquet")
# Characters of a row of CSV. Some cells hold reports and run-length masks longer than the csv module's own limit.
MAX_ROW_CHARS = 1 << 24
# What spreadsheets write into a cell whose formula failed.
SPREADSHEET_ERRORS = ("#NAME?", "#REF!", "#VALUE!", "#DIV/0!", "#N/A", "#NUM!", "#NULL!", "#SPILL!", "#CALC!")
# An Excel file may unpack to this many bytes, or to so many for each of its own where that is more.
_MAX_UNPACKED, _MAX_RATIO = 1 << 28, 200
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
_SNIFFED = 1 << 16  # characters in which the delimiter is looked for
_BATCH, _IMAGE_BATCH = 512, 16  # rows of a Parquet file in memory at once; the second where cells hold images
_QUOTE = "put text that holds the separator or line breaks into quotes"
_NAME_ALL = "the first row must name every column: delete rows above it, such as a title"
_NO_VALUE = ("nan", "NaN", "NAN", "null", "NULL", "None", "<NA>", "NaT")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its place (file and line, or row from 1) for messages, and its values by column."""

    place: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """An opened table; `rows` can be read once."""

    kind: str  # in a few words: "CSV, comma"
    columns: tuple[str, ...]
    rows: Iterator[TableRow]
    files: tuple[Path, ...]  # what is read


def open_table(path: Path, sheet: str | None = None) -> Table:
    """Open a file by its ending; `sheet` names one of an Excel file, the first by default."""
    readers = dict(zip(ENDINGS, (_csv, _csv, _jsonl, _jsonl, _json, _excel, _parquet), strict=True))
    ending = path.suffix.lower()
    if sheet is not None and ending != ".xlsx":
        raise ConfigError(f"sheet={sheet!r} has no effect on {path.name}; only .xlsx files have sheets.")
    if ending == ".xls":
        raise DataError(f"{path} is an old Excel file; save it as .xlsx or .csv.")
    if ending not in readers:
        raise DataError(f"{path} is not a table by its ending; it must be one of {', '.join(ENDINGS)}.")
    if not path.is_file():
        raise unreadable(FileNotFoundError(2, "no such file"), path)
    return _excel(path, sheet) if ending == ".xlsx" else readers[ending](path)


def cell_text(value: Any) -> str:
    """A cell as text: nothing for every kind of missing value, 123 for 123.0, a date in ISO form, a list as JSON."""
    if isinstance(value, str):
        text = value.strip()
        return "" if text in _NO_VALUE else text.replace("_x000D_", "")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ") if value.time() != datetime.time() else value.date().isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, dict):
        value = {key: one for key, one in value.items() if not isinstance(one, bytes)}
    if isinstance(value, (list, tuple, dict)):
        return dumps([cell_text(one) for one in value] if not isinstance(value, dict) else value)
    return "" if isinstance(value, bytes) else str(value)


def _csv(path: Path) -> Table:
    records = csv_records(path, delimiter := find_delimiter(path))
    columns = _names([name.strip() for name in next(records, (1, list[str]()))[1]], f"{path}:1")

    def rows() -> Iterator[TableRow]:
        for line, cells in records:
            if any(cells):
                yield TableRow(f"{path}:{line}", _by_column(columns, cells, f"{path}:{line}", _QUOTE))

    return Table(f"CSV, {_DELIMITERS[delimiter]}", columns, rows(), (path,))


def csv_records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line on which it ends, the header too; [] for a blank line. Quotes must be closed."""
    csv.field_size_limit(MAX_ROW_CHARS)
    try:
        with _text(path) as stream:
            lines = CsvLines(path, stream)
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            try:
                for cells in reader:
                    lines.taken = 0
                    yield reader.line_num, cells
            except csv.Error as error:
                raise DataError(f"{path}:{reader.line_num} is not CSV ({error}); write the file again.") from None
    except UnicodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8 ('CSV UTF-8' in Excel).") from None
    except OSError as error:
        raise unreadable(error, path) from error


class CsvLines:
    """The lines of a CSV file for its parser; `taken` counts the characters of the row so far."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self.taken, self._number, self._path, self._stream = 0, 0, path, stream

    def __iter__(self) -> CsvLines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(MAX_ROW_CHARS + 1 - self.taken)
        self.taken += len(line)
        if self.taken > MAX_ROW_CHARS:
            raise DataError(
                f"{self._path} holds a row of more than {MAX_ROW_CHARS:,} characters; a quote is not closed there, or it "
                "is not this table. Fetch it again."
            )
        if not line:
            raise StopIteration
        self._number += 1
        if "\0" in line:
            raise DataError(f"{self._path}:{self._number} holds a NUL byte, which no CSV has; fetch the file again.")
        return line


def find_delimiter(path: Path) -> str:
    """Comma, tab or semicolon: the one that splits the header and the first rows into equally many cells."""
    try:
        with _text(path) as stream:
            sample = stream.read(_SNIFFED)
    except UnicodeError:
        return ","  # reading reports it
    except OSError as error:
        raise unreadable(error, path) from error
    best, most = ",", (False, 1)
    for delimiter in sorted(_DELIMITERS):  # a tab wins a tie
        try:
            records = [cells for cells in islice(csv.reader(io.StringIO(sample), delimiter=delimiter), 20) if cells]
        except csv.Error:
            continue
        if len(sample) == _SNIFFED and len(records) > 2:
            records = records[:-1]  # the last one may be cut
        widths = {len(cells) for cells in records}
        if records and len(records[0]) > 1 and (len(widths) == 1, len(records[0])) > most:
            best, most = delimiter, (len(widths) == 1, len(records[0]))
    return best


def _text(path: Path) -> TextIO:
    with path.open("rb") as file:
        wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")  # Excel's "Unicode text"
    return path.open(encoding="utf-16" if wide else "utf-8-sig", newline="")


def _names(names: Sequence[str], place: str) -> tuple[str, ...]:
    """The header without empty columns at its end; repeated names are refused, an empty one is numbered."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    if not kept:
        raise DataError(f"{place} names no column; the first row must hold the names of the columns.")
    found = [name or f"column {number}" for number, name in enumerate(kept, 1)]
    _refuse_repeated(found, place)
    return tuple(found)


def _refuse_repeated(names: Sequence[str], place: str) -> None:
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"{place} names the column '{repeated[0]}' more than once; rename one of them.")


def _by_column(columns: Sequence[str], cells: Sequence[Any], place: str, remedy: str) -> dict[str, Any]:
    extra = [cell for cell in cells[len(columns) :] if cell not in (None, "")]
    if extra:
        raise DataError(f"{place} has {len(cells)} cells under {len(columns)} columns; {remedy}.")
    return dict(zip(columns, [*cells, *[None] * (len(columns) - len(cells))], strict=False))


def _jsonl(path: Path) -> Table:
    columns = {key: None for _, values in read_jsonl(path, undefined=True) for key in values}
    rows = (TableRow(f"{path}:{line}", values) for line, values in read_jsonl(path, undefined=True))
    return Table("JSON Lines", tuple(columns), rows, (path,))


def _json(path: Path) -> Table:
    """A list of objects, or an object of id → object; read at once."""
    try:
        value = loads(read_text(path), undefined=True)
    except InvalidJson as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise DataError(f"{place} is not valid JSON ({error}); correct it, or make the file again.") from None
    items = [{"id": key, **row} if isinstance(row, dict) else row for key, row in value.items()] if isinstance(
        value, dict
    ) else value  # fmt: skip
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DataError(f"{path} holds {short_repr(value)}; give a list of objects, or an object of id and object.")
    columns = {key: None for item in items for key in item}
    rows = (TableRow(f"{path}, item {number}", item) for number, item in enumerate(items, 1))
    return Table("JSON", tuple(columns), rows, (path,))


def _excel(path: Path, sheet: str | None = None) -> Table:
    require("tables")
    from openpyxl import load_workbook

    try:
        with path.open("rb") as file:
            start = file.read(8)
        if start.startswith(b"\xd0\xcf\x11\xe0"):
            raise DataError(f"{path} is protected by a password, or an old .xls file; save it as .xlsx without one.")
        with zipfile.ZipFile(path) as packed:
            unpacked = sum(entry.file_size for entry in packed.infolist())
        if unpacked > max(_MAX_UNPACKED, _MAX_RATIO * path.stat().st_size):
            raise DataError(f"{path} unpacks to {unpacked:,} bytes; save the table as CSV.")
        book = load_workbook(path, read_only=True, data_only=True)
    except OSError as error:
        raise unreadable(error, path) from error
    except Exception as error:  # of many kinds on damaged files
        raise error if isinstance(error, DataError) else _damaged(path, error) from None
    if sheet is not None and sheet not in book.sheetnames:
        hint = did_you_mean(sheet, book.sheetnames)
        raise ConfigError(f"{path} has no sheet '{sheet}'.{hint} Its sheets are {', '.join(book.sheetnames)}.")
    chosen = book[sheet] if sheet is not None else book.worksheets[0]

    def records() -> Iterator[tuple[int, tuple[Any, ...]]]:
        try:
            _refuse_unevaluated(path, chosen._worksheet_path)
            chosen.reset_dimensions()  # what other programs write there is often wrong
            for number, cells in enumerate(chosen.iter_rows(values_only=True), 1):
                if any(cell not in (None, "") for cell in cells):
                    yield number, cells
        except Exception as error:
            raise error if isinstance(error, DataError) else _damaged(path, error) from None
        finally:
            book.close()

    numbered = records()
    first, names = next(numbered, (1, ()))
    columns = _names(["" if name is None else cell_text(name) for name in names], f"{path}:{first}")
    places = ((f"{path}:{number}", cells) for number, cells in numbered)
    rows = (TableRow(place, _by_column(columns, cells, place, _NAME_ALL)) for place, cells in places)
    others = [name for name in book.sheetnames if name != chosen.title]
    also = f"; other sheets: {', '.join(others)}" if others else ""
    return Table(f"Excel, sheet '{chosen.title}'{also}", columns, rows, (path,))


# A cell with a formula and without a result, as programs write it that do not compute; an empty text has t="str".
_UNEVALUATED = re.compile(
    rb'<c (?![^>]*\bt="str")[^>]*?\br="([A-Z]+\d+)"[^>]*><f\b[^>]*(?:/>|>[^<]*</f>)(?:<v\s*/>|<v></v>)?</c>'
)


def _refuse_unevaluated(path: Path, sheet: str) -> None:
    """A formula whose result the file does not hold would be read as an empty cell."""
    held = b""
    with zipfile.ZipFile(path) as packed, packed.open(sheet) as stream:
        while chunk := stream.read(1 << 20):
            held = held[-(1 << 16) :] + chunk
            if found := _UNEVALUATED.search(held):
                raise DataError(
                    f"{path} holds formulas without their results, such as in cell {found[1].decode()}; open it in a "
                    "spreadsheet program and save it, or save the table as CSV."
                )


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged or no Excel file ({type(error).__name__}); save it again as .xlsx or .csv.")


def _parquet(path: Path) -> Table:
    require("tables")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
        schema = file.schema_arrow
    except OSError as error:
        raise unreadable(error, path) from error
    except ArrowException as error:
        raise _damaged_parquet(path, error) from None

    def batches() -> Iterator[Any]:
        try:
            yield from file.iter_batches(batch_size=_batch_size(schema))
        except (ArrowException, OSError) as error:
            raise _damaged_parquet(path, error) from None

    return Table("Parquet", tuple(schema.names), arrow_rows(batches(), schema, path), (path,))


def _damaged_parquet(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged or no Parquet file ({type(error).__name__}); write or fetch it again.")


def arrow_rows(batches: Iterator[Any], schema: Any, path: Path) -> Iterator[TableRow]:
    """The rows of record batches; a column of class numbers (Hugging Face's ClassLabel) gives the names of classes."""
    names, number, size = class_names(schema), 0, _batch_size(schema)
    _refuse_repeated(schema.names, str(path))
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            try:
                records = batch.slice(start, size).to_pylist()
            except (ValueError, OverflowError) as error:  # a date outside of the years 1 to 9999, or text not in UTF-8
                raise DataError(
                    f"{path} holds a value in rows {number + 1} to {number + size} that cannot be read "
                    f"({type(error).__name__}); correct it and write the file again."
                ) from None
            for values in records:
                number += 1
                for column, classes in names.items():
                    if isinstance(at := values.get(column), int) and 0 <= at < len(classes):
                        values[column] = classes[at]
                yield TableRow(f"{path}:{number}", values)


def _batch_size(schema: Any) -> int:
    return _IMAGE_BATCH if "binary" in " ".join(str(field.type) for field in schema) else _BATCH


def class_names(schema: Any) -> dict[str, list[str]]:
    """Column → names of its classes, as the `datasets` library writes them into the metadata of a schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: list(one["names"]) for name, one in features.items() if one.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}
