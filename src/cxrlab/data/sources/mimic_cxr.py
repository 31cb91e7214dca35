"""MIMIC-CXR: images and reports of one American hospital's emergency patients, with official splits.

Counts: 377,110 images of 227,835 studies of 65,379 patients; images by split: train 368,960, validate 2,991, test 5,159.
Views: PA, AP and lateral. Decubitus, lordotic (AP AXIAL), oblique and swimmer's views are other, with the source's word
    beside them. For a blank ViewPosition the view code or a portable AP procedure decides, else other.
Labels: the CheXpert labeller's by report; where version 2.1.0 labels a test study by radiologists, theirs ("Airspace
    Opacity" is Lung Opacity), the labeller's then beside them under 'chexpert'. NegBio's are kept under 'negbio'.
Language: English; one free-text report per study, cut into sections by our rules, or with --sections official by the
    published rules of MIMIC-CXR.
Licence: PhysioNet Credentialed Health Data License 1.5.0: credentialed users only, no sharing, no re-identification.
Citation: Johnson et al., MIMIC-CXR, a de-identified publicly available database of chest radiographs with free-text
    reports, Scientific Data 2019; Johnson et al., MIMIC-CXR-JPG, arXiv:1901.07042.
Obtain: PhysioNet, after training and a signed agreement. Layout 'jpg': root is the folder of MIMIC-CXR-JPG
    (mimic-cxr-2.0.0-metadata.csv.gz, -split, -chexpert, -negbio, files/p10/...); the reports come from MIMIC-CXR:
    --reports mimic-cxr-reports.zip or its unpacked folder, or either of them in the root. Layout 'dicom': root is the
    folder of MIMIC-CXR (cxr-record-list.csv.gz, files/p10/...); copy the tables of MIMIC-CXR-JPG beside it for splits,
    labels, views and dates.
Defects: age and sex are not part of it; with patients.csv.gz of MIMIC-IV in the root or beside the reports they are
    joined (those above 89 are given as 91 in the year that anchors them). Dates are shifted by patient, so they order
    studies of one patient and nothing else. A blank label is unknown. Some reports describe findings under 'impression'
    alone, some studies hold no image of the standard views, and times of day are missing in some rows.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import NamedTuple

from cxrlab.core.errors import DataError, did_you_mean, short_repr
from cxrlab.core.files import unreadable
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data import source_tables
from cxrlab.data.bounded_reading import MAX_REPORT_BYTES, read_bounded, read_member
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.official_sections import official_report
from cxrlab.data.sections import parse

LAYOUTS = ("jpg", "dicom")
NO_IMAGE = "study without any image"
NO_REPORT = "no report text"
NO_FINDINGS = "report without a findings section"
NO_SECTION = "report in which no section was found"
OTHER_FINDINGS = "report of which the official rules give other findings than ours"
NO_SPLIT = "study in no official split"
IMAGE_WITHOUT_SPLIT = "image without an official split; that of the study's other images counts"
SPLITS_DISAGREE = "images of the study are in different official splits; test goes before val, val before train"
NO_LABELS = "study without a row of labels"
BY_RADIOLOGISTS = "labels by radiologists (2.1.0), in place of the labeller's"
NO_DATE = "study without a date, so that its prior is unknown"


def plan(config: ImportConfig) -> ImportPlan[JoinedStudy]:
    """The studies in the order in which the table of images first names them."""
    layout = source_tables.chosen_layout(config, LAYOUTS)
    if layout is None:
        layout = "jpg"
        if records := source_tables.find_optional(config.root, *packed("cxr-record-list.csv")):
            both = source_tables.find_optional(config.root, *packed("mimic-cxr-*-metadata.csv")) is not None
            first = next(dicom_images(records, None), None) if both else None
            file = config.root / first.path if first else config.root
            # With the tables of both layouts, the first image decides.
            if not both or (file.is_file() and not file.with_suffix(".jpg").is_file()):
                layout = "dicom"
    archive = read_archive(config, layout)
    # The layout with what else changes the corpus, so that an import is never continued without it.
    words = [f"{layout} 2.1.0" if archive.radiologists else layout]
    words += ["reports apart"] if config.reports else []
    words += ["patients of MIMIC-IV"] if archive.patients else []
    words += ["official sections"] if config.sections else []
    return ImportPlan(
        items=archive.studies(),
        study_id=attrgetter("id"),
        read=partial(read, config.root, find_reports(config.root, config.reports), config.sections == "official"),
        total=len(archive.visits),
        layout=", ".join(words),
        collections=("beth-israel",),
        used_settings=("reports", "sections"),
        remarks=archive.remarks,
    )


def read(root: Path, reports: Reports, official: bool, joined: JoinedStudy) -> Imported | Dropped:
    """One study with its report, in sections by our or the official rules; one without any image is left out."""
    visit = joined.visit
    if not visit.images:
        return Dropped(joined.id, NO_IMAGE)
    images: list[ImageFile] = []
    image_remarks: list[str | None] = []
    for image in visit.images:
        view = image.view
        if view is None:  # an absent file gets its remark from the import
            header, remark = source_tables.read_dicom_header(root, image.path)
            if header is not None:
                remark = None if header.view else VIEW_NOT_STATED
            view = ImageView((header and header.view) or View.OTHER, None, remark)
        images.append(ImageFile(image.path, view.view, {"ViewPosition": view.word} if view.word else {}))
        image_remarks.append(view.remark)
    # Held-out splits first: whatever else a table says, nothing of a test study may be used in training.
    splits = {image.split for image in visit.images}
    split = next((name for name in ("test", "val", "train") if name in splits), None)
    split_remark = IMAGE_WITHOUT_SPLIT if None in splits else None
    if split is None or len(splits - {None}) > 1:
        split_remark = SPLITS_DISAGREE if split else NO_SPLIT
    # The age at the time of the study, which needs its date and MIMIC-IV's table of patients.
    record, moment, age = joined.record, visit.moment, None
    if moment is not None and record is not None and record.anchor_age is not None and record.anchor_year is not None:
        age = record.anchor_age + int(moment.date[:4]) - record.anchor_year
    age_remark = None if age is None or 0 <= age <= source_tables.MAX_AGE else source_tables.AGE_OUT_OF_RANGE
    text = reports.read(joined.patient, joined.id)
    sections = ours = parse(text.text).report if text else Report()
    if official and text:
        sections = official_report(text.text, joined.id)
    other_findings = (sections.findings or "").split() != (ours.findings or "").split()
    text_remark = NO_FINDINGS if not sections.findings else None
    if sections == Report():
        text_remark = NO_SECTION if text else NO_REPORT
    labels = joined.radiologists or joined.chexpert
    own_labels = source_tables.known_labels(joined.radiologists) if joined.radiologists else {}
    own_labels = {
        source_tables.AIRSPACE_OPACITY if name == "Lung Opacity" else name: own_labels[name] for name in own_labels
    }
    extra: dict[str, object] = {}  # by the source's own names
    if moment is not None:
        extra["StudyDate"] = moment.date
        if moment.time >= 0:
            extra["StudyTime"] = moment.time
    if visit.procedure:
        extra["PerformedProcedureStepDescription"] = visit.procedure
    if joined.radiologists is not None and joined.chexpert is not None:
        extra["chexpert"] = source_tables.known_labels(joined.chexpert)
    if joined.negbio is not None:
        extra["negbio"] = source_tables.known_labels(joined.negbio)
    study = Study(
        id=joined.id,
        patient=joined.patient,
        images=tuple(images),
        sections=None if sections == Report() else sections,
        report=text.text if text else None,
        split=split,
        age=None if age_remark else age,
        sex=record.sex if record else None,
        prior=f"s{joined.prior}" if joined.prior else None,
        labels=source_tables.known_labels(labels) if labels else {},
        own_labels=own_labels,
        extra=extra,
    )
    remarks = source_tables.present_remarks(
        *dict.fromkeys(image_remarks),
        split_remark,
        age_remark,
        text.remark if text else None,
        text_remark,
        OTHER_FINDINGS if other_findings else None,
        None if labels else NO_LABELS,
        BY_RADIOLOGISTS if joined.radiologists else None,
        None if visit.moment else NO_DATE,
    )
    return Imported(study, remarks)


LISTED_TWICE = "image listed twice; the first row counts"
LABELS_WITHOUT_STUDY = "row of labels for a study without images"
SPLIT_WITHOUT_IMAGE = "row of the table of splits for an image that is not listed"


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One image: its path in the source, its view (None where only the header has it) and its split."""

    path: str
    view: ImageView | None
    split: str | None


