"""PadChest: images of a Spanish hospital with reports in Spanish and labels from a tree of findings and diagnoses.

Counts: about 160,900 images in 109,931 studies of 67,625 patients. CXR-697K counts 89,540 pairs: frontal images with a
    report.
Views: PA, AP (also AP_horizontal, lying down), lateral (L); COSTAL, for the ribs, and EXCLUDE become 'other'.
Labels: 193 of its own, 27 % by physicians and the rest by a trained model, as lists of what the report names; what a
    list does not name is unknown. Each that the vocabulary can express is mapped to CheXpert's 14 labels.
Language: Spanish ('es'), lower case, without accents, words partly stemmed; kept whole as the report, without
    sections.
Licence: research use by agreement with BIMCV; no redistribution.
Citation: Bustos et al., PadChest: a large chest X-ray image dataset with multi-label annotated reports, Medical Image
    Analysis 66:101797, 2020.
Obtain: BIMCV's download page, after registration; root holds PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv (or
    .csv.gz) and the images as <ImageDir>/<ImageID>, images/<ImageID> or flat; zip files that are left packed are not
    looked into, and their images count as absent.
Defects: lists are written as Python writes them, some with blanks in the names, some empty or nan; birth is a year,
    so the age may be one too high; a few 16-bit PNG files are cut short, which 'data check' reports; no official split.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from sys import intern

from cxrlab.core.label_maps import PADCHEST
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import CHEXPERT_INCIDENTAL, Group, View, observation
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, ImportPlan

NO_STUDY = "row without a study id"
NO_IMAGE = "row without the name of its image"
NO_PATIENT = "no patient id; the study counts as a patient of its own"
NO_REPORT = "no report"
NO_LABELS = "no labels"
LABELS_UNREADABLE = "labels that are no list, left out"
UNMAPPED = "label without a row in the map"
NORMAL_BESIDE = "'normal' beside a finding; No Finding not stated"
EXCLUDED = "image marked as excluded by the source"
VIEW_UNKNOWN = "projection not known"
ROWS_DIFFER = "images of one study with different labels; all of them kept"
REPORTS_DIFFER = "images of one study with different reports; the first kept"
PATIENTS_DIFFER = "one study id for several patients"
_VIEWS = {"PA": View.PA, "AP": View.AP, "AP_HORIZONTAL": View.AP, "L": View.LATERAL, "COSTAL": View.OTHER}
_SPELLINGS = {name.lower(): name for name in PADCHEST}
_LONGEST_LIST = 100_000


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One row of the table: an image and its study."""

    study: str
    patient: str
    name: str
    folder: str
    projection: str
    date: str
    birth: str
    sex: str
    report: str
    labels: str
    localizations: str
    method: str
    report_id: str


def plan(config: ImportConfig) -> ImportPlan[source_tables.SourceStudy[SourceImage]]:
    """The studies in the order of their first images."""
    source_tables.chosen_layout(config, ())
    table = source_tables.find_file(
        config.root,
        "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv",
        "PADCHEST_chest_x_ray_images_labels_160K*.csv",
        "PADCHEST_chest_x_ray_images_labels_160K*.csv.gz",
        what="the table of images",
    )
    studies: dict[str, list[SourceImage]] = {}
    for line, row in source_tables.read_rows(
        table, ("ImageID", "StudyID", "PatientID", "Projection", "Report", "Labels")
    ):
        cells = {name: "" if cell.lower() == "nan" else cell for name, cell in row.items()}
        # `intern` keeps one object for all rows with the same cell.
        image = SourceImage(
            study=cells["StudyID"],
            patient=cells["PatientID"],
            name=cells["ImageID"],
            folder=intern(cells.get("ImageDir", "").removesuffix(".0")),
            projection=intern(cells["Projection"]),
            date=intern(cells.get("StudyDate_DICOM", "")),
            birth=intern(cells.get("PatientBirth", "")),
            sex=intern(cells.get("PatientSex_DICOM", "")),
            report=cells["Report"],
            labels=intern(cells["Labels"]),
            localizations=intern(cells.get("Localizations", "")),
            method=intern(cells.get("MethodLabel", "")),
            report_id=cells.get("ReportID", ""),
        )
        # A row without a study becomes a study by itself, to be left out with its reason.
        images = studies.setdefault(image.study or f"line {line}", [])
        # The report is in every row of its study; kept once, half a million rows fit into memory.
        images.append(replace(image, report=images[0].report) if images and image.report == images[0].report else image)
    return ImportPlan(
        items=source_tables.studies_with_priors(
            studies,
            _why_not,
            lambda study, images: (images[0].patient or study, source_tables.parse_date(images[0].date)),
        ),
        study_id=attrgetter("id"),
        read=partial(read, config.root),
        total=len(studies),
        layout="csv",
        collections=("san-juan-alicante",),
    )


