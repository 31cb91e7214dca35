"""CheXpert Plus: one table with a row for each film, the report and its sections repeated on every row of a study.

The table holds more text than memory should, so it is read twice: first for the films of each study,
then for the texts, study by study. What the data set is stands with the importer (`chexpert.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any

from cxrlab.core.errors import DataError, nearest, shown
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Report, Study
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.config import ImportConfig
from cxrlab.data.sections import parse
from cxrlab.data.sources import priors
from cxrlab.data.sources.chexpert_images import (
    LISTED_TWICE,
    SPLITS,
    SourceImage,
    Trees,
    find_trees,
    image_of,
    known_age,
    parsed_path,
)
from cxrlab.data.sources.csv_file import Row, find_file, find_optional, read_rows
from cxrlab.data.sources.fourteen import Fourteen, stated, stronger
from cxrlab.data.sources.source import Imported, Plan
from cxrlab.data.sources.values import digits, remarks_of, sex_of

TABLE = "df_chexpert_plus_240401.csv"
TABLES = (TABLE, f"{TABLE}.gz", "df_chexpert_plus*.csv", "df_chexpert_plus*.csv.gz")
NO_REPORT = "no report text"
NO_FINDINGS = "report without a findings section"
NO_SECTION = "report in which no section was found"
OWN_SECTIONS = "report without the source's sections, cut by our own rule"
REPORTS_DIFFER = "images of one study with different reports; the first kept"
PATIENTS_DIFFER = "patient of the table is not the patient of the path; that of the path kept"
NO_LABELS = "study without a row in report_fixed.json"
LABELS_WITHOUT_IMAGE = "row of report_fixed.json for a study that the table does not list"
LABELS_DIFFER = "images of one study with different labels; the strongest kept"
NO_ORDER = "study without its place in the order of reports, so that its prior is unknown"

_LABEL_FILES = ("report_fixed.json", "*/report_fixed.json", "*/*/report_fixed.json")
_SECTIONS = {
    # The narrative is the title of the examination; where there is none, how the image was made.
    "examination": ("section_narrative", "section_technique", "section_procedure_comments"),
    "indication": ("section_clinical_history", "section_history"),
    "comparison": ("section_comparison",),
    "findings": ("section_findings",),
    "impression": ("section_impression",),
}
_SECTION_COLUMNS = tuple(column for columns in _SECTIONS.values() for column in columns)
_DEMOGRAPHICS = ("race", "ethnicity", "interpreter_needed", "insurance_type", "recent_bmi", "deceased")
_ONCE_A_STUDY = ("report", *_SECTION_COLUMNS, "age", "sex", *_DEMOGRAPHICS)
_NEEDED = ("path_to_image", "report", "section_findings", "section_impression", "split")


@dataclass(slots=True)
class Visit:
    """One study as the first reading finds it, filled row by row."""

    split: str
    order: str
    digest: bytes
    images: list[SourceImage] = field(default_factory=list)
    reports_differ: bool = False
    patients_differ: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """One study with its text; what a worker receives. `cells` are those that stand once a study."""

    visit: Visit
    cells: Row
    labels: Fourteen | None
    labels_differ: bool
    prior: str | None


def plan_plus(config: ImportConfig, folder: Path) -> Plan[Reported]:
    """The studies in the order of the table; `folder` holds it."""
    table = find_file(folder, *TABLES, what="the table of CheXpert Plus")
    remarks = Counter[str]()
    visits = _visits(table, remarks)
    labels, differ = _labels(folder, visits, remarks)
    before = priors.prior_studies(
        priors.Visit(study, visit.images[0].path.patient, visit.order) for study, visit in visits.items()
    )
    return Plan(
        items=_reported(table, visits, labels, differ, before),
        study_id=_study_id,
        read=partial(read, find_trees(config.root)),
        total=len(visits),
        layout="plus",
        collections=("stanford",),
        remarks={remark: count for remark, count in remarks.items() if count},
    )


def read(trees: Trees, reported: Reported) -> Imported:
    """One study of CheXpert Plus."""
    visit, cells = reported.visit, reported.cells
    first = visit.images[0].path
    age, sex = known_age(_filled(cells, "age") or ""), sex_of(_filled(cells, "sex") or "")
    text = _filled(cells, "report")
    sections, text_remarks = _sections(cells, text)
    demographics = {key: value for key in _DEMOGRAPHICS if (value := _filled(cells, key)) is not None}
    study = Study(
        id=first.study_id,
        patient=first.patient,
        images=tuple(image.image(trees) for image in visit.images),
        sections=sections,
        report=text,
        split=visit.split,
        age=age.years,
        sex=sex.letter,
        prior=reported.prior,
        labels=stated(reported.labels) if reported.labels else {},
        extra={"demographics": demographics} if demographics else {},
    )
    remarks = remarks_of(
        age.remark,
        sex.remark,
        *text_remarks,
        REPORTS_DIFFER if visit.reports_differ else None,
        PATIENTS_DIFFER if visit.patients_differ else None,
        LABELS_DIFFER if reported.labels_differ else None,
        None if reported.labels else NO_LABELS,
        None if visit.order else NO_ORDER,
    )
    return Imported(study, remarks)


def _visits(table: Path, remarks: Counter[str]) -> dict[str, Visit]:
    """The first reading: images, split and order of each study; of the report only whether it is always the same."""
    visits: dict[str, Visit] = {}
    for line, row in read_rows(table, _NEEDED):
        place = f"{table}:{line}"
        path = parsed_path(row["path_to_image"], f"{place}: 'path_to_image'")
        digest = hashlib.blake2b(row["report"].encode(), digest_size=8).digest()
        split = _split(_filled(row, "split") or path.split_folder, place)
        order = _order(row.get("patient_report_date_order", ""), place)
        visit = visits.setdefault(path.study_id, Visit(split, order, digest))
        if visit.split != split:
            raise DataError(f"{place} puts {path.study_id} in another split than an earlier row; fetch the file again.")
        if any(path == image.path for image in visit.images):
            remarks[LISTED_TWICE] += 1
            continue
        frontal_lateral, ap_pa = (_filled(row, column) or "" for column in ("frontal_lateral", "ap_pa"))
        visit.images.append(image_of(path, frontal_lateral, ap_pa))
        visit.reports_differ |= digest != visit.digest
        visit.patients_differ |= row.get("deid_patient_id", "") not in ("", path.patient)
    return visits


def _reported(
    table: Path,
    visits: Mapping[str, Visit],
    labels: Mapping[str, Fourteen],
    differ: set[str],
    before: Mapping[str, str],
) -> Iterator[Reported]:
    """The second reading: each study with the text of its first row, in the order of the table."""
    done: set[str] = set()
    for line, row in read_rows(table, _NEEDED):
        study = parsed_path(row["path_to_image"], f"{table}:{line}: 'path_to_image'").study_id
        if study not in done:
            done.add(study)
            cells = {column: row[column] for column in _ONCE_A_STUDY if column in row}
            yield Reported(visits[study], cells, labels.get(study), study in differ, before.get(study))


def _labels(folder: Path, visits: Mapping[str, Visit], remarks: Counter[str]) -> tuple[dict[str, Fourteen], set[str]]:
    """Study → labels, and the studies whose images do not agree on them."""
    found: dict[str, Fourteen] = {}
    differ: set[str] = set()
    same: dict[Fourteen, Fourteen] = {}
    table = find_optional(folder, *_LABEL_FILES)
    for line, values in read_jsonl(table, undefined=True) if table else ():
        place = f"{table}:{line}"
        study = parsed_path(str(values.get("path_to_image", "")), f"{place}: 'path_to_image'").study_id
        if study not in visits:
            remarks[LABELS_WITHOUT_IMAGE] += 1
            continue
        labels = tuple(_label(values, name, place) for name in CHEXPERT_14)
        if found.setdefault(study, same.setdefault(labels, labels)) != labels:
            found[study] = stronger(found[study], labels)
            differ.add(study)
    return found, differ


def _label(values: Mapping[str, Any], name: str, place: str) -> int | None:
    if name not in values:
        raise DataError(
            f"{place} has no '{name}'.{nearest(name, values)} It must give all fourteen, null where unknown."
        )
    value = values[name]
    if value is None or value != value:
        return None
    if isinstance(value, bool) or value not in (1, 0, -1):
        raise DataError(f"{place}: '{name}' is {shown(value)}; a label is 1, 0, -1 or null.")
    return int(value)


def _sections(cells: Row, text: str | None) -> tuple[Report | None, tuple[str, ...]]:
    """The source's own sections; ours where it gives none of a report; the remarks on them."""
    told = {
        name: next(filter(None, (_filled(cells, column) for column in columns)), None)
        for name, columns in _SECTIONS.items()
    }
    report, remarks = Report(**told), []
    if report == Report():
        if text is None:
            return None, (NO_REPORT,)
        report = parse(text).report
        if report == Report():
            return None, (NO_SECTION,)
        remarks.append(OWN_SECTIONS)
    return report, (*remarks, *(() if report.findings else (NO_FINDINGS,)))


def _filled(cells: Row, column: str) -> str | None:
    """What a cell holds; None where it is empty or was written from an undefined value."""
    cell = cells.get(column, "")
    return None if not cell or cell.lower() == "nan" else cell


def _split(word: str, place: str) -> str:
    if word.lower() not in SPLITS:
        raise DataError(f"{place}: 'split' is {shown(word)}.{nearest(word, SPLITS)} It is train, valid or test.")
    return SPLITS[word.lower()]


def _order(cell: str, place: str) -> str:
    """The place of a report among those of its patient, as text that sorts; empty when not given."""
    if not cell or cell.lower() == "nan":
        return ""
    return intern(digits(cell, f"{place}: 'patient_report_date_order'").zfill(9))


def _study_id(reported: Reported) -> str:
    return reported.visit.images[0].path.study_id
