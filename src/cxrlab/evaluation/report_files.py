"""Read files of reports (JSONL, JSON, CSV, TSV, Excel, Parquet or lines of text), and find their columns of reports and ids.

Nothing is dropped or guessed: a line that cannot be read raises an error with its number, and rows without an id column
are numbered from 1.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import read_text
from cxrlab.core.json_values import InvalidJson, loads
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import SECTIONS
from cxrlab.core.table_rows import csv_records, find_delimiter, open_table
from cxrlab.core.vocabulary import View

ID = "id"
# Columns that name a study, an image or a report, as `normalise_name` spells them; the first of a file is preferred.
ID_NAMES = (
    *(ID, "studyid", "studyuid", "studyinstanceuid", "accession", "accessionid", "accessionnumber", "accessionno"),
    *("dicomid", "dicomuid", "imageid", "imageuid", "sopinstanceuid", "uid", "reportid", "noteid", "caseid", "examid"),
    *("sampleid", "key", "filename", "file", "image", "imagename", "imagepath", "path", "dicompath"),
)
# Columns that name a patient, likewise.
PATIENT_NAMES = ("patient", "patientid", "subjectid", "subject", "mrn", "pid")
# Columns of reports by what they hold, as `normalise_name` spells them without "report" or "text" at their end.
MODEL_PREDICTION = "modelprediction"  # of ReXrank's files
CANDIDATE_NAMES = ("candidate", "prediction", "predicted", "pred", "hypothesis", "hyp", "generated", MODEL_PREDICTION)
REFERENCE_NAMES = ("reference", "ref", "groundtruth", "gt", "target")
TABLES = (
    ".jsonl",
    ".ndjson",
    ".json",
    ".csv",
    ".tsv",
    ".xlsx",
    ".parquet",
)  # endings of files whose rows have named columns
ROLES = ("candidate", "reference", "id")  # what --columns names
# What spreadsheets and data frames write for a cell without a value. A report is never one of these words.
NO_CELL = ("nan", "NaN", "NAN", "null", "NULL", "<NA>")


@dataclass(frozen=True)
class Row:
    """One row of a file: its place (file and line or key) for messages, its id, and all else by lower-case column."""

    place: str
    id: str
    values: Mapping[str, Any]

    def text(self, *keys: str) -> str | None:
        """The report under the first of these keys that the row has; None for null and not-a-number.

        A row without any of them, or with something else than text there, raises `DataError`.
        """
        for key in keys:
            if key in self.values:
                return parse_report(self.values[key], f"{self.place}: '{key}'")
        known = ", ".join(map(str, self.values)) or "nothing"
        hint = next((found for name in self.values if (found := did_you_mean(str(name), keys))), "")
        raise DataError(f"{self.place} has no {' or '.join(repr(key) for key in keys)}, only {known}.{hint}")


@dataclass(frozen=True)
class ReportFile:
    """Every row of a file, in order, with distinct ids from `column`; None where the rows are numbered."""

    path: Path
    rows: tuple[Row, ...]
    column: str | None
    columns: tuple[str, ...] = ()

    @property
    def numbered(self) -> bool:
        """Whether ids are row numbers."""
        return self.column is None


def assign_ids(path: Path, rows: Sequence[Row], column: str | None = None, *, by_row: bool = False) -> ReportFile:
    """Rows with the ids of a column, by default the first without repeats; empty or repeated ids raise `DataError`.

    With `by_row` the rows are numbered from 1, whatever columns there are.
    """
    if not by_row and column is None:
        every = find_id_columns(rows)
        found = {name: ids for name, ids in every.items() if None not in ids}
        distinct = (name for name, ids in found.items() if len(set(ids)) == len(ids))
        column = next(distinct, next(iter(found), next(iter(every), None)))
    columns = list_columns(rows)
    if by_row or column is None:
        numbered = tuple(replace(row, id=str(number)) for number, row in enumerate(rows, 1))
        return ReportFile(path, numbered, None, columns)
    ids = [read_id(row, column) for row in rows]
    if None in ids:
        bare = rows[ids.index(None)]
        raise DataError(f"{bare.place} has no '{column}', and others of the file have one; give every report its id.")
    named = tuple(replace(row, id=str(key)) for row, key in zip(rows, ids, strict=True))
    seen: dict[str, str] = {}
    twice = [row for row in named if seen.setdefault(row.id, row.place) != row.place]
    if twice:
        raise DataError(
            f"{path}: {len(twice)} {'ids' if len(twice) > 1 else 'id'} of the column '{column}' "
            f"{'are' if len(twice) > 1 else 'is'} used twice (for example '{twice[0].id}' at {seen[twice[0].id]} and "
            f"{twice[0].place}); every report needs an id of its own."
        )
    return ReportFile(path, named, column, columns)


def parse_columns(words: Iterable[str]) -> dict[str, str]:
    """`ROLE=NAME` as role → name of the column, for --columns."""
    found: dict[str, str] = {}
    for word in words:
        role, _, name = (part.strip() for part in word.partition("="))
        if role not in ROLES or not name or role in found:
            raise ConfigError(
                f"--columns is '{word}'; write ROLE=NAME with each of the roles {', '.join(ROLES)} at most once, such "
                "as candidate=generated,reference=truth,id=study."
            )
        found[role] = name
    return found


def find_column(columns: Iterable[str], name: str) -> str | None:
    """The column of this name, its case, blanks and underscores aside; an exact match is preferred."""
    known = tuple(columns)
    exact = (column for column in known if column == name.strip().lower())
    return next(exact, next((column for column in known if normalise_name(column) == normalise_name(name)), None))


def find_text_columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """Columns that may hold reports: `report`, and others in which a row holds text or all are empty."""
    return tuple(
        name
        for name in list_columns(rows)
        if name != ID
        and (
            normalise_name(name) == "report"
            or any(isinstance(_only(row.values.get(name)), str) for row in rows)
            or all(is_missing(row.values.get(name)) for row in rows)
        )
    )


def classify_column(column: str) -> str:
    """Kind of report in a column by its name: `generated` for "Generated_Report", `gt` for "gt text"."""
    plain = normalise_name(column)
    if (section := plain.removeprefix("section")) in SECTIONS:  # `section_findings` of ReXrank's files
        return section
    return plain.removesuffix("report").removesuffix("text") or plain


def find_id_columns(rows: Sequence[Row]) -> dict[str, tuple[str | None, ...]]:
    """Columns that are known to hold ids, the preferred first → the id of each row, None where it is empty."""
    names = {normalise_name(name): name for name in list_columns(rows)}
    found = {names[known]: tuple(read_id(row, names[known]) for row in rows) for known in ID_NAMES if known in names}
    return {name: ids for name, ids in found.items() if any(ids)}


def fill_ids(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The same rows with the ids of their preferred column, which may repeat; "" without one."""
    column = next(iter(find_id_columns(rows)), None)
    return tuple(row if column is None else replace(row, id=read_id(row, column) or "") for row in rows)


