"""CANDID-PTX: images of a New Zealand hospital with their reports, outlined pneumothoraces, chest tubes, rib fractures.

Counts: 19,237 images of 1024 x 1024 pixels, one in six with a pneumothorax.
Views: frontal, or PA and AP where the image's header states it; unknown where the header cannot be read.
Labels: 'pneumothorax', 'chest tube' and 'acute rib fracture', by people, as masks; a box around each mask is kept. 1
    and 0 where their table is in the folder, unknown where it is not. No tube and no rib fracture do not
    mean no device and no fracture, so those CheXpert labels are stated only where present.
Language: English; the whole report, with masked names and dates.
Licence: by data use agreement and ethics course; no redistribution; since 2024 closed outside Health New Zealand.
Citation: Feng et al., Curation of the CANDID-PTX dataset with free-text reports, Radiology: Artificial Intelligence
    3(6):e210136, 2021.
Obtain: University of Auckland figshare 14173982, on request; root holds Pneumothorax_reports.csv, chest_tube.csv,
    acute_rib_fracture.csv (or Rib_fracture_mask_rle.csv) and dataset/ with a DICOM file for each image, with or
    without an ending.
Defects: a byte-order mark before the first column; a row for each mask, so several an image; empty mask cells, which
    state nothing; images without a row; the splits that others published share patients, so there is none here. Masks
    are taken as runs relative to the end of the run before, down the columns, as other readers of the data take them;
    that dates in the file names give the order of studies is not confirmed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

from cxrlab.core.records import Box, ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.sections import parse

PNEUMOTHORAX, TUBE, FRACTURE = "pneumothorax", "chest tube", "acute rib fracture"
SIDE = 1024
NO_IMAGE = "row without the id of an image"
NO_PATIENT = "file name without a patient's number; the study counts as a patient of its own"
NO_REPORT = "no report"
REPORTS_DIFFER = "images of one study with different reports; the first kept"
MASK_EMPTY = "empty cell for the pneumothorax mask; unknown"
MASK_UNREADABLE = "mask that is not a run-length code of the image; its label kept, without a box"
BOTH = "image marked with and without pneumothorax; taken as with"
PATIENTS_DIFFER = "one study for several patients"
MASK_WITHOUT_IMAGE = "mask for an image that the table of reports does not list"
_FOLDERS = ("dataset", "chest_radiographs", "images")
_ENDINGS = ("", ".dcm", ".dicom", ".png", ".jpg")
_NONE = ("-1", "-1.0", "-1 -1")
_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)-?(\d\d)-?(\d\d)(?!\d)")


@dataclass(frozen=True)
class SourceImage:
    """One image: the cells of its masks by own label, each once; an empty cell is an empty text."""

    id: str
    name: str
    report: str
    masks: Mapping[str, tuple[str, ...]]


def plan(config: ImportConfig) -> ImportPlan[source_tables.SourceStudy[SourceImage]]:
    """The studies in the order of their first images."""
    source_tables.chosen_layout(config, ())
    table = source_tables.find_file(
        config.root, "Pneumothorax_reports.csv", "Pneumothorax_reports.csv.gz", what="the table of reports and masks"
    )
    others = {
        TUBE: source_tables.find_optional(config.root, "chest_tube.csv"),
        FRACTURE: source_tables.find_optional(config.root, "acute_rib_fracture.csv", "Rib_fracture_mask_rle.csv"),
    }
    masks: dict[str, dict[str, list[str]]] = {}  # own label → image → the mask cells of its rows, each once
    for label, path in ((label, path) for label, path in others.items() if path is not None):
        by_image = masks.setdefault(label, {})
        for _, row in source_tables.read_rows(
            path, ("anon_SOPUID", "mask_rle"), rename={"SOPInstanceUID": "anon_SOPUID"}
        ):
            cells = by_image.setdefault(row["anon_SOPUID"], [])
            if row["mask_rle"] not in cells:
                cells.append(row["mask_rle"])
    studies = _studies(table, masks)
    listed = {image.id for images in studies.values() for image in images}
    orphans = sum(len(cells) for by_image in masks.values() for image, cells in by_image.items() if image not in listed)
    return ImportPlan(
        items=source_tables.studies_with_priors(
            studies, _why_not, lambda study, images: (_patient(images) or study, _date(images[0].name))
        ),
        study_id=attrgetter("id"),
        read=partial(read, config.root),
        total=len(studies),
        layout="dicom",
        collections=("dunedin",),
        label_style="candid-ptx",
        remarks={MASK_WITHOUT_IMAGE: orphans} if orphans else {},
    )


def read(root: Path, source_study: source_tables.SourceStudy[SourceImage]) -> Imported | Dropped:
    """One study with its report, and the strongest of its images' labels."""
    images = source_study.images
    reason = _why_not(images)
    if reason is not None:
        return Dropped(source_study.id, reason)
    paths = [
        source_tables.image_path(root, [f"{folder}/{image.id}{ending}" for folder in _FOLDERS for ending in _ENDINGS])
        for image in images
    ]
    headers = [source_tables.read_dicom_header(root, path) for path in paths]
    boxes: list[Box] = []  # around each mask
    unreadable = False
    for number, (image, (header, _)) in enumerate(zip(images, headers, strict=True)):
        height, width = (header.rows, header.columns) if header is not None else (SIDE, SIDE)
        for label, cell in ((label, cell) for label, cells in image.masks.items() for cell in cells if _value(cell)):
            bounds = run_bounds(cell, height, width)
            unreadable |= bounds is None
            if bounds is not None:
                left, top, right, bottom = map(float, bounds)
                boxes.append(Box(label, (left, top, right, bottom), image=number))
    own = _own_labels(images)
    patient, report = _patient(images), next((image.report for image in images if image.report), None)
    known = next((header for header, _ in headers if header is not None), None)
    study = Study(
        id=source_study.id,
        patient=patient or source_study.id,
        images=tuple(
            # Frontal, as all of the data set, where the header states no view; None where it cannot be read.
            ImageFile(path, None if header is None and remark else (header and header.view) or View.FRONTAL)
            for path, (header, remark) in zip(paths, headers, strict=True)
        ),
        sections=parse(report).report if report else None,
        report=report,
        age=known.age if known else None,
        sex=known.sex if known else None,
        prior=source_study.prior,
        labels=source_tables.to_chexpert_labels("candid-ptx", own, (PNEUMOTHORAX,)),
        own_labels=own,
        boxes=tuple(boxes) or None,
    )
    remarks = source_tables.present_remarks(
        *dict.fromkeys(remark for _, remark in headers),
        None if patient else NO_PATIENT,
        None if report else NO_REPORT,
        REPORTS_DIFFER if len({image.report for image in images if image.report}) > 1 else None,
        MASK_EMPTY if any("" in image.masks[PNEUMOTHORAX] for image in images) else None,
        BOTH if any(set(map(_value, image.masks[PNEUMOTHORAX])) >= {0, 1} for image in images) else None,
        MASK_UNREADABLE if unreadable else None,
    )
    return Imported(study, remarks)