@dataclass(slots=True)
class Visit:
    """One study as the tables of images list it, filled row by row; one of the list of studies alone has no images."""

    subject: str
    images: list[SourceImage] = field(default_factory=list)
    moment: Moment | None = None
    procedure: str = ""


@dataclass(frozen=True, slots=True)
class JoinedStudy:
    """One study joined from all tables; what a worker receives."""

    number: str
    visit: Visit
    chexpert: source_tables.LabelVector | None
    negbio: source_tables.LabelVector | None
    radiologists: source_tables.LabelVector | None
    record: PatientRecord | None
    prior: str | None

    @property
    def id(self) -> str:
        return f"s{self.number}"

    @property
    def patient(self) -> str:
        return f"p{self.visit.subject}"


@dataclass(frozen=True)
class Archive:
    """All tables of the source, joined."""

    visits: Mapping[str, Visit]  # study → its images, in the order in which the table of images first names it
    chexpert: Mapping[str, source_tables.LabelVector]
    negbio: Mapping[str, source_tables.LabelVector]
    radiologists: Mapping[str, source_tables.LabelVector]
    patients: Mapping[str, PatientRecord]  # subject → age and sex, where MIMIC-IV's table is there
    remarks: Mapping[str, int]

    def studies(self) -> Iterator[JoinedStudy]:
        before = source_tables.prior_studies(
            source_tables.StudyDate(number, visit.subject, visit.moment.sortable if visit.moment else "")
            for number, visit in self.visits.items()
            if visit.images
        )
        for number, visit in self.visits.items():
            labels = (self.chexpert.get(number), self.negbio.get(number), self.radiologists.get(number))
            yield JoinedStudy(number, visit, *labels, self.patients.get(visit.subject), before.get(number))