def list_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """The names of all columns or keys of rows as `read_rows` gives them, the id first."""
    first = {ID: None} if any(row.id for row in rows) else {}
    return tuple(first | {name: None for row in rows for name in row.values})


def read_id(row: Row, column: str) -> str | None:
    """The id of a row in a column: text or a whole number; None for anything else and for an empty cell.

    Data frames write a column of numbers with a gap in it as 50.0, 51.0.
    """
    if column == ID:
        return row.id or None
    value = row.values.get(column)
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def normalise_name(name: str) -> str:
    """A column's name without case and signs: `studyid` for "Study ID" and "study_id"."""
    return re.sub(r"[\W_]+", "", name.casefold())


@dataclass(frozen=True)
class ReportTable:
    """Rows of a file whose columns are not chosen yet; its name is what the user named: the file, or its run folder."""

    name: str
    path: Path
    rows: tuple[Row, ...]

    @property
    def is_run(self) -> bool:
        """Whether the user named a run folder."""
        return self.name != str(self.path)


DEFAULT_SECTIONS = ("findings",)
_REPORT_NAMES = (*CANDIDATE_NAMES, *REFERENCE_NAMES, "report")


def choose_reference_columns(
    table: ReportTable, sections: tuple[str, ...], named: Mapping[str, str], candidate: str | None
) -> tuple[str, ...]:
    """Where the references stand: one column, or those of several sections; none where each row has `sections`.

    Args:
        named: Role → column, as --columns gives them.
        candidate: Column of the generated reports in the same file.
    """
    if "reference" in named:
        return (_named_column(table, named, "reference"),)
    texts = {name: classify_column(name) for name in find_text_columns(table.rows) if name != candidate}
    options: list[tuple[str, ...]] = [(name,) for name, kind in texts.items() if kind in (*REFERENCE_NAMES, "report")]
    parts = tuple(name for section in sections for name, kind in texts.items() if kind == section)
    if parts and len(parts) == len(sections):
        # Asked for by name, or of a file that keeps its sections beside the whole report, as ReXrank's do.
        if sections != DEFAULT_SECTIONS or all(normalise_name(name).startswith("section") for name in parts):
            return parts
        options.append(parts)
    if len(options) > 1:
        raise _ambiguous(table, [", ".join(option) for option in options], "reference")
    if not options and not all(isinstance(row.values.get("sections"), Mapping) for row in table.rows):
        raise DataError(
            f"{table.path}: Columns found: {_list_names(table)}. No column of reference reports: name one `reference` "
            "or pass --columns reference=NAME."
        )
    return options[0] if options else ()


