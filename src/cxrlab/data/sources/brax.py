"""BRAX: chest radiographs of a Brazilian hospital with CheXpert's 14 labels; the reports were not published.

Counts: 40,967 images in 24,959 studies.
Views: PA, AP and lateral; decubitus, oblique and images without a stated view become 'other'.
Labels: CheXpert's 14 labels, mined from Portuguese reports: 1, 0, -1 (uncertain), empty (not mentioned, unknown).
Language: none; the Portuguese reports are not part of it, so its text is made from labels.
Licence: PhysioNet credentialed access, with its data use agreement; no redistribution.
Citation: Reis et al., BRAX, Brazilian labeled chest X-ray dataset, Scientific Data 9:487, 2022.
Obtain: PhysioNet 'brax' 1.1.0 after training and agreement; root holds master_spreadsheet_update.csv (or
    master_spreadsheet.csv) and images/ (layout png) or Anonymized_DICOMs/ (layout dicom).
Defects: the order of the first columns differs between copies, so they are found by name; ages come in groups of five
    years, of which the lower end is kept (85 for '85 or more'); study dates are fictitious, and that they keep the
    order of a patient's studies is not confirmed; no official split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter

from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import CHEXPERT_14, View
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, ImportPlan

LAYOUTS = ("png", "dicom")
NO_STUDY = "row without an accession number"
NO_PATIENT = "row without a patient id"
NO_PATH = "row without the path of its image"
NO_VIEW = "view not given"
LABELS_DIFFER = "images of one study with different labels; the strongest kept"
PATIENTS_DIFFER = "one accession number for several patients"
_PATH_COLUMN = {"png": "PngPath", "dicom": "DicomPath"}
_VIEWS = {"PA": View.PA, "AP": View.AP, "L": View.LATERAL, "LL": View.LATERAL, "RL": View.LATERAL}
_AGE_GROUP = re.compile(r"(\d+)\s*(?:(?:-|–|to)\s*\d+|or more|and over|\+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One row of the table: an image and its study."""

    study: str
    patient: str
    path: str
    view: str
    age: str
    sex: str
    date: str
    labels: source_tables.LabelVector


def plan(config: ImportConfig) -> ImportPlan[source_tables.SourceStudy[SourceImage]]:
    """The studies in the order of their first images."""
    asked = source_tables.chosen_layout(config, LAYOUTS)
    table = source_tables.find_file(
        config.root,
        "master_spreadsheet_update.csv",
        "master_spreadsheet.csv",
        "master_spreadsheet*.csv*",
        what="the table of images (master_spreadsheet_update.csv)",
    )
    layout = asked or (
        "dicom" if (config.root / "Anonymized_DICOMs").is_dir() and not (config.root / "images").is_dir() else "png"
    )
    column = _PATH_COLUMN[layout]
    needed = (column, "PatientID", "AccessionNumber", "ViewPosition", *CHEXPERT_14)
    studies: dict[str, list[SourceImage]] = {}
    for line, row in source_tables.read_rows(table, needed):
        image = SourceImage(
            study=row["AccessionNumber"],
            patient=row["PatientID"],
            path=source_tables.posix_path(row[column]),
            view=row["ViewPosition"].upper(),
            age=row.get("PatientAge", ""),
            sex=row.get("PatientSex", ""),
            date=row.get("StudyDate", ""),
            labels=source_tables.label_vector(row, f"{table}:{line}"),
        )
        # A row without a study becomes a study by itself, to be left out with its reason.
        studies.setdefault(image.study or f"line {line}", []).append(image)
    return ImportPlan(
        items=source_tables.studies_with_priors(
            studies, _why_not, lambda _, images: (images[0].patient, source_tables.parse_date(images[0].date))
        ),
        study_id=attrgetter("id"),
        read=read,
        total=len(studies),
        layout=layout,
        collections=("albert-einstein",),
        label_style="brax",
        sentences_from="labels",
    )


def read(source_study: source_tables.SourceStudy[SourceImage]) -> Imported | Dropped:
    """One study; its labels are those of its images, the strongest where they differ."""
    images = source_study.images
    first = images[0]
    reason = _why_not(images)
    if reason is not None:
        return Dropped(source_study.id, reason)
    # The lower end of a group of five years; "85 or more" is 85.
    group = _AGE_GROUP.fullmatch(first.age)
    age, sex = source_tables.parse_age(group[1] if group else first.age), source_tables.parse_sex(first.sex)
    study = Study(
        id=source_study.id,
        patient=first.patient,
        images=tuple(
            # A view that is none of ours keeps its own name beside it.
            ImageFile(
                image.path,
                _VIEWS.get(image.view, View.OTHER),
                {"view_position": image.view} if image.view and image.view not in _VIEWS else {},
            )
            for image in images
            if image.path
        ),
        age=age.years,
        sex=sex.letter,
        prior=source_study.prior,
        labels=source_tables.known_labels(reduce(source_tables.merge_labels, (image.labels for image in images))),
        extra={"age_group": first.age} if first.age else {},
    )
    remarks = source_tables.present_remarks(
        age.remark,
        sex.remark,
        None if all(image.path for image in images) else NO_PATH,
        None if all(image.view for image in images) else NO_VIEW,
        LABELS_DIFFER if any(image.labels != first.labels for image in images) else None,
    )
    return Imported(study, remarks)


def _why_not(images: Sequence[SourceImage]) -> str | None:
    if not images[0].study:
        return NO_STUDY
    if not images[0].patient:
        return NO_PATIENT
    if not any(image.path for image in images):
        return NO_PATH
    return PATIENTS_DIFFER if len({image.patient for image in images}) > 1 else None