def packed(name: str) -> tuple[str, str]:
    """A table's name as it is and as gzip leaves it."""
    return name, f"{name}.gz"


def read_archive(config: ImportConfig, layout: str) -> Archive:
    """Read every table that is there; only the one of images must be."""
    root, remarks = config.root, Counter[str]()
    split_table = source_tables.find_optional(root, *packed("mimic-cxr-*-split.csv"))
    splits = splits_of(split_table, remarks) if split_table else {}
    visits = _visits(root, layout, splits, remarks)

    def labels(name: str) -> dict[str, source_tables.LabelVector]:
        table = source_tables.find_optional(root, *packed(name))
        return labels_of(table, remarks) if table else {}

    chexpert, radiologists = labels("mimic-cxr-*-chexpert.csv"), labels("mimic-cxr-*-test-set-labeled.csv")
    negbio = labels("mimic-cxr-*-negbio.csv")
    remarks[LABELS_WITHOUT_STUDY] += len((chexpert.keys() | radiologists.keys()) - visits.keys())
    beside = () if config.reports is None else (config.reports, config.reports.parent)
    folders = [folder for folder in (root, root / "hosp", *beside) if folder.is_dir()]
    patients = next(
        filter(None, (source_tables.find_optional(folder, *packed("patients.csv")) for folder in folders)), None
    )
    return Archive(
        visits=visits,
        chexpert=chexpert,
        negbio=negbio,
        radiologists=radiologists,
        patients=patients_of(patients) if patients else {},
        remarks={remark: count for remark, count in remarks.items() if count},
    )