def choose_candidate_column(table: ReportTable, named: Mapping[str, str], *, inline: bool = False) -> str:
    """Where the generated reports stand, in a file of their own or, inline, beside the references."""
    if "candidate" in named:
        return _named_column(table, named, "candidate")
    texts = {name: classify_column(name) for name in find_text_columns(table.rows)}
    if inline:
        found = list_inline_candidates(table)
    else:
        report = [name for name, kind in texts.items() if kind == "report"]
        if MODEL_PREDICTION in texts.values():
            report = []  # in ReXrank's files `report` is the reference
        candidates = [name for name, kind in texts.items() if kind in CANDIDATE_NAMES]
        found = report if table.is_run and report else [*candidates, *report]
    if len(found) > 1:
        raise _ambiguous(table, found, "candidate")
    if not found:
        if inline and table.path.suffix.lower() not in TABLES:
            raise DataError(
                f"{table.path} holds one report per line and no generated reports beside; give --predictions."
            )
        remedy = "name one `candidate` or pass --columns candidate=NAME" + (", or give --predictions" if inline else "")
        raise DataError(f"{table.path}: Columns found: {_list_names(table)}. No column of generated reports: {remedy}.")
    return found[0]


def list_inline_candidates(table: ReportTable) -> list[str]:
    """Columns of generated reports beside those of references; none in a file of one kind, scored against itself."""
    texts = {name: classify_column(name) for name in find_text_columns(table.rows)}
    if found := [name for name, kind in texts.items() if kind in CANDIDATE_NAMES]:
        return found
    # `report` is the generated one only where something else is clearly the reference.
    sections = [name for name, kind in texts.items() if kind in SECTIONS]
    known = len(sections) == 1 or any(kind in REFERENCE_NAMES for kind in texts.values())
    return [name for name, kind in texts.items() if kind == "report" and known]


def _named_column(table: ReportTable, named: Mapping[str, str], role: str) -> str:
    """The column that --columns names for a role."""
    if (column := find_column(list_columns(table.rows), named[role])) is None:
        raise DataError(
            f"{table.path}: Columns found: {_list_names(table)}. No column '{named[role]}': correct --columns "
            f"{role}=NAME."
        )
    return column


def _ambiguous(table: ReportTable, options: Sequence[str], role: str) -> DataError:
    several = " and ".join(f"'{option}'" for option in options)
    return DataError(
        f"{table.path}: Columns found: {_list_names(table)}. {several} may each hold the {role} reports: choose one "
        f"with --columns {role}=NAME."
    )


