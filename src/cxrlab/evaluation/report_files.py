"""Reports in whatever file a user has: JSONL, JSON, CSV or TSV, plain text with one report a line.

Nothing is dropped and nothing is guessed: a line that cannot be read is refused with its number,
and what has no id is known by its place, counted from 1.
"""

from __future__ import annotations

import csv
import io
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, nearest, shown
from cxrlab.core.files import read_text
from cxrlab.core.json_form import BadJson, loads
from cxrlab.core.jsonl import read_jsonl

ID = "id"
# What spreadsheets and data frames write for a cell without a value. A report is never one of these words.
NO_CELL = ("nan", "NaN", "NAN", "null", "NULL", "<NA>")


@dataclass(frozen=True)
class Row:
    """One report as a file has it.

    Args:
        place: File and line (or key), for messages.
        id: What names the study; its place counted from 1 where the file gives no id.
        values: Everything else, by lower-case column or key.
    """

    place: str
    id: str
    values: Mapping[str, Any]

    def text(self, *keys: str) -> str | None:
        """The report under the first of these keys that the row has; None for null and not-a-number.

        A row that has none of them, or something else than text there, is a `DataError`.
        """
        for key in keys:
            if key in self.values:
                return report_text(self.values[key], f"{self.place}: '{key}'")
        known = ", ".join(map(str, self.values)) or "nothing"
        hint = next((found for name in self.values if (found := nearest(str(name), keys))), "")
        raise DataError(f"{self.place} has no {' or '.join(repr(key) for key in keys)}, only {known}.{hint}")


@dataclass(frozen=True)
class ReportFile:
    """Every row of a file, in order, with different ids.

    Args:
        path: The file.
        rows: Its rows.
        numbered: Whether ids are places because the file gives none.
    """

    path: Path
    rows: tuple[Row, ...]
    numbered: bool


def read_reports(path: Path) -> ReportFile:
    """Read a file by the ending of its name; any other ending than .jsonl, .json, .csv, .tsv is text by lines."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file of reports, a corpus folder or a run with predictions.")
    found = read_rows(path)
    with_id = [row.id for _, row in found if row.id]
    if with_id and len(with_id) < len(found):
        bare = next(row for _, row in found if not row.id)
        raise DataError(f"{bare.place} has no '{ID}', and others of the file have one; give every report its id.")
    rows = tuple(row if row.id else Row(row.place, str(number), row.values) for number, row in found)
    _refuse_repeats(path, rows)
    return ReportFile(path, rows, numbered=not with_id)


def read_rows(path: Path) -> tuple[tuple[int, Row], ...]:
    """Every row of a file with its number from 1, as it stands: ids may be absent ("") or stand on several rows."""
    readers = {".jsonl": _jsonl, ".ndjson": _jsonl, ".json": _json, ".csv": _csv, ".tsv": _csv}
    found = tuple(readers.get(path.suffix.lower(), _lines)(path))
    if not found:
        raise DataError(f"{path} holds no report; check that it is the right file.")
    return found


def report_text(value: Any, place: str) -> str | None:
    """A report as a file or a caller gives it: text, or None for null and not-a-number; else a `DataError`.

    A list with one text is that text: some tools keep several references a study.
    """
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value
    if is_nothing(value):
        return None
    raise DataError(f"{place} is {shown(value)}, not a report; give text, or null where there is none.")


def is_nothing(value: Any) -> bool:
    """Whether this stands for a value that is not there: None, a not-a-number of any kind, the NA of a data frame."""
    if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
        return True
    return not isinstance(value, str) and type(value).__name__ in ("NAType", "NaTType")


def id_text(value: Any, place: str) -> str:
    """An id: text, or a whole number as its digits."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{place}: the id is {shown(value)}; give text or a whole number.")


def _refuse_repeats(path: Path, rows: Iterable[Row]) -> None:
    seen: dict[str, str] = {}
    twice = [row for row in rows if seen.setdefault(row.id, row.place) != row.place]
    if twice:
        raise DataError(
            f"{path}: {len(twice)} {'ids are' if len(twice) > 1 else 'id is'} used twice (for example '{twice[0].id}' "
            f"at {seen[twice[0].id]} and {twice[0].place}); every report needs an id of its own."
        )


def _row(values: Mapping[str, Any], place: str) -> Row:
    found = {str(key).strip().lower(): value for key, value in values.items()}
    key = found.pop(ID, None)
    return Row(place, "" if key is None else id_text(key, place), found)


def _jsonl(path: Path) -> Iterator[tuple[int, Row]]:
    for number, (line, values) in enumerate(read_jsonl(path, undefined=True), 1):
        yield number, _row(values, f"{path}:{line}")


def _json(path: Path) -> Iterator[tuple[int, Row]]:
    """An object of id → report, or a list of reports or of objects as in a JSONL file."""
    try:
        value = loads(read_text(path), undefined=True)
    except BadJson as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise DataError(f"{place} is not valid JSON ({error}); correct it, or make the file again.") from None
    if isinstance(value, dict):
        for number, (key, report) in enumerate(value.items(), 1):
            place = f"{path}, id '{key}'"
            inside = dict(report) if isinstance(report, dict) else {"report": report}
            yield number, _row({**inside, ID: key}, place)
    elif isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield number, _row(item if isinstance(item, dict) else {"report": item}, f"{path}, item {number}")
    else:
        raise DataError(f"{path} holds {shown(value)}; give an object of id and report, or a list of reports.")


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(1 << 30)  # the module's own limit is 131,072 characters a cell
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
    try:
        head = [name.strip().lower() for name in next(reader, [])]
        if len(set(head)) < len(head):
            raise DataError(f"{path}:1: the column names are not all different: {', '.join(head)}.")
        if len(head) == 1 and ";" in head[0]:
            raise DataError(
                f"{path}:1: the columns are separated by ';'; save the file with commas, or as .tsv with tabs."
            )
        number = 0
        for cells in reader:
            if not cells and len(head) > 1:
                continue
            # With one column a blank line is an empty cell: passing over it would shift every report after it.
            cells = cells or [""]
            place = f"{path}:{reader.line_num}"
            if len(cells) != len(head):
                raise DataError(
                    f"{place} has {len(cells)} cells and the head has {len(head)} columns ({', '.join(head)}); "
                    "put text with commas or line breaks in quotes."
                )
            number += 1
            values = {name: None if cell in NO_CELL else cell for name, cell in zip(head, cells, strict=True)}
            if ID in values and not (values[ID] or "").strip():
                raise DataError(f"{place}: the id is empty; give every report its id.")
            yield number, _row(values, place)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num} is not CSV ({error}); write the file again.") from None


def _lines(path: Path) -> Iterator[tuple[int, Row]]:
    # Not `splitlines`, which also breaks at form feeds and other rare characters and would shift every pair after one.
    text = read_text(path).replace("\r\n", "\n").removesuffix("\n")
    for number, line in enumerate(text.split("\n") if text else [], 1):
        yield number, Row(f"{path}:{number}", "", {"report": line})