def _visits(root: Path, layout: str, splits: dict[str, str], remarks: Counter[str]) -> dict[str, Visit]:
    names = packed("mimic-cxr-*-metadata.csv")
    if layout == "dicom":
        records = source_tables.find_file(
            root, *packed("cxr-record-list.csv"), what="the list of DICOM images of MIMIC-CXR"
        )
        rows = dicom_images(records, source_tables.find_optional(root, *names))
    else:
        metadata = source_tables.find_file(root, *names, what="the table of images of MIMIC-CXR-JPG")
        # Some keep the folders p10 to p19 in the root itself.
        apart = not (root / "files").is_dir() and next(root.glob("p1[0-9]"), None) is not None
        rows = jpg_images(metadata, "" if apart else "files/")
    visits: dict[str, Visit] = {}
    split_rows = 0
    for row in rows:
        visit = visits.setdefault(row.study, Visit(row.subject))
        if visit.subject != row.subject:
            raise DataError(
                f"{root}: study {row.study} is listed under the subjects {visit.subject} and {row.subject}; "
                "fetch the table of images again."
            )
        if any(image.path == row.path for image in visit.images):
            remarks[LISTED_TWICE] += 1
            continue
        split = splits.get(row.dicom)
        split_rows += split is not None
        visit.images.append(SourceImage(row.path, row.view, split))
        visit.procedure = visit.procedure or row.procedure
        if row.moment is not None:
            visit.moment = min(visit.moment or row.moment, row.moment)
    remarks[SPLIT_WITHOUT_IMAGE] += len(splits) - split_rows
    if layout == "dicom" and (studies := source_tables.find_optional(root, *packed("cxr-study-list.csv"))):
        for subject, study in listed_studies(studies):
            visits.setdefault(study, Visit(subject))
    return visits


VIEW_ELSEWHERE = "view from the view code or the procedure, not from ViewPosition"
VIEW_NOT_STATED = "view not stated by the source; the image is kept as other"
VIEW_UNKNOWN_WORD = "unknown word for the view; the image is kept as other"

_POSITIONS = {
    "PA": View.PA,
    "AP": View.AP,
    "FRONTAL": View.FRONTAL,
    **dict.fromkeys(("LATERAL", "LL", "RL", "LAT", "LLAT", "RLAT", "XTABLE LATERAL"), View.LATERAL),
    **dict.fromkeys(("AP AXIAL", "PA AXIAL", "AP LLD", "AP RLD", "PA LLD", "PA RLD", "LLD", "RLD"), View.OTHER),
    **dict.fromkeys(("LAO", "RAO", "LPO", "RPO", "SWIMMERS"), View.OTHER),
}
_CODES = {
    "posteroanterior": View.PA,
    "anteroposterior": View.AP,
    **dict.fromkeys(("lateral", "leftlateral", "rightlateral"), View.LATERAL),
}
# A procedure of two images does not determine the view, so only the words for a single one count.
_PORTABLE_AP = re.compile(r"\bPORTABLE\W+AP\b|\bAP\W+PORTABLE\b", re.IGNORECASE)


class ImageView(NamedTuple):
    """A view, the source's word where it is more specific, and a remark."""

    view: View
    word: str | None = None
    remark: str | None = None


def view_of(position: str, code: str = "", procedure: str = "") -> ImageView:
    """The view by ViewPosition; where that is blank, by the meaning of the view code, then by the procedure."""
    word = " ".join(position.upper().split())
    if word:
        view = _POSITIONS.get(word)
        if view is None:
            return ImageView(View.OTHER, word, VIEW_UNKNOWN_WORD)
        return ImageView(view, None if word in (View.PA, View.AP) else word)
    named = _CODES.get(re.sub(r"[^a-z]", "", code.lower()))
    if named is None and not code and _PORTABLE_AP.search(procedure):
        named = View.AP
    if named is not None:
        return ImageView(named, None, VIEW_ELSEWHERE)
    return ImageView(View.OTHER, code or None, VIEW_ELSEWHERE if code else VIEW_NOT_STATED)


LABELLED_TWICE = "study labelled twice; the merge_labels label kept"
IN_TWO_SPLITS = "image that the table of splits lists twice with different splits; the first row counts"

_SPLITS = {"train": "train", "validate": "val", "test": "test"}
_viewed = lru_cache(maxsize=4096)(view_of)


class Moment(NamedTuple):
    """When a study was joined, in the shifted calendar of its patient."""

    date: str
    time: float  # hours, minutes and seconds as one number (213014.531); -1 where unknown

    @property
    def sortable(self) -> str:
        return f"{self.date} {self.time:013.3f}"


class ImageRow(NamedTuple):
    """One image as the tables list it; view and moment are None where no table has them."""

    dicom: str
    subject: str
    study: str
    path: str
    view: ImageView | None
    moment: Moment | None
    procedure: str


class PatientRecord(NamedTuple):
    """What MIMIC-IV knows of a patient: the age in one year of the shifted calendar, and the sex."""

    anchor_age: int | None
    anchor_year: int | None
    sex: str | None