def _list_names(table: ReportTable) -> str:
    return ", ".join(name or "(without a name)" for name in list_columns(table.rows))


def check_id_column(tables: Sequence[ReportTable], named: Mapping[str, str]) -> None:
    """Refuse a column of --columns id=NAME that no file has."""
    if "id" in named and not any(find_named_id_column(table, named) for table in tables):
        columns = "; ".join(", ".join(list_columns(table.rows)) for table in tables) or "none"
        raise DataError(f"Columns found: {columns}. No column '{named['id']}' to match by: correct --columns id=NAME.")


def find_named_id_column(table: ReportTable, named: Mapping[str, str]) -> str | None:
    """The column of --columns id=NAME; None where it is not given or not in this file."""
    return find_column(list_columns(table.rows), named["id"]) if "id" in named else None


@dataclass(frozen=True)
class IdColumns:
    """The columns of one side that may identify its studies."""

    name: str  # the side in messages
    # Column → the id of each row, None where it is empty; the preferred column first.
    ids: Mapping[str, tuple[str | None, ...]]
    rows: tuple[Row, ...] = ()  # of a file; none for a corpus and for texts in memory


def match_id_columns(left: IdColumns, right: IdColumns, *, given: bool = False) -> tuple[str | None, str | None]:
    """The columns by which references (left) and predictions (right) are matched; None and None: by their order.

    Args:
        left: Of the references.
        right: Of the predictions.
        given: Whether the user named the column.
    """
    same = _list_same_columns(left, right)
    pairs = [*same, *((one, two) for one in left.ids for two in right.ids if (one, two) not in same)]
    matching = (pair for pair in pairs if _all_distinct(left, right, pair) and _count_shared(left, right, pair))
    if (chosen := next(matching, None)) is not None:
        if not given and _number_rows(left, right, chosen):
            # The rows' numbers match in any two files: other columns that recur must agree. What differs from row to
            # row by chance, such as seconds, does not recur as a whole.
            left, right = _with_distinct_columns(left), _with_distinct_columns(right)
            same += [
                pair
                for pair in _list_same_columns(left, right)
                if _count_shared(left, right, pair) == len(right.ids[pair[1]])
            ]
        _check_agreement(left, right, chosen, same)
        return chosen
    if not left.ids and not right.ids and left.rows and right.rows:
        return _match_other_columns(_with_distinct_columns(left), _with_distinct_columns(right))
    # With repeats, of other studies, or on one side alone: an error where they are read and matched.
    return pairs[0] if pairs else (next(iter(left.ids), None), next(iter(right.ids), None))


def _match_other_columns(left: IdColumns, right: IdColumns) -> tuple[str | None, str | None]:
    """The column of both files whose values differ from row to row and recur in the other; None without one.

    A column that numbers the rows of both files adds nothing to their order. Without a column to match by, files
    whose rows are visibly in another order are refused.
    """
    pairs = [pair for pair in _list_same_columns(left, right) if not _number_rows(left, right, pair)]
    shared = {pair: _count_shared(left, right, pair) for pair in pairs}
    best = max(shared, key=lambda pair: shared[pair], default=None)
    if best is not None and shared[best]:
        _check_agreement(left, right, best, [pair for pair in shared if shared[pair] == shared[best]])
        return best
    names = {normalise_name(name): name for name in list_columns(left.rows)}
    for two in list_columns(right.rows):
        one = names.get(normalise_name(two))
        if one is None or classify_column(two) in (*_REPORT_NAMES, *DEFAULT_SECTIONS):
            continue
        values = [[str(row.values.get(name)) for row in side.rows] for side, name in ((left, one), (right, two))]
        if values[0] != values[1] and sorted(values[0]) == sorted(values[1]):
            raise DataError(
                f"{left.name} and {right.name} have no column of ids, and their rows are not in the same order: "
                f"'{one}' has the same values in another order; name the column that identifies the studies with "
                "--columns id=NAME, or match row by row nevertheless with --by-row."
            )
    return None, None


