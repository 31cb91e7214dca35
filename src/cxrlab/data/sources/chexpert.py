"""CheXpert: chest radiographs of one American hospital with 14 labels; CheXpert Plus adds the reports.

Counts: v1 224,316 images of 65,240 patients: train 223,414 images, valid 234 images of 200 studies, test 668 images of 500
    studies (released apart). Plus: 223,462 images of 187,711 studies of 64,725 patients, each study with its report.
Views: PA, AP and lateral; frontal where a frontal image is neither.
Labels: 14. Train: by the CheXpert labeller from reports (1, 0, -1 uncertain, blank unknown; the tables of other
    labellers, train_cheXbert.csv and its like, are not read). Valid and test: 0 or 1, by radiologists. Plus: by
    CheXbert from the whole report (report_fixed.json; those from findings or impression alone are not read), valid too.
Language: English; v1 has no reports, so that its text is made from labels; Plus has them, cut into sections.
Licence: Stanford University School of Medicine research use agreement: non-commercial, no sharing.
Citation: Irvin et al., CheXpert, a large chest radiograph dataset with uncertainty labels and expert comparison, AAAI
    2019; Chambon et al., CheXpert Plus, arXiv:2405.19538.
Obtain: Stanford AIMI's shared data sets, after registration. Layouts 'v1' and 'small': root is the folder that holds
    train.csv and valid.csv (and test.csv or test_labels.csv), or the one above it; batches unpacked side by side are
    found. Layout 'plus': root holds df_chexpert_plus_240401.csv, report_fixed.json (or chexbert_labels/) and the images
    as trees of JPEG, PNG or DICOM files; where there are several, the first of these.
Defects: the paths of the tables begin with a folder that the disk may not have, and end in .jpg for PNG files too;
    age 0 and sex 'Unknown' stand for unknown, and ages above 90 are given as 90; v1 does not state that the numbers of a
    patient's studies follow time, though the prior is taken by them (Plus gives the order of reports). Race, ethnicity,
    insurance and the like, which Plus gives, are kept under 'demographics'; do not train on them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import intern

from cxrlab.core.errors import DataError, did_you_mean, short_repr
from cxrlab.core.files import unreadable
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import CHEXPERT_14, View
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.sections import parse

LAYOUTS = ("v1", "small", "plus")
LABELS_DIFFER = "images of one study with different labels; the strongest kept"

# The tables of each split, of which one is enough, the more detailed ones first.
_TABLES = {
    "train": ("train.csv",),
    "val": ("valid.csv", "val.csv", "val_labels.csv"),
    "test": ("test.csv", "test_labels.csv", "groundtruth.csv"),
}
# The layout of a folder with the labels of the test images alone, which were released once for both.
_EITHER = "either"
_ABOUT_IMAGES = ("Sex", "Age", "Frontal/Lateral", "AP/PA")


@dataclass(slots=True)
class Visit:
    """One study, filled row by row; age and sex as its first row has them."""

    split: str
    age: str
    sex: str
    labels: source_tables.LabelVector
    images: list[SourceImage] = field(default_factory=list)
    labels_differ: bool = False
    prior: str | None = None


def plan(config: ImportConfig) -> ImportPlan[Visit] | ImportPlan[PlusStudy]:
    """The studies in the order of the tables: train, valid, test."""
    layout, folders = _found(config)
    if layout == "plus":
        return plan_plus(config, folders[0])
    remarks = Counter[str]()
    visits: dict[str, Visit] = {}
    for split, names in _TABLES.items():
        places = (source_tables.find_optional(folder, name) for name in names for folder in folders)
        table = next(filter(None, places), None)
        if table is not None:
            _read_table(table, split, visits, remarks)
    before = source_tables.prior_studies(
        source_tables.StudyDate(study, visit.images[0].path.patient, f"{visit.images[0].path.study_number:09d}")
        for study, visit in visits.items()
    )
    for study, visit in visits.items():
        visit.prior = before.get(study)
    # The batches of the full release are beside the one with the tables, the test images in a folder of their own.
    apart = len(folders) > 1 or "batch" in folders[0].name
    trees = find_trees(config.root, config.root if apart else folders[0])
    return ImportPlan(
        items=visits.values(),
        study_id=lambda visit: visit.images[0].path.study_id,
        read=partial(read, trees),
        total=len(visits),
        layout=layout,
        collections=("stanford",),
        remarks=dict(remarks),
        label_style="chexpert",
        sentences_from="labels",
    )


def read(trees: Trees, visit: Visit) -> Imported:
    """One study of v1."""
    first = visit.images[0].path
    age, sex = known_age(visit.age), source_tables.parse_sex(visit.sex)
    study = Study(
        id=first.study_id,
        patient=first.patient,
        images=tuple(image.image(trees) for image in visit.images),
        split=visit.split,
        age=age.years,
        sex=sex.letter,
        prior=visit.prior,
        labels=source_tables.known_labels(visit.labels),
    )
    return Imported(
        study, source_tables.present_remarks(age.remark, sex.remark, LABELS_DIFFER if visit.labels_differ else None)
    )


def _found(config: ImportConfig) -> tuple[str, list[Path]]:
    """The layout and the folders that hold its tables: the root, folders in it, or both."""
    asked = source_tables.chosen_layout(config, LAYOUTS)
    there: dict[str, list[Path]] = {}
    source_tables.find_optional(config.root)  # refuses what is not a folder
    for folder in (config.root, *(folders_in(config.root) or ())):
        if source_tables.find_optional(folder, *TABLES):
            there.setdefault("plus", []).append(folder)
        table = next(filter(None, (source_tables.find_optional(folder, *names) for names in _TABLES.values())), None)
        if table is not None and table.name in _TABLES["test"]:
            there.setdefault(_EITHER, []).append(folder)
        elif table is not None:
            first = next(source_tables.read_rows(table, ("Path",)), None)
            prefix = first[1]["Path"].rpartition("/patient")[0] if first else ""
            small = "small" in prefix or (not prefix and "small" in folder.name)
            there.setdefault("small" if small else "v1", []).append(folder)
    test_alone = there.pop(_EITHER, [])
    for layout in [name for name in ("v1", "small") if name in there] or ["v1"] * bool(test_alone):
        there.setdefault(layout, []).extend(test_alone)
    if asked is None and len(there) == 1:
        return next(iter(there.items()))
    if asked is None and there:
        raise DataError(f"{config.root} holds CheXpert as {' and '.join(there)}; choose one with --layout.")
    if asked not in there:
        what = TABLE if asked == "plus" else "train.csv, valid.csv or test.csv"
        kind = f" of the layout '{asked}'" if asked else ""
        raise DataError(
            f"{config.root} does not hold CheXpert's tables{kind}: looked for {what} there and one folder below; "
            "give the folder that holds them."
        )
    return asked, there[asked]


def _read_table(table: Path, split: str, visits: dict[str, Visit], remarks: Counter[str]) -> None:
    same: dict[source_tables.LabelVector, source_tables.LabelVector] = {}  # most vectors repeat
    # The labels of the test images were released without the columns on patients and views.
    needed = ("Path", *source_tables.LABEL_COLUMNS, *(_ABOUT_IMAGES if split == "train" else ()))
    for line, row in source_tables.read_rows(table, needed, rename=source_tables.STANDARD_LABEL_NAMES):
        place = f"{table}:{line}"
        path = parsed_path(row["Path"], f"{place}: 'Path'")
        study = path.study_id
        labels = source_tables.label_vector(row, place)
        labels = same.setdefault(labels, labels)
        visit = visits.setdefault(study, Visit(split, row.get("Age", ""), row.get("Sex", ""), labels))
        if visit.split != split:
            raise DataError(
                f"{place} lists {study}, which the table of another split lists too; a study belongs to one split."
            )
        if any(path == image.path for image in visit.images):
            remarks[LISTED_TWICE] += 1
            continue
        if visit.labels != labels:
            visit.labels, visit.labels_differ = source_tables.merge_labels(visit.labels, labels), True
        visit.images.append(image_of(path, row.get("Frontal/Lateral", ""), row.get("AP/PA", "")))


TABLE = "df_chexpert_plus_240401.csv"
TABLES = (TABLE, f"{TABLE}.gz", "df_chexpert_plus*.csv", "df_chexpert_plus*.csv.gz")
NO_REPORT = "no report text"
NO_FINDINGS = "report without a findings section"
NO_SECTION = "report in which no section was found"
OWN_SECTIONS = "report without the source's sections, split by our rules"
REPORTS_DIFFER = "images of one study with different reports; the first kept"
PATIENTS_DIFFER = "patient of the table is not the patient of the path; that of the path kept"
NO_LABELS = "study without a row in report_fixed.json"
LABELS_WITHOUT_IMAGE = "row of report_fixed.json for a study that the table does not list"
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
_PER_STUDY_COLUMNS = ("report", *_SECTION_COLUMNS, "age", "sex", *_DEMOGRAPHICS)
_NEEDED = ("path_to_image", "report", "section_findings", "section_impression", "split")


@dataclass(slots=True)
class PlusVisit:
    """One study as the first reading finds it, filled row by row."""

    split: str
    order: str
    digest: bytes
    images: list[SourceImage] = field(default_factory=list)
    reports_differ: bool = False
    patients_differ: bool = False


@dataclass(frozen=True, slots=True)
class PlusStudy:
    """One study with its text; what a worker receives. `cells` are those that are given once per study."""

    visit: PlusVisit
    cells: source_tables.Row
    labels: source_tables.LabelVector | None
    labels_differ: bool
    prior: str | None


def plan_plus(config: ImportConfig, folder: Path) -> ImportPlan[PlusStudy]:
    """The studies in the order of the table; `folder` holds it."""
    table = source_tables.find_file(folder, *TABLES, what="the table of CheXpert Plus")
    remarks = Counter[str]()
    visits = _plus_visits(table, remarks)
    labels, differ = _labels(folder, visits, remarks)
    before = source_tables.prior_studies(
        source_tables.StudyDate(study, visit.images[0].path.patient, visit.order) for study, visit in visits.items()
    )
    return ImportPlan(
        items=_plus_studies(table, visits, labels, differ, before),
        study_id=lambda study: study.visit.images[0].path.study_id,
        read=partial(read_plus, find_trees(config.root)),
        total=len(visits),
        layout="plus",
        collections=("stanford",),
        remarks={remark: count for remark, count in remarks.items() if count},
    )


def read_plus(trees: Trees, source: PlusStudy) -> Imported:
    """One study of CheXpert Plus."""
    visit, cells = source.visit, source.cells
    first = visit.images[0].path
    age, sex = known_age(_filled(cells, "age") or ""), source_tables.parse_sex(_filled(cells, "sex") or "")
    text = _filled(cells, "report")
    # The source's own sections, else those of our parser.
    named = {
        name: next(filter(None, (_filled(cells, column) for column in columns)), None)
        for name, columns in _SECTIONS.items()
    }
    sections = report = Report(**named)
    if report == Report() and text is not None:
        sections = parse(text).report
    text_remarks: list[str | None] = [OWN_SECTIONS if sections != report else None]
    if sections == Report():
        text_remarks = [NO_REPORT if text is None else NO_SECTION]
    elif not sections.findings:
        text_remarks.append(NO_FINDINGS)
    demographics = {key: value for key in _DEMOGRAPHICS if (value := _filled(cells, key)) is not None}
    study = Study(
        id=first.study_id,
        patient=first.patient,
        images=tuple(image.image(trees) for image in visit.images),
        sections=None if sections == Report() else sections,
        report=text,
        split=visit.split,
        age=age.years,
        sex=sex.letter,
        prior=source.prior,
        labels=source_tables.known_labels(source.labels) if source.labels else {},
        extra={"demographics": demographics} if demographics else {},
    )
    remarks = source_tables.present_remarks(
        age.remark,
        sex.remark,
        *text_remarks,
        REPORTS_DIFFER if visit.reports_differ else None,
        PATIENTS_DIFFER if visit.patients_differ else None,
        LABELS_DIFFER if source.labels_differ else None,
        None if source.labels else NO_LABELS,
        None if visit.order else NO_ORDER,
    )
    return Imported(study, remarks)


def _plus_visits(table: Path, remarks: Counter[str]) -> dict[str, PlusVisit]:
    """The first reading: images, split and order of each study; of the report only whether it is always the same."""
    visits: dict[str, PlusVisit] = {}
    for line, row in source_tables.read_rows(table, _NEEDED):
        place = f"{table}:{line}"
        path = parsed_path(row["path_to_image"], f"{place}: 'path_to_image'")
        digest = hashlib.blake2b(row["report"].encode(), digest_size=8).digest()
        word = _filled(row, "split") or path.split_folder
        if word.lower() not in SPLITS:
            raise DataError(
                f"{place}: 'split' is {short_repr(word)}.{did_you_mean(word, SPLITS)} It is train, valid or test."
            )
        split = SPLITS[word.lower()]
        # Padded, so that the text sorts as the numbers do; empty when not given.
        number = _filled(row, "patient_report_date_order")
        order = (
            intern(source_tables.parse_digits(number, f"{place}: 'patient_report_date_order'").zfill(9))
            if number
            else ""
        )
        visit = visits.setdefault(path.study_id, PlusVisit(split, order, digest))
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


def _plus_studies(
    table: Path,
    visits: Mapping[str, PlusVisit],
    labels: Mapping[str, source_tables.LabelVector],
    differ: set[str],
    before: Mapping[str, str],
) -> Iterator[PlusStudy]:
    """The second reading: each study with the text of its first row, in the order of the table."""
    done: set[str] = set()
    for line, row in source_tables.read_rows(table, _NEEDED):
        study = parsed_path(row["path_to_image"], f"{table}:{line}: 'path_to_image'").study_id
        if study not in done:
            done.add(study)
            cells = {column: row[column] for column in _PER_STUDY_COLUMNS if column in row}
            yield PlusStudy(visits[study], cells, labels.get(study), study in differ, before.get(study))


def _labels(
    folder: Path, visits: Mapping[str, PlusVisit], remarks: Counter[str]
) -> tuple[dict[str, source_tables.LabelVector], set[str]]:
    """Study → labels, and the studies whose images do not agree on them."""
    found: dict[str, source_tables.LabelVector] = {}
    differ: set[str] = set()
    same: dict[source_tables.LabelVector, source_tables.LabelVector] = {}
    table = source_tables.find_optional(folder, *_LABEL_FILES)
    for line, values in read_jsonl(table, undefined=True) if table else ():
        place = f"{table}:{line}"
        study = parsed_path(str(values.get("path_to_image", "")), f"{place}: 'path_to_image'").study_id
        if study not in visits:
            remarks[LABELS_WITHOUT_IMAGE] += 1
            continue
        row: list[int | None] = []
        for name in CHEXPERT_14:
            if name not in values:
                hint = did_you_mean(name, values)
                raise DataError(f"{place} has no '{name}'.{hint} It must give all 14 labels, null where unknown.")
            value = values[name]
            unknown = value is None or value != value
            if not unknown and (isinstance(value, bool) or value not in (1, 0, -1)):
                raise DataError(f"{place}: '{name}' is {short_repr(value)}; a label is 1, 0, -1 or null.")
            row.append(None if unknown else int(value))
        labels = tuple(row)
        if found.setdefault(study, same.setdefault(labels, labels)) != labels:
            found[study] = source_tables.merge_labels(found[study], labels)
            differ.add(study)
    return found, differ


def _filled(cells: source_tables.Row, column: str) -> str | None:
    """What a cell holds; None where it is empty or was written from an undefined value."""
    cell = cells.get(column, "")
    return None if not cell or cell.lower() == "nan" else cell


SPLITS = {"train": "train", "valid": "val", "validate": "val", "val": "val", "test": "test"}
ENDINGS = (".png", ".jpg", ".dcm")

AGE_ZERO = "age 0, which means unknown"
LISTED_TWICE = "image listed twice; the first row counts"

_PATH = re.compile(
    r"(?:(?P<before>.*)/)?(?P<patient>patient\d+)/(?P<study>study\d+)/(?P<image>[^/]*?)(?P<ending>\.[A-Za-z]+)"
)
_PATIENT = re.compile(r"patient\d+")
# Enough for PNG/PNG/train and for chunks of it; a tree of images begins no deeper.
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class ImagePath:
    """A path of a table, taken apart."""

    before: str
    patient: str
    study: str
    image: str
    ending: str

    @property
    def study_id(self) -> str:
        return f"{self.patient}/{self.study}"

    @property
    def study_number(self) -> int:
        return int(self.study.removeprefix("study"))

    @property
    def split_folder(self) -> str:
        """The folder above the patient: "train", "valid", "test"; anything else where a path has no such folder."""
        return self.before.rpartition("/")[2]


def parsed_path(cell: str, place: str) -> ImagePath:
    """A path of a table; anything else is an error that names the place."""
    match = _PATH.fullmatch(source_tables.posix_path(cell))
    if match is None:
        raise DataError(
            f"{place} is {short_repr(cell)}; the path of a CheXpert image ends like "
            "train/patient00001/study1/view1_frontal.jpg."
        )
    parts = match.groupdict(default="")
    # Held once each: hundreds of thousands of paths share a few folders and names.
    before, study, image, ending = (intern(parts[key]) for key in ("before", "study", "image", "ending"))
    return ImagePath(before, parts["patient"], study, image, ending)


def known_age(cell: str) -> source_tables.Age:
    """An age as both tables write it."""
    age = source_tables.parse_age(cell)
    return source_tables.Age(None, AGE_ZERO) if age.years == 0 else age


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One row's image; `ap_pa` is the source's word beyond the view ("LL"), empty for most."""

    path: ImagePath
    view: View
    ap_pa: str

    def image(self, trees: Trees) -> ImageFile:
        return ImageFile(trees.place(self.path), self.view, {"AP/PA": self.ap_pa} if self.ap_pa else {})