def jpg_images(metadata: Path, folder: str) -> Iterator[ImageRow]:
    """The images of MIMIC-CXR-JPG in the order of its table; `folder` is the one that holds p10 to p19, if any."""
    needed = ("dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime")
    for line, row in source_tables.read_rows(metadata, needed):
        dicom, subject, study = _ids(row, metadata, line)
        path = f"{folder}p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg"
        yield ImageRow(dicom, subject, study, path, *_described(row))


def dicom_images(records: Path, metadata: Path | None) -> Iterator[ImageRow]:
    """The images of MIMIC-CXR (DICOM), in the order of its list; view and date where the JPG's table is there too."""
    described: dict[str, tuple[ImageView, Moment | None, str]] = {}
    if metadata is not None:
        for _, row in source_tables.read_rows(metadata, ("dicom_id", "ViewPosition", "StudyDate", "StudyTime")):
            described[row["dicom_id"]] = _described(row)
    for line, row in source_tables.read_rows(records, ("dicom_id", "subject_id", "study_id", "path")):
        dicom, subject, study = _ids(row, records, line)
        yield ImageRow(dicom, subject, study, row["path"], *described.get(dicom, (None, None, "")))


def listed_studies(studies: Path) -> Iterator[tuple[str, str]]:
    """Subject and study of each row of the list of studies."""
    for line, row in source_tables.read_rows(studies, ("subject_id", "study_id")):
        place = f"{studies}:{line}"
        yield (
            source_tables.parse_digits(row["subject_id"], f"{place}: 'subject_id'"),
            source_tables.parse_digits(row["study_id"], f"{place}: 'study_id'"),
        )


def splits_of(table: Path, remarks: Counter[str]) -> dict[str, str]:
    """Image → train, val or test."""
    found: dict[str, str] = {}
    for line, row in source_tables.read_rows(table, ("dicom_id", "split")):
        split = _SPLITS.get(row["split"].lower())
        if split is None:
            hint = did_you_mean(row["split"], _SPLITS)
            known = ", ".join(_SPLITS)
            raise DataError(f"{table}:{line}: 'split' is {short_repr(row['split'])}.{hint} It is one of {known}.")
        if found.setdefault(row["dicom_id"], split) != split:
            remarks[IN_TWO_SPLITS] += 1
    return found


def labels_of(table: Path, remarks: Counter[str]) -> dict[str, source_tables.LabelVector]:
    """Study → its CheXpert labels; "Airspace Opacity" is another name of "Lung Opacity"."""
    found: dict[str, source_tables.LabelVector] = {}
    same: dict[source_tables.LabelVector, source_tables.LabelVector] = {}  # most vectors repeat
    for line, row in source_tables.read_rows(
        table, ("study_id", *source_tables.LABEL_COLUMNS), rename=source_tables.STANDARD_LABEL_NAMES
    ):
        place = f"{table}:{line}"
        study = source_tables.parse_digits(row["study_id"], f"{place}: 'study_id'")
        labels = source_tables.label_vector(row, place)
        if study in found:
            labels = source_tables.merge_labels(found[study], labels)
            remarks[LABELLED_TWICE] += 1
        found[study] = same.setdefault(labels, labels)
    return found


def patients_of(table: Path) -> dict[str, PatientRecord]:
    """Subject → age and sex, from the table of patients of MIMIC-IV; an empty cell is unknown."""
    found = {}
    for line, row in source_tables.read_rows(table, ("subject_id", "gender", "anchor_age", "anchor_year")):
        place = f"{table}:{line}"
        age, year = (
            int(source_tables.parse_digits(row[key], f"{place}: '{key}'")) if row[key] else None
            for key in ("anchor_age", "anchor_year")
        )
        found[source_tables.parse_digits(row["subject_id"], f"{place}: 'subject_id'")] = PatientRecord(
            age, year, source_tables.parse_sex(row["gender"]).letter
        )
    return found


def _ids(row: source_tables.Row, table: Path, line: int) -> tuple[str, str, str]:
    place = f"{table}:{line}"
    if not row["dicom_id"]:
        raise DataError(f"{place}: 'dicom_id' is empty; fetch the file again.")
    return (
        row["dicom_id"],
        source_tables.parse_digits(row["subject_id"], f"{place}: 'subject_id'"),
        source_tables.parse_digits(row["study_id"], f"{place}: 'study_id'"),
    )