def _check_agreement(
    left: IdColumns, right: IdColumns, chosen: tuple[str, str], others: Iterable[tuple[str, str]]
) -> None:
    """Refuse two columns of ids by which different rows belong together: one of them is only the rows' number."""
    rows = {key: place for place, key in enumerate(left.ids[chosen[0]])}
    for one, two in others:
        if (one, two) == chosen or not _count_shared(left, right, (one, two)):
            continue
        for place, key in enumerate(right.ids[chosen[1]]):
            row = rows.get(key, rows.get(split_image_id(key or "")[0]))
            other = right.ids[two][place]
            if row is not None and left.ids[one][row] not in (other, split_image_id(other or "")[0]):
                raise DataError(
                    f"{left.name} and {right.name} match differently by '{chosen[0]}' and by '{one}' (for example "
                    f"'{chosen[0]}' {key}); name the column that identifies the studies with --columns id=NAME."
                )


_NO_IDS = (*_REPORT_NAMES, *SECTIONS, "age", "sex", "view", "split", "score", "confidence")
_FRACTION = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?", re.IGNORECASE)


def _with_distinct_columns(side: IdColumns) -> IdColumns:
    """With the columns that have another word or whole number in each row, neither a report nor about the patient."""
    found = dict(side.ids)
    for name in list_columns(side.rows):
        values = tuple(read_id(row, name) for row in side.rows)
        if classify_column(name) not in _NO_IDS and None not in values and len(set(values)) == len(values):
            if not any(" " in (key or "") or _FRACTION.fullmatch(key or "") for key in values):
                found[name] = values
    return replace(side, ids=found)


def _list_same_columns(left: IdColumns, right: IdColumns) -> list[tuple[str, str]]:
    """Columns of the same name on both sides."""
    return [(one, two) for one in left.ids for two in right.ids if normalise_name(one) == normalise_name(two)]


def _all_distinct(left: IdColumns, right: IdColumns, pair: tuple[str, str]) -> bool:
    """Whether both columns have an id of its own in each row."""
    both = (left.ids[pair[0]], right.ids[pair[1]])
    return all(None not in ids and len(set(ids)) == len(ids) for ids in both)


def _number_rows(left: IdColumns, right: IdColumns, pair: tuple[str, str]) -> bool:
    """Whether both columns are 0, 1, 2 … or 1, 2, 3 …, as data frames and spreadsheets number their rows."""
    both = (left.ids[pair[0]], right.ids[pair[1]])
    return all(any(all(key == str(n) for n, key in enumerate(ids, first)) for first in (0, 1)) for ids in both)


def _count_shared(left: IdColumns, right: IdColumns, pair: tuple[str, str]) -> int:
    """How many predictions have an id of the references; `s1#2` counts where `s1` is one."""
    known = set(left.ids[pair[0]])
    return sum(key is not None and (key in known or split_image_id(key)[0] in known) for key in right.ids[pair[1]])


def split_image_id(key: str) -> tuple[str, int | None]:
    """`s1#2` is image 2 of s1; anything else is a study."""
    study, mark, number = key.rpartition("#")
    # `s1#00` is no second name of `s1#0`: the same image would count twice.
    single = mark and number.isascii() and number.isdigit() and str(int(number)) == number
    return (study, int(number)) if single else (key, None)


def read_rows(path: Path) -> tuple[tuple[int, Row], ...]:
    """Every row of a file with its number from 1; ids may be absent ("") or repeat."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file of reports, a corpus folder or a run with predictions.")
    readers = dict(zip(TABLES, (_jsonl, _jsonl, _json, _csv, _csv, _typed, _typed), strict=True))
    if (reader := readers.get(path.suffix.lower())) is not None:
        found = tuple(reader(path))
    else:
        # Not `splitlines`, which also splits at form feeds and other rare characters and would shift every later pair.
        text = read_text(path).replace("\r\n", "\n").removesuffix("\n")
        lines = enumerate(text.split("\n") if text else [], 1)
        found = tuple((number, Row(f"{path}:{number}", "", {"report": line})) for number, line in lines)
    if not found:
        raise DataError(f"{path} holds no report; check that it is the right file.")
    return found


def parse_report(value: Any, place: str) -> str | None:
    """A report: text, or None for null and not-a-number; anything else raises `DataError`.

    A list with one text is that text: some tools store several references per study.
    """
    value = _only(value)
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    raise DataError(f"{place} is {short_repr(value)}, not a report; give text, or null where there is none.")


def _only(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def is_missing(value: Any) -> bool:
    """Whether this is a missing value: None, a not-a-number of any kind, the NA of a data frame."""
    if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
        return True
    return not isinstance(value, str) and type(value).__name__ in ("NAType", "NaTType")


def parse_id(value: Any, place: str) -> str:
    """An id: text, or a whole number as its digits."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{place}: the id is {short_repr(value)}; give text or a whole number.")