def _studies(table: Path, masks: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, list[SourceImage]]:
    """Study → its images; the rows of one image become one."""
    first: dict[str, source_tables.Row] = {}
    cells: dict[str, list[str]] = {}
    studies: dict[str, list[SourceImage]] = {}
    for line, row in source_tables.read_rows(
        table, ("SOPInstanceUID", "StudyInstanceUID", "filename", "EncodedPixels", "Report")
    ):
        name = row["SOPInstanceUID"]
        if not name:
            # A row without an image becomes a study by itself, to be left out with its reason.
            studies[f"line {line}"] = [SourceImage("", row["filename"], "", {})]
            continue
        first.setdefault(name, row)
        seen = cells.setdefault(name, [])
        cell = "" if row["EncodedPixels"].lower() == "nan" else row["EncodedPixels"]
        if cell not in seen:
            seen.append(cell)
    for name, row in first.items():
        others = {label: tuple(by_image.get(name, ())) for label, by_image in masks.items()}
        image = SourceImage(name, row["filename"], row["Report"], {PNEUMOTHORAX: tuple(cells[name]), **others})
        studies.setdefault(row["StudyInstanceUID"] or name, []).append(image)
    return studies


def _why_not(images: Sequence[SourceImage]) -> str | None:
    if not images[0].id:
        return NO_IMAGE
    return PATIENTS_DIFFER if len({image.name.partition("_")[0] for image in images}) > 1 else None


def _own_labels(images: Iterable[SourceImage]) -> dict[str, int]:
    """Own label → 1 when any image has it, 0 when every image is stated to lack it; unknown is left out."""
    labels: dict[str, int] = {}
    values: dict[str, list[int | None]] = {}
    for image in images:
        for label, cells in image.masks.items():
            known = [value for value in map(_value, cells) if value is not None]
            if label == PNEUMOTHORAX or known:
                value = source_tables.strongest(known)
            else:  # of the other two tables, a row is a mark even where its mask is empty, and no row is an absence
                value = int(bool(cells))
            values.setdefault(label, []).append(value)
    for label, found in values.items():
        known = [value for value in found if value is not None]
        if 1 in known or len(known) == len(found):
            labels[label] = source_tables.strongest(known) or 0
    return labels


def _value(cell: str) -> int | None:
    return None if not cell else int(cell not in _NONE)


def _patient(images: Sequence[SourceImage]) -> str:
    """The text before the first underscore of the file name; empty when there is no underscore."""
    number, underscore, _ = images[0].name.partition("_")
    return number if underscore else ""


def _date(name: str) -> str:
    """The date in a file name as yyyymmdd; empty when there is none."""
    match = _DATE.search(name.partition("_")[2])
    return "".join(match.groups()) if match else ""


def run_bounds(runs: str, height: int, width: int) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of a run-length mask, right and bottom exclusive; None if it is none.

    The mask is pairs of numbers: pixels to skip since the end of the run before, pixels to mark, down the columns.
    """
    words = runs.split()
    if not words or len(words) % 2 or not all(word.isdecimal() and len(word) < 10 for word in words):
        return None
    left, top, right, bottom = width, height, -1, -1
    end = 0
    for skip, length in zip(map(int, words[::2]), map(int, words[1::2]), strict=True):
        start, end = end + skip, end + skip + length
        if end > height * width:
            return None
        if length == 0:
            continue
        first, last = start // height, (end - 1) // height
        # A run that goes on in the next column touches the lower edge of the one and the upper edge of the other.
        above, below = (start % height, (end - 1) % height) if first == last else (0, height - 1)
        left, right = min(left, first), max(right, last)
        top, bottom = min(top, above), max(bottom, below)
    return (left, top, right + 1, bottom + 1) if right >= 0 else None
