"""The tables of MIMIC-CXR, each as a mapping that the importer joins.

Half a million rows are held at once, so that what repeats (views, procedures, label vectors, names of
splits) is held once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from sys import intern
from typing import NamedTuple

from cxrlab.core.errors import DataError, nearest, shown
from cxrlab.data.sources.csv_file import Row, read_rows
from cxrlab.data.sources.fourteen import NEEDED, Fourteen, fourteen, our_names, stronger
from cxrlab.data.sources.mimic_views import ImageView, view_of
from cxrlab.data.sources.priors import moment_of
from cxrlab.data.sources.values import digits, sex_of

LABELLED_TWICE = "study labelled twice; the stronger label kept"
IN_TWO_SPLITS = "image that the table of splits lists twice with different splits; the first row counts"

_SPLITS = {"train": "train", "validate": "val", "test": "test"}
_viewed = lru_cache(maxsize=4096)(view_of)


class Moment(NamedTuple):
    """When a study was taken, in the shifted calendar of its patient.

    Args:
        date: Year, month and day as eight digits.
        time: Hours, minutes and seconds as one number (213014.531); -1 where unknown.
    """

    date: str
    time: float

    @property
    def sortable(self) -> str:
        """As text that sorts in time."""
        return f"{self.date} {self.time:013.3f}"


class ImageRow(NamedTuple):
    """One image as the tables list it; view and moment are None where no table tells them."""

    dicom: str
    subject: str
    study: str
    path: str
    view: ImageView | None
    moment: Moment | None
    procedure: str


class Person(NamedTuple):
    """What MIMIC-IV knows of a patient: the age in one year of the shifted calendar, and the sex."""

    anchor_age: int | None
    anchor_year: int | None
    sex: str | None


def jpg_images(metadata: Path, folder: str) -> Iterator[ImageRow]:
    """The images of MIMIC-CXR-JPG, in the order of its table.

    Args:
        metadata: The table of metadata.
        folder: What stands before `p10/…` in the paths of images: "files/" or nothing.
    """
    needed = ("dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime")
    for line, row in read_rows(metadata, needed):
        dicom, subject, study = _ids(row, metadata, line)
        path = f"{folder}p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg"
        yield ImageRow(dicom, subject, study, path, _view(row), _moment(row), _procedure(row))


def dicom_images(records: Path, metadata: Path | None) -> Iterator[ImageRow]:
    """The images of MIMIC-CXR (DICOM), in the order of its list; view and date where the JPG's table is there too."""
    described: dict[str, tuple[ImageView, Moment | None, str]] = {}
    if metadata is not None:
        for _, row in read_rows(metadata, ("dicom_id", "ViewPosition", "StudyDate", "StudyTime")):
            described[row["dicom_id"]] = (_view(row), _moment(row), _procedure(row))
    for line, row in read_rows(records, ("dicom_id", "subject_id", "study_id", "path")):
        dicom, subject, study = _ids(row, records, line)
        told = described.get(dicom)
        yield ImageRow(dicom, subject, study, row["path"], *(told or (None, None, "")))


def listed_studies(studies: Path) -> Iterator[tuple[str, str]]:
    """Subject and study of each row of the list of studies."""
    for line, row in read_rows(studies, ("subject_id", "study_id")):
        place = f"{studies}:{line}"
        yield digits(row["subject_id"], f"{place}: 'subject_id'"), digits(row["study_id"], f"{place}: 'study_id'")


def splits_of(table: Path, remarks: Counter[str]) -> dict[str, str]:
    """Image → train, val or test."""
    found: dict[str, str] = {}
    for line, row in read_rows(table, ("dicom_id", "split")):
        split = _SPLITS.get(row["split"].lower())
        if split is None:
            hint = nearest(row["split"], _SPLITS)
            known = ", ".join(_SPLITS)
            raise DataError(f"{table}:{line}: 'split' is {shown(row['split'])}.{hint} It is one of {known}.")
        if found.setdefault(row["dicom_id"], split) != split:
            remarks[IN_TWO_SPLITS] += 1
    return found


def labels_of(table: Path, remarks: Counter[str]) -> dict[str, Fourteen]:
    """Study → its fourteen labels; "Airspace Opacity" is taken as another name of "Lung Opacity"."""
    found: dict[str, Fourteen] = {}
    same: dict[Fourteen, Fourteen] = {}  # most vectors repeat
    for line, row in read_rows(table, ("study_id", *NEEDED), rename=our_names):
        place = f"{table}:{line}"
        study = digits(row["study_id"], f"{place}: 'study_id'")
        labels = fourteen(row, place)
        if study in found:
            labels = stronger(found[study], labels)
            remarks[LABELLED_TWICE] += 1
        found[study] = same.setdefault(labels, labels)
    return found


def people_of(table: Path) -> dict[str, Person]:
    """Subject → age and sex, from the table of patients of MIMIC-IV; an empty cell is unknown."""
    found = {}
    for line, row in read_rows(table, ("subject_id", "gender", "anchor_age", "anchor_year")):
        place = f"{table}:{line}"
        age, year = (
            int(digits(row[key], f"{place}: '{key}'")) if row[key] else None for key in ("anchor_age", "anchor_year")
        )
        found[digits(row["subject_id"], f"{place}: 'subject_id'")] = Person(age, year, sex_of(row["gender"]).letter)
    return found


def _ids(row: Row, table: Path, line: int) -> tuple[str, str, str]:
    place = f"{table}:{line}"
    if not row["dicom_id"]:
        raise DataError(f"{place}: 'dicom_id' is empty; fetch the file again.")
    return (
        row["dicom_id"],
        digits(row["subject_id"], f"{place}: 'subject_id'"),
        digits(row["study_id"], f"{place}: 'study_id'"),
    )


def _view(row: Row) -> ImageView:
    code = row.get("ViewCodeSequence_CodeMeaning", "")
    return _viewed(row["ViewPosition"], code, row.get("PerformedProcedureStepDescription", ""))


def _procedure(row: Row) -> str:
    return intern(row.get("PerformedProcedureStepDescription", ""))


def _moment(row: Row) -> Moment | None:
    date = moment_of(row["StudyDate"])
    if not date:
        return None
    try:
        time = float(row["StudyTime"])
    except ValueError:
        time = -1.0
    return Moment(date, time if 0 <= time < math.inf else -1.0)