def _row(values: Mapping[str, Any], place: str) -> Row:
    found = {str(key).strip().lower(): value for key, value in values.items()}
    key = found.pop(ID, None)
    return Row(place, "" if key is None else parse_id(key, place), found)


def _jsonl(path: Path) -> Iterator[tuple[int, Row]]:
    for number, (line, values) in enumerate(read_jsonl(path, undefined=True), 1):
        yield number, _row(values, f"{path}:{line}")


def _json(path: Path) -> Iterator[tuple[int, Row]]:
    """An object of id → report, or a list of reports or of objects as in a JSONL file."""
    try:
        value = loads(read_text(path), undefined=True)
    except InvalidJson as error:
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
        raise DataError(f"{path} holds {short_repr(value)}; give an object of id and report, or a list of reports.")


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    records = csv_records(path, "\t" if path.suffix.lower() == ".tsv" else find_delimiter(path))
    head = [name.strip().lower() for name in next(records, (1, list[str]()))[1]]
    if len(set(head)) < len(head):
        raise DataError(f"{path}:1: the column names are not all different: {', '.join(head)}.")
    number = 0
    for line, cells in records:
        if not cells and len(head) > 1:
            continue
        # With one column a blank line is an empty cell: skipping it would shift every later report.
        cells = cells or [""]
        place = f"{path}:{line}"
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


def _typed(path: Path) -> Iterator[tuple[int, Row]]:
    """Excel and Parquet, whose whole numbers may be stored as floats."""
    for number, row in enumerate(open_table(path).rows, 1):
        values = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in row.values.items()
        }
        yield number, _row(values, row.place)


# `25`, `72.5`, DICOM's `072Y`, `019M`, `001D`, a grouped `90+` or `>89`.
_AGE = re.compile(r"[<>]?\s*(\d+(?:\.\d+)?)\s*([a-z]*)\.?\s*(?:old)?\s*\+?", re.IGNORECASE)
_YEARS = {"": 1.0, "y": 1.0, "m": 1 / 12, "w": 7 / 365.25, "d": 1 / 365.25}
_SEXES = {"f": "F", "female": "F", "w": "F", "woman": "F", "m": "M", "male": "M", "man": "M"}
_NOTHING = ("", "nan", "none", "null", "unknown", "n/a", "na", "?", "-", "___")


def parse_age(value: Any, place: str) -> float | None:
    """An age in years, such as 1.58 for "019M"; None where the source gives none, `DataError` for anything else."""
    if value is None or value != value or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    found = _AGE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    unit = found[2].lower().removesuffix("old").strip()[:1] if found else ""
    if found is None or unit not in _YEARS:
        raise DataError(
            f"{place}: the age is {short_repr(value)}; give years, or a number with Y, M, W or D such as 019M."
        )
    return float(found[1]) * _YEARS[unit]


def parse_sex(value: Any) -> str | None:
    """F or M; None for anything else."""
    return _SEXES.get(str(value).strip().lower())


def parse_view(value: Any) -> str | None:
    """PA, AP, frontal, lateral or other; None where the source gives none."""
    word = str(value if value is not None else "").strip().lower()
    if word in _NOTHING:
        return None
    known = {view.value.lower(): view.value for view in View}
    return known.get(word, "lateral" if word in ("ll", "lat") else View.OTHER.value)