def read(root: Path, source_study: source_tables.SourceStudy[SourceImage]) -> Imported | Dropped:
    """One study with its Spanish report and everything that its lists name."""
    images = source_study.images
    first = images[0]
    reason = _why_not(images)
    if reason is not None:
        return Dropped(source_study.id, reason)
    age, sex = _age(first), source_tables.parse_sex(first.sex)
    lists = {image.labels: listed(image.labels) for image in images}
    own = dict.fromkeys((_SPELLINGS.get(name.lower(), name) for names in lists.values() for name in names or ()), 1)
    labels = source_tables.to_chexpert_labels("padchest", own)
    spoiled = "No Finding" in labels and any(_cancels_normal(name) for name in own)
    if spoiled:
        del labels["No Finding"]
    report = next((image.report for image in images if image.report), None)
    files: list[ImageFile] = []
    for image in images:
        if image.name:
            folders = [image.folder, "", "images", f"images/{image.folder}"] if image.folder else ["", "images"]
            path = source_tables.image_path(root, [f"{folder}/{image.name}".removeprefix("/") for folder in folders])
            # A projection that is none of our views keeps its own name beside it.
            own_name = {"projection": image.projection} if image.projection not in ("", "PA", "AP", "L") else {}
            files.append(ImageFile(path, _VIEWS.get(image.projection.upper(), View.OTHER), own_name))
    extra = {
        "language": "es" if report else None,
        "report_id": first.report_id,
        "label_method": first.method,
        "localizations": list(dict.fromkeys(word for image in images for word in listed(image.localizations) or ())),
    }
    study = Study(
        id=source_study.id,
        patient=first.patient or source_study.id,
        images=tuple(files),
        report=report,
        age=age.years,
        sex=sex.letter,
        prior=source_study.prior,
        labels=labels,
        own_labels=own,
        extra={key: value for key, value in extra.items() if value},
    )
    words = {image.projection.upper() for image in images}
    remarks = source_tables.present_remarks(
        age.remark,
        sex.remark,
        None if first.patient else NO_PATIENT,
        None if report else NO_REPORT,
        REPORTS_DIFFER if len({image.report for image in images if image.report}) > 1 else None,
        LABELS_UNREADABLE if None in lists.values() else None,
        None if own or None in lists.values() else NO_LABELS,
        ROWS_DIFFER if len({frozenset(names or ()) for names in lists.values()}) > 1 else None,
        UNMAPPED if any(name not in PADCHEST for name in own) else None,
        NORMAL_BESIDE if spoiled else None,
        None if all(image.name for image in images) else NO_IMAGE,
        EXCLUDED if "EXCLUDE" in words else None,
        VIEW_UNKNOWN if words - {*_VIEWS, "EXCLUDE"} else None,
    )
    return Imported(study, remarks)


def listed(cell: str) -> tuple[str, ...] | None:
    """The words of a list as Python writes it, read without running anything; None for a cell that is not a list."""
    if cell.lower() in ("", "nan"):
        return ()
    if len(cell) > _LONGEST_LIST:
        return None
    try:
        items = ast.literal_eval(re.sub(r"(?<=[\[,])\s*nan\s*(?=[\],])", "None", cell))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(items, list) or not all(item is None or isinstance(item, str) for item in items):
        return None
    words = (" ".join(item.split()).strip("'\" ") for item in items if item is not None)
    return tuple(word for word in words if word and word.lower() != "nan")


def _why_not(images: Sequence[SourceImage]) -> str | None:
    if not images[0].study:
        return NO_STUDY
    if not any(image.name for image in images):
        return NO_IMAGE
    return PATIENTS_DIFFER if len({image.patient for image in images}) > 1 else None


def _age(image: SourceImage) -> source_tables.Age:
    """The year of the study less the year of birth, so at most one too high."""
    day, birth = source_tables.parse_date(image.date), image.birth.removesuffix(".0")
    if not birth or not image.date:
        return source_tables.Age(None)
    if not day or not re.fullmatch(r"\d{4}", birth):
        return source_tables.Age(None, source_tables.AGE_UNREADABLE)
    years = int(day[:4]) - int(birth)
    if 0 <= years <= source_tables.MAX_AGE:
        return source_tables.Age(years)
    return source_tables.Age(None, source_tables.AGE_OUT_OF_RANGE)


def _cancels_normal(name: str) -> bool:
    """Whether a label names something that a normal image does not have; devices and the incidental do not count."""
    row = PADCHEST.get(name)
    if row is None or row.chexpert == "No Finding":
        return False
    seen = [observation(one) for one in row.observations]
    lesions = [one for one in seen if one.group is not Group.DEVICE and one.name not in CHEXPERT_INCIDENTAL]
    return bool(lesions) or row.chexpert not in (None, "Support Devices")
