"""Read the tables of a data set: CSV files, and the ages, labels, dates, paths and DICOM headers that they refer to."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import IO, Generic, NamedTuple, TextIO, TypeVar, cast

from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import unreadable
from cxrlab.core.label_maps import LABEL_MAPS
from cxrlab.core.table_rows import MAX_ROW_CHARS, CsvLines
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.bounded_reading import Unpacked, max_unpacked_bytes
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import check_inside
from cxrlab.data.images import DicomInfo, dicom_info, is_dicom

Row = dict[str, str]
# Folders of a root in which a file is looked for that the root itself does not hold.
_MOST_FOLDERS = 100
# What an importer found so far, in order; see `record_source_files`.
_found: ContextVar[dict[Path, None] | None] = ContextVar("_found", default=None)


@contextlib.contextmanager
def record_source_files() -> Iterator[dict[Path, None]]:
    """Collect the files, images aside, that an importer finds meanwhile: what the corpus is made from."""
    files: dict[Path, None] = {}
    token = _found.set(files)
    try:
        yield files
    finally:
        _found.reset(token)


def record_source_file(file: Path) -> Path:
    """The file, recorded as one that the corpus is made from; `find_file` and `find_optional` call this themselves."""
    files = _found.get()
    if files is not None:
        files[file] = None
    return file


def find_file(root: Path, *names: str, what: str) -> Path:
    """The first of these files under the root, in order of preference; `what` is the file, for the error."""
    found = find_optional(root, *names)
    if found is None:
        near = folder_with(root, *names)
        remedy = f"it lies in {near}, so give that folder" if near else "give the folder that holds it"
        raise DataError(f"{root} does not hold {what}: looked for {', '.join(names)}; {remedy}.")
    return found


def find_optional(root: Path, *names: str) -> Path | None:
    """The first of these files under the root, or None; see `find_file`."""
    if not root.is_dir():
        kind = "is a file, not a folder" if root.exists() else "does not exist"
        raise DataError(f"{root} {kind}; give the folder that you downloaded.")
    for name in names:
        matches = sorted(root.glob(name)) if "*" in name else [root / name]
        for match in matches:
            if match.is_file():
                return record_source_file(match)
    return None


def folder_with(root: Path, *names: str) -> Path | None:
    """The folder above or just below the root that holds one of these files, for the remedy of an error."""
    with contextlib.suppress(OSError):
        below = sorted(entry for entry in root.iterdir() if entry.is_dir())
        for folder in (root.resolve().parent, *below[:_MOST_FOLDERS]):
            if any(next(folder.glob(name), None) for name in names):
                return folder
    return None


def read_rows(
    path: Path,
    needed: Sequence[str],
    *,
    rename: Mapping[str, str] | Callable[[list[str]], list[str]] = MappingProxyType({}),
    padded: bool = False,
) -> Iterator[tuple[int, Row]]:
    """Each row with its line number, by column name; cells are stripped of blanks at both ends.

    Args:
        path: A `.csv` file, or the same packed by gzip, detected by content.
        rename: Old → new column name, or a function of the whole header, where a header is known to be broken.
        padded: Let a row be shorter than the header; the cells that it lacks are empty.
    """
    limit = csv.field_size_limit(MAX_ROW_CHARS)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        if packed:
            unpacked = Unpacked(cast(IO[bytes], gzip.open(path)), path, max_unpacked_bytes(path))
            stream: TextIO = io.TextIOWrapper(io.BufferedReader(unpacked), encoding="utf-8-sig", newline="")
        else:
            stream = path.open(encoding="utf-8-sig", newline="")
        with stream:
            lines = CsvLines(path, stream)
            reader = csv.reader(lines)
            header = [name.strip() for name in next(reader, [])]
            header = rename(header) if callable(rename) else [rename.get(name, name) for name in header]
            missing = [name for name in needed if name not in header]
            if missing:
                hint = did_you_mean(missing[0], header)
                has = ", ".join(filter(None, header[:8])) or "nothing"
                raise DataError(f"{path} has no column '{missing[0]}'.{hint} Its first columns are {has}.")
            for cells in reader:
                lines.taken = 0
                if not any(cells):
                    continue
                if len(cells) != len(header) and not (padded and len(cells) < len(header)):
                    raise DataError(
                        f"{path}:{reader.line_num} has {len(cells)} cells under {len(header)} columns; "
                        "a quote or comma is out of place there, or the file was cut."
                    )
                cells += [""] * (len(header) - len(cells))
                yield reader.line_num, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); fetch it again.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8.") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a usable CSV file ({error}); fetch it again.") from None
    except OSError as error:
        raise unreadable(error, path) from error
    finally:
        csv.field_size_limit(limit)


MAX_AGE = 120
AGE_OUT_OF_RANGE = f"age outside 0 to {MAX_AGE} years, left out"
AGE_UNREADABLE = "age not readable, left out"
SEX_UNREADABLE = "sex neither F nor M, left out"

# "054Y" is how DICOM writes an age; months, weeks and days are parts of a year.
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([YMWD]?)(?:ears?)?\+?", re.IGNORECASE)
_YEARS = {"Y": 1.0, "": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}
_SEXES = {"f": "F", "female": "F", "w": "F", "woman": "F", "m": "M", "male": "M", "man": "M"}
# Python refuses to read whole numbers of thousands of digits; no id or count needs half a hundred.
_MOST_DIGITS = 50
_NO_SEX = ("", "o", "unknown", "other", "none", "nan", "u", "n/a")


class Age(NamedTuple):
    """An age in years, or None; and the remark where one was given that is none."""

    years: float | None
    remark: str | None = None


class Sex(NamedTuple):
    """F, M or None; and the remark where something else was given."""

    letter: str | None
    remark: str | None = None


def parse_age(cell: str) -> Age:
    """An age in years as tables write it: "71", "71.0", "054Y", "6M" (months), "90+"; empty is unknown."""
    if not cell or cell.lower() in ("nan", "none"):
        return Age(None)
    match = _AGE.fullmatch(cell)
    if match is None:
        return Age(None, AGE_UNREADABLE)
    years = float(match[1]) * _YEARS[match[2].upper()]
    if years > MAX_AGE:
        return Age(None, AGE_OUT_OF_RANGE)
    return Age(int(years) if years == int(years) else round(years, 3))


def parse_sex(cell: str) -> Sex:
    """A sex as tables write it ("F", "Female"); "O", "Unknown" and nothing are unknown without a remark."""
    word = cell.strip().lower()
    if word in _SEXES:
        return Sex(_SEXES[word])
    return Sex(None, None if word in _NO_SEX else SEX_UNREADABLE)


def parse_label(cell: str, place: str) -> int | None:
    """A label as tables write it: 1, 0, -1 as whole numbers or decimals; an empty cell is None (unknown)."""
    if not cell or cell.lower() == "nan":
        return None
    try:
        value = float(cell)
    except ValueError:
        value = 2.0
    if value not in (1.0, 0.0, -1.0):
        raise DataError(f"{place} is {short_repr(cell)}; a label is 1, 0, -1 or empty.")
    return int(value)


def parse_digits(cell: str, place: str) -> str:
    """The digits of a whole number as a table writes it: an id, a count; other programs may have put ".0" behind it."""
    number = cell.removesuffix(".0")
    if not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
        raise DataError(f"{place} is {short_repr(cell)}, not a whole number; correct it or fetch the file again.")
    return number


def present_remarks(*remarks: str | None) -> tuple[str, ...]:
    """Those that are not None, in order."""
    return tuple(remark for remark in remarks if remark is not None)


# One value for each of CHEXPERT_14, in its order; None is unknown.
LabelVector = tuple[int | None, ...]
# What a table of labels must have; that nothing was found may be left to be concluded.
LABEL_COLUMNS = tuple(name for name in CHEXPERT_14 if name != "No Finding")

AIRSPACE_OPACITY = "Airspace Opacity"
# Labels by radiologists call one observation by another name.
STANDARD_LABEL_NAMES = MappingProxyType({AIRSPACE_OPACITY: "Lung Opacity"})
# The usual spellings, which need no closer look.
_USUAL = {"": None, "1.0": 1, "0.0": 0, "-1.0": -1, "1": 1, "0": 0, "-1": -1}


def label_vector(row: Row, place: str) -> LabelVector:
    """The labels of one row; a column that is not there (see `LABEL_COLUMNS`) is unknown."""
    cells = [row.get(column, "") for column in CHEXPERT_14]
    try:
        return tuple([_USUAL[cell] for cell in cells])
    except KeyError:
        return tuple(parse_label(row.get(column, ""), f"{place}: '{column}'") for column in CHEXPERT_14)


def known_labels(values: LabelVector) -> dict[str, int]:
    """The labels that are known, by name, for `Study.labels`."""
    return {name: value for name, value in zip(CHEXPERT_14, values, strict=True) if value is not None}


def merge_labels(first: LabelVector, second: LabelVector) -> LabelVector:
    """The labels of two rows on the same study: present wins over uncertain, uncertain over absent."""
    pairs = zip(first, second, strict=True)
    return tuple(strongest([value for value in pair if value is not None]) for pair in pairs)


_RANK = {0: 0, -1: 1, 1: 2}  # absent, uncertain, present


def strongest(values: Iterable[int]) -> int | None:
    """1 when any is 1, else -1 when any is -1, else 0; None of nothing."""
    return max(values, key=_RANK.__getitem__, default=None)


def to_chexpert_labels(corpus: str, own: Mapping[str, int], equivalent: Collection[str] = ()) -> dict[str, int]:
    """The CheXpert labels that a corpus's own labels state, in CheXpert's order.

    Absence counts only for own labels in `equivalent`, which cover the same findings as the CheXpert label: absence of rib
    fracture does not imply absence of Fracture. `No Finding` is never -1.
    """
    rows = LABEL_MAPS[corpus]
    found: dict[str, list[int]] = {}
    for name, value in own.items():
        label = rows[name].label if name in rows else None
        if label is not None and (value != 0 or name in equivalent) and (label, value) != ("No Finding", -1):
            found.setdefault(label, []).append(value)
    return {label: max(found[label], key=_RANK.__getitem__) for label in CHEXPERT_14 if label in found}


def chosen_layout(config: ImportConfig, known: Sequence[str]) -> str | None:
    """The layout that the settings name, or None when they leave it to the importer; an unknown one is refused."""
    if config.layout is not None and config.layout not in known:
        choice = f"Choose one of {', '.join(known)}, or leave it out." if known else "It has one only; leave it out."
        raise ConfigError(f"layout={config.layout!r} is unknown here.{did_you_mean(config.layout, known)} {choice}")
    return config.layout


def image_path(root: Path, candidates: Iterable[str]) -> str:
    """The first of these paths that is a file under the root, else the first of all, which the import reports."""
    several = tuple(candidates)
    return next((path for path in several if is_image(root, path)), several[0])


def is_image(root: Path, path: str) -> bool:
    """Whether a path of a table is a file under the root; a path outside the root is never opened."""
    try:
        check_inside(path)
        return stat.S_ISREG(os.stat(root / path).st_mode)
    except (DataError, OSError):  # the system refuses names that are too long and links that lead in circles
        return False


def posix_path(path: str) -> str:
    """A path of a table with `/` between its parts, without `./` in front, however the table writes it."""
    return PureWindowsPath(path).as_posix() if "\\" in path else path.removeprefix("./")


SourceImage = TypeVar("SourceImage")

_DATE = re.compile(r"(\d{4})([-/]?)(\d{2})\2(\d{2})(?:\.0|[ T].*)?")


class StudyDate(NamedTuple):
    """The date of a study."""

    study: str
    patient: str
    moment: str  # a date or a number, written so that text sorts in time; empty when unknown


@dataclass(frozen=True, slots=True)
class SourceStudy(Generic[SourceImage]):
    """One study: its images in the order of the table, and the id of the study before."""

    id: str
    images: tuple[SourceImage, ...]
    prior: str | None


def studies_with_priors(
    studies: Mapping[str, Sequence[SourceImage]],
    why_not: Callable[[Sequence[SourceImage]], str | None],
    patient_and_date: Callable[[str, Sequence[SourceImage]], tuple[str, str]],
) -> list[SourceStudy[SourceImage]]:
    """The studies of a table in its order, each with its prior; one that will be left out is not a prior."""
    dates = [
        StudyDate(key, *patient_and_date(key, images)) for key, images in studies.items() if why_not(images) is None
    ]
    before = prior_studies(dates)
    return [SourceStudy(key, tuple(images), before.get(key)) for key, images in studies.items()]


def prior_studies(visits: Iterable[StudyDate]) -> dict[str, str]:
    """Study → the latest study of the same patient at an earlier moment.

    Studies of one moment are not each other's prior; of several, the last one listed is taken.
    """
    moments: dict[str, dict[str, list[str]]] = {}
    for study, patient, moment in visits:
        if moment:
            moments.setdefault(patient, {}).setdefault(moment, []).append(study)
    found: dict[str, str] = {}
    for by_moment in moments.values():
        before: str | None = None
        for moment in sorted(by_moment):
            studies = by_moment[moment]
            if before is not None:
                found.update(dict.fromkeys(studies, before))
            before = studies[-1]
    return found


def parse_date(cell: str) -> str:
    """A date of a table ("20140915", "20140915.0", "2014-09-15 10:00") as yyyymmdd; empty for anything else."""
    match = _DATE.fullmatch(cell)
    return match[1] + match[3] + match[4] if match else ""


HEADER_UNREADABLE = "DICOM header not readable; age, sex and view left out"
# Headers of radiographs take a few kilobytes; reading whole images would take hours for a corpus.
_HEADER_BYTES = 1 << 18


def read_dicom_header(root: Path, image: str) -> tuple[DicomInfo | None, str | None]:
    """The header of a DICOM file under the root, and a remark if it cannot be read or gives an impossible age."""
    if not is_image(root, image):
        return None, None  # the import reports it
    try:
        with (root / image).open("rb") as stream:
            data = stream.read(_HEADER_BYTES)
    except OSError:
        return None, HEADER_UNREADABLE
    if not is_dicom(data):
        return None, None
    try:
        info = dicom_info(data, image)
    except DataError:
        return None, HEADER_UNREADABLE
    if info.age is None:
        return info, None
    if info.age > MAX_AGE:
        return replace(info, age=None), AGE_OUT_OF_RANGE
    return replace(info, age=int(info.age) if info.age == int(info.age) else round(info.age, 3)), None
