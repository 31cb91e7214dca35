"""MIMIC-CXR: films and reports of one American hospital's emergency patients, with official splits.

Counts: 377,110 films of 227,835 studies of 65,379 patients; films by split: train 368,960, validate 2,991, test 5,159.
Views: PA, AP and lateral. Decubitus, lordotic (AP AXIAL), oblique and swimmer's films are other, with the source's word
    beside them. A blank ViewPosition is told by the view code or by a portable AP procedure, else other.
Labels: the CheXpert labeller's by report; where version 2.1.0 labels a test study by radiologists, theirs ("Airspace
    Opacity" is Lung Opacity), the labeller's then beside them under 'chexpert'. NegBio's are kept under 'negbio'.
Language: English; one free-text report a study, cut into sections by rule.
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
    alone, some studies hold no film of the standard views, and times of day are missing in some rows.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.sections import parse
from cxrlab.data.sources import mimic_tables as tables
from cxrlab.data.sources.csv_file import find_optional
from cxrlab.data.sources.fourteen import AIRSPACE_OPACITY, Fourteen, stated
from cxrlab.data.sources.image_header import header_of
from cxrlab.data.sources.layouts import chosen_layout
from cxrlab.data.sources.mimic_reports import Reports, find_reports
from cxrlab.data.sources.mimic_views import VIEW_NOT_TOLD, ImageView
from cxrlab.data.sources.mimic_visits import Archive, Taken, Visit, packed, read_archive
from cxrlab.data.sources.source import Imported, Plan
from cxrlab.data.sources.values import AGE_OUT_OF_RANGE, OLDEST, remarks_of
from cxrlab.data.writer import Dropped

LAYOUTS = ("jpg", "dicom")
NO_IMAGE = "study without any image"
NO_REPORT = "no report text"
NO_FINDINGS = "report without a findings section"
NO_SECTION = "report in which no section was found"
NO_SPLIT = "study in no official split"
IMAGE_WITHOUT_SPLIT = "image without an official split; that of the study's other images counts"
SPLITS_DISAGREE = "images of the study are in different official splits; test goes before val, val before train"
NO_LABELS = "study without a row of labels"
BY_RADIOLOGISTS = "labels by radiologists (2.1.0), in place of the labeller's"
NO_DATE = "study without a date, so that its prior is unknown"


def plan(config: ImportConfig) -> Plan[Taken]:
    """The studies in the order in which the table of images first names them."""
    layout = chosen_layout(config, LAYOUTS) or _found_layout(config.root)
    archive = read_archive(config, layout)
    return Plan(
        items=archive.studies(),
        study_id=_study_id,
        read=partial(read, config.root, find_reports(config.root, config.reports)),
        total=len(archive.visits),
        layout=_told(layout, config, archive),
        collections=("beth-israel",),
        takes=("reports",),
        remarks=archive.remarks,
    )


def read(root: Path, reports: Reports, taken: Taken) -> Imported | Dropped:
    """One study with its report; one without any image is left out."""
    visit = taken.visit
    if not visit.images:
        return Dropped(taken.id, NO_IMAGE)
    images, image_remarks = _images(root, visit)
    split, split_remark = _split(visit)
    age, age_remark = _age(taken)
    told = reports.read(taken.patient, taken.id)
    sections, text_remark = _sections(told.text) if told else (None, NO_REPORT)
    labels = taken.radiologists or taken.chexpert
    study = Study(
        id=taken.id,
        patient=taken.patient,
        images=images,
        sections=sections,
        report=told.text if told else None,
        split=split,
        age=age,
        sex=taken.person.sex if taken.person else None,
        prior=f"s{taken.prior}" if taken.prior else None,
        labels=stated(labels) if labels else {},
        own_labels=_own_labels(taken.radiologists) if taken.radiologists else {},
        extra=_extra(taken),
    )
    remarks = remarks_of(
        *image_remarks,
        split_remark,
        age_remark,
        told.remark if told else None,
        text_remark,
        None if labels else NO_LABELS,
        BY_RADIOLOGISTS if taken.radiologists else None,
        None if visit.moment else NO_DATE,
    )
    return Imported(study, remarks)


def _found_layout(root: Path) -> str:
    """What the root shows by its tables, and by its first image where it holds those of both."""
    records = find_optional(root, *packed("cxr-record-list.csv"))
    if records is None:
        return "jpg"
    if find_optional(root, *packed("mimic-cxr-*-metadata.csv")) is None:
        return "dicom"
    first = next(tables.dicom_images(records, None), None)
    return "dicom" if first and (root / first.path).is_file() and not _as_jpg(root / first.path) else "jpg"


def _as_jpg(image: Path) -> bool:
    return image.with_suffix(".jpg").is_file()


def _told(layout: str, config: ImportConfig, archive: Archive) -> str:
    """The layout with what else changes the corpus, so that an import is never continued without it."""
    words = [f"{layout} 2.1.0" if archive.radiologists else layout]
    words += ["reports apart"] if config.reports else []
    words += ["patients of MIMIC-IV"] if archive.people else []
    return ", ".join(words)


def _images(root: Path, visit: Visit) -> tuple[tuple[ImageFile, ...], tuple[str, ...]]:
    """The images with their views, and the remarks on them, each once."""
    views = [image.view or _view_in_header(root, image.path) for image in visit.images]
    images = tuple(
        ImageFile(image.path, view.view, {"ViewPosition": view.word} if view.word else {})
        for image, view in zip(visit.images, views, strict=True)
    )
    return images, tuple(dict.fromkeys(view.remark for view in views if view.remark))


def _view_in_header(root: Path, image: str) -> ImageView:
    """The view that a DICOM file tells; a file that is not there gets its remark from the engine."""
    told, remark = header_of(root, image)
    if told is None:
        return ImageView(View.OTHER, None, remark)
    return ImageView(told.view) if told.view else ImageView(View.OTHER, None, VIEW_NOT_TOLD)


def _split(visit: Visit) -> tuple[str | None, str | None]:
    """The split of a study, and the remark where its images do not agree on it."""
    named = {image.split for image in visit.images}
    # Held-out splits first: whatever else a table says, nothing of a test study may be trained on.
    split = next((name for name in ("test", "val", "train") if name in named), None)
    if split is None:
        return None, NO_SPLIT
    if len(named - {None}) > 1:
        return split, SPLITS_DISAGREE
    return split, IMAGE_WITHOUT_SPLIT if None in named else None


def _age(taken: Taken) -> tuple[int | None, str | None]:
    """The age at the time of the study; unknown without a date or without MIMIC-IV's table of patients."""
    person, moment = taken.person, taken.visit.moment
    if person is None or moment is None or person.anchor_age is None or person.anchor_year is None:
        return None, None
    age = person.anchor_age + int(moment.date[:4]) - person.anchor_year
    return (age, None) if 0 <= age <= OLDEST else (None, AGE_OUT_OF_RANGE)


def _sections(text: str) -> tuple[Report | None, str | None]:
    report = parse(text).report
    if report == Report():
        return None, NO_SECTION
    return report, None if report.findings else NO_FINDINGS


def _own_labels(radiologists: Fourteen) -> dict[str, int]:
    """The radiologists' labels under the names of their table."""
    return {AIRSPACE_OPACITY if name == "Lung Opacity" else name: value for name, value in stated(radiologists).items()}


def _extra(taken: Taken) -> dict[str, object]:
    """What the source tells beyond the fields of a study, by its own names."""
    moment = taken.visit.moment
    extra: dict[str, object] = {}
    if moment is not None:
        extra["StudyDate"] = moment.date
        if moment.time >= 0:
            extra["StudyTime"] = moment.time
    if taken.visit.procedure:
        extra["PerformedProcedureStepDescription"] = taken.visit.procedure
    if taken.radiologists is not None and taken.chexpert is not None:
        extra["chexpert"] = stated(taken.chexpert)
    if taken.negbio is not None:
        extra["negbio"] = stated(taken.negbio)
    return extra


def _study_id(taken: Taken) -> str:
    return taken.id