def image_of(path: ImagePath, frontal_lateral: str, ap_pa: str) -> SourceImage:
    """The image with its view by the two columns, or by its name where the columns are not there."""
    side = frontal_lateral.lower() or path.image.rpartition("_")[2].lower()
    word = ap_pa.upper()
    if side == "frontal":
        view = View(word) if word in (View.AP, View.PA) else View.FRONTAL
    else:
        view = View.LATERAL if side == "lateral" else View.OTHER
    return SourceImage(path, view, "" if word == view else intern(ap_pa))


@dataclass(frozen=True)
class Trees:
    """The folders under a root that hold patients."""

    root: Path
    # Folders that hold train, valid or test, relative to the root with `/` behind; "" is the root.
    with_splits: tuple[str, ...]
    without: tuple[str, ...]  # folders that hold patients themselves

    def place(self, path: ImagePath) -> str:
        """The path of an image relative to the root, preferably with the table's own ending."""
        below = f"{path.split_folder}/" if path.split_folder in SPLITS else ""
        image = f"{path.patient}/{path.study}/{path.image}"
        trees = [*(f"{tree}{below}" for tree in self.with_splits or ("",)), *self.without]
        endings = dict.fromkeys((path.ending, *ENDINGS))
        return source_tables.image_path(self.root, (f"{tree}{image}{ending}" for ending in endings for tree in trees))


def find_trees(root: Path, start: Path | None = None) -> Trees:
    """Look for folders of patients, a few folders deep, in `start` or else in the root; the highest come first."""
    with_splits: list[str] = []
    without: list[str] = []
    level = [start or root]
    for _ in range(_DEEPEST + 1):
        below: list[Path] = []
        for folder in level:
            prefix = f"{folder.relative_to(root).as_posix()}/".removeprefix("./")
            children = folders_in(folder)
            if children is None:
                without.append(prefix)
                continue
            if any(child.name in SPLITS for child in children):
                with_splits.append(prefix)
            below += [child for child in children if child.name not in SPLITS]
        level = below
    return Trees(root, tuple(with_splits), tuple(without))


def folders_in(folder: Path) -> list[Path] | None:
    """The folders in a folder, by name; None as soon as one of them is a patient's, since there may be thousands."""
    found = []
    try:
        for entry in os.scandir(folder):
            if _PATIENT.fullmatch(entry.name):
                return None
            if os.path.isdir(entry.path):  # False for a link that leads in circles
                found.append(Path(entry.path))
    except OSError as error:
        raise unreadable(error, folder) from error
    return sorted(found)