def _described(row: source_tables.Row) -> tuple[ImageView, Moment | None, str]:
    """View, moment and procedure of an image in the metadata of MIMIC-CXR-JPG."""
    procedure = intern(row.get("PerformedProcedureStepDescription", ""))
    view = _viewed(row["ViewPosition"], row.get("ViewCodeSequence_CodeMeaning", ""), procedure)
    date = source_tables.parse_date(row["StudyDate"])
    try:
        time = float(row["StudyTime"])
    except ValueError:
        time = -1.0
    return view, Moment(date, time if 0 <= time < math.inf else -1.0) if date else None, procedure


ZIP = "mimic-cxr-reports.zip"
NOT_UTF8 = "report is not UTF-8 text, read as Latin-1"

_MEMBER = re.compile(r"(?P<before>(?:.*/)?)p\d\d/p\d+/s\d+\.txt")
# Folders that may hold the patients; trees of reports alone go first.
_TREES = ("mimic-cxr-reports/files", "mimic-cxr-reports", "files", ".")


@dataclass(frozen=True)
class Text:
    """A report as it was delivered, and the remark where its bytes were odd."""

    text: str
    remark: str | None = None


@dataclass(frozen=True)
class Reports:
    """The place of the reports."""

    place: Path
    before: str | None = None  # prefix of `p10/…` in the names of a zip file's members; None for a folder

    def read(self, patient: str, study: str) -> Text | None:
        """The report of a study ("p10000032", "s50414267"), or None where there is none or it is blank."""
        name = f"{patient[:3]}/{patient}/{study}.txt"
        data = b""
        if self.before is None:
            file = self.place / name
            try:
                data = read_bounded(file, MAX_REPORT_BYTES) if file.stat().st_size else b""
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                raise unreadable(error, file) from error
        else:
            with suppress(KeyError):
                data = read_member(_archive(self.place), self.before + name, MAX_REPORT_BYTES)
        if not data.strip():
            return None
        try:
            return Text(data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return Text(data.decode("latin-1"), NOT_UTF8)


def find_reports(root: Path, given: Path | None) -> Reports:
    """The reports in the given place, else those in the root, which may have none."""
    if given is None:
        return _in_zip(root / ZIP) if (root / ZIP).is_file() else Reports(_tree(root) or root)
    if given.is_file():
        return _in_zip(given)
    if not given.is_dir():
        raise DataError(f"{given} does not exist; give the folder or the zip file of the reports.")
    if (given / ZIP).is_file():
        return _in_zip(given / ZIP)
    tree = _tree(given)
    if tree is None:
        raise DataError(
            f"{given} holds neither {ZIP} nor folders p10 to p19 (nor files/p10); give the folder or the zip file of "
            "the reports."
        )
    return Reports(tree)


def _tree(folder: Path) -> Path | None:
    """The folder that holds patients as p10/p10000032."""
    trees = (folder / name for name in _TREES)
    return next((tree for tree in trees if next(tree.glob("p[0-9][0-9]"), None) is not None), None)


def _in_zip(path: Path) -> Reports:
    archive = _opened(source_tables.record_source_file(path))
    first = next(filter(None, map(_MEMBER.fullmatch, archive.namelist())), None)
    if first is None:
        archive.close()
        raise DataError(f"{path} holds no report (files/p10/p10000032/s50414267.txt); give {ZIP} of MIMIC-CXR.")
    _archives[path] = (archive, os.getpid())
    return Reports(path, first["before"])


# Open zip files with the process that reads each. Reading the list of 227,835 members takes seconds and a hundred
# megabytes, so that it is done once: workers inherit it by fork.
_archives: dict[Path, tuple[zipfile.ZipFile, int]] = {}


def _archive(path: Path) -> zipfile.ZipFile:
    archive, process = _archives.get(path) or (_opened(path), os.getpid())
    if process != os.getpid():
        # A handle that came with the fork shares its position in the file with the parent and all other workers.
        archive.fp = path.open("rb")
    _archives[path] = (archive, os.getpid())
    return archive


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise DataError(f"{path} is not a whole zip file; fetch it again.") from None
    except OSError as error:
        raise unreadable(error, path) from error
