"""VinDr-CXR: PA images of two Vietnamese hospitals, each read by three radiologists (train) or by five (test).

Counts: 18,000 images: train 15,000, test 3,000.
Views: PA.
Labels: 28 of its own: 22 findings with boxes and 6 diagnoses. In train 1 is what more than half of an image's readers
    saw (two of three), -1 what fewer saw (one of three), 0 what none saw; each reader's boxes and the votes are kept.
    In test the consensus, 1 or 0. CheXpert labels are 0 only where the own label is as wide.
Language: none; there are no reports, so its text is made from labels.
Licence: PhysioNet credentialed access, with its data use agreement; no redistribution.
Citation: Nguyen et al., VinDr-CXR: an open dataset of chest X-rays with radiologist's annotations, Scientific Data
    9:429, 2022.
Obtain: PhysioNet 'vindr-cxr' 1.0.0 after training and agreement (layout physionet): root holds annotations/ with
    image_labels_train.csv, image_labels_test.csv, annotations_train.csv, annotations_test.csv, and train/ and test/
    with <image_id>.dicom. Kaggle's 'vinbigdata-chest-xray-abnormalities-detection' (layout kaggle): train.csv and
    train/.
Defects: patients are not stated, so each image counts as a patient of its own; the test table says 'Other disease' where
    the train table says 'Other diseases'; Kaggle's table knows 14 of the findings, no diagnosis, and does not list
    the test images, which are left out; many headers give no age or 000Y; boxes are in pixels of the original images,
    whatever the size of the copies beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, did_you_mean, short_repr
from cxrlab.core.label_maps import VINDR_CXR
from cxrlab.core.records import Box, ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan

LAYOUTS = ("physionet", "kaggle")
NO_LABELS = "image with boxes but no row of labels; its labels are those that readers boxed"
AGE_ZERO = "age 0 in the header of an adult, left out"
BOX_EMPTY = "finding without a box"
CONSENSUS = "consensus"
_DIAGNOSES = ("COPD", "Lung tumor", "Pneumonia", "Tuberculosis", "Other diseases", "No finding")
FINDINGS = tuple(name for name in VINDR_CXR if name not in _DIAGNOSES)
KAGGLE_FINDINGS = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis",
)  # fmt: skip
# These are as wide as CheXpert's labels of the same name.
_EQUIVALENT = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pneumonia", "Pneumothorax", "Pleural effusion",
    "No finding",
)  # fmt: skip
# The tables do not agree on capitals, nor on one plural.
_SPELLINGS = {**{name.lower(): name for name in VINDR_CXR}, "other disease": "Other diseases"}
_EXTENSIONS = ("dicom", "dcm", "png", "jpg", "jpeg")


@dataclass
class SourceImage:
    """One image: each reader's labels, and the boxes."""

    id: str
    split: str
    # Reader → own label → 1 or 0, for the labels that the reader was asked for.
    answers: dict[str, dict[str, int]] = field(default_factory=dict)
    boxes: list[Box] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def plan(config: ImportConfig) -> ImportPlan[SourceImage]:
    """The images of train, then those of test, in the order of the tables."""
    layout = source_tables.chosen_layout(config, LAYOUTS)
    if layout is None:
        layout = (
            "kaggle"
            if not _tables(config.root) and source_tables.find_optional(config.root, "train.csv")
            else "physionet"
        )
    images = list(_read_tables(config.root, layout).values())
    return ImportPlan(
        items=images,
        study_id=attrgetter("id"),
        read=partial(read, config.root),
        total=len(images),
        layout=layout,
        collections=("vindr",),
        label_style="vindr-cxr",
    )


def read(root: Path, image: SourceImage) -> Imported:
    """One image as a study, with age and sex from its DICOM header where there is one."""
    path = source_tables.image_path(root, [f"{image.split}/{image.id}.{ending}" for ending in _EXTENSIONS])
    header, unreadable = source_tables.read_dicom_header(root, path)
    age = header.age if header is not None else None
    # Own label → number of readers who saw it, and of readers who answered for it.
    rows = {label: [row[label] for row in image.answers.values() if label in row] for label in VINDR_CXR}
    votes = {label: (sum(row), len(row)) for label, row in rows.items() if row}
    own = {label: (1 if 2 * yes > of else 0 if yes == 0 else -1) for label, (yes, of) in votes.items()}
    extra: dict[str, Any] = {}
    if image.split == "train" and votes:
        extra = {"readers": len(image.answers), "votes": {label: yes for label, (yes, _) in votes.items() if yes}}
    study = Study(
        id=image.id,
        patient=image.id,
        images=(ImageFile(path, View.PA),),
        split=image.split,
        age=age or None,
        sex=header.sex if header is not None else None,
        labels=source_tables.to_chexpert_labels("vindr-cxr", own, _EQUIVALENT),
        own_labels=own,
        boxes=tuple(image.boxes) or None,
        extra=extra,
    )
    remarks = source_tables.present_remarks(unreadable, AGE_ZERO if age == 0 else None, *dict.fromkeys(image.remarks))
    return Imported(study, remarks)


def _tables(root: Path) -> dict[tuple[str, str], Path]:
    """(kind, split) → table, for those of PhysioNet's four tables that are there."""
    found: dict[tuple[str, str], Path] = {}
    for split in ("train", "test"):
        for kind in ("image_labels", "annotations"):
            name = f"{kind}_{split}.csv"
            table = source_tables.find_optional(
                root, f"annotations/{name}", name, f"annotations/{name}.gz", f"{name}.gz"
            )
            if table is not None:
                found[kind, split] = table
    return found


def _read_tables(root: Path, layout: str) -> dict[str, SourceImage]:
    """The images of all tables by their names."""
    images: dict[str, SourceImage] = {}
    if layout == "kaggle":
        table = source_tables.find_optional(root, "train.csv")
        if table is None:
            raise DataError(f"{root} does not hold train.csv, Kaggle's table of boxes; give the folder that holds it.")
        _add_boxes(images, table, "train", KAGGLE_FINDINGS, None)
        return images
    found = _tables(root)
    if not found:
        raise DataError(
            f"{root} does not hold annotations/image_labels_train.csv or one of its like, nor Kaggle's train.csv; "
            "give the folder that holds them."
        )
    for split in ("train", "test"):
        if ("image_labels", split) in found:
            table = found["image_labels", split]
            rename = lambda header: [_SPELLINGS.get(name.lower(), name) for name in header]  # noqa: E731
            for line, row in source_tables.read_rows(table, ("image_id", "No finding"), rename=rename):
                image = _image(images, row, split, f"{table}:{line}")
                cells = {
                    name: source_tables.parse_label(row[name], f"{table}:{line}: '{name}'")
                    for name in VINDR_CXR
                    if name in row
                }
                reader = row.get("rad_id") or CONSENSUS
                if reader in image.answers:
                    raise DataError(
                        f"{table}:{line} lists image {image.id} a second time for the same reader; fetch it again."
                    )
                image.answers[reader] = {
                    name: value for name, value in cells.items() if value is not None and value >= 0
                }
        if ("annotations", split) in found:
            _add_boxes(images, found["annotations", split], split, FINDINGS, NO_LABELS)
    return images


def _image(images: dict[str, SourceImage], row: source_tables.Row, split: str, place: str) -> SourceImage:
    name = row["image_id"]
    if not name:
        raise DataError(f"{place} has an empty 'image_id'; correct the row or fetch the table again.")
    image = images.setdefault(name, SourceImage(name, split))
    if image.split != split:
        raise DataError(f"{place} lists image {name}, which the {image.split} tables list too; fetch the tables again.")
    return image


def _add_boxes(
    images: dict[str, SourceImage], table: Path, split: str, listed: tuple[str, ...], unlabelled: str | None
) -> None:
    """Boxes of a table; an image that has no labels so far gets those that its readers named here."""
    labelled = {name for name, image in images.items() if image.answers}
    named: dict[str, dict[str, set[str]]] = {}
    for line, row in source_tables.read_rows(table, ("image_id", "class_name", "x_min", "y_min", "x_max", "y_max")):
        image = _image(images, row, split, f"{table}:{line}")
        word = row["class_name"]
        label = _SPELLINGS.get(word.lower())
        if label is None:
            hint = did_you_mean(word, VINDR_CXR)
            raise DataError(f"{table}:{line}: 'class_name' is {short_repr(word)}.{hint} VinDr-CXR lists 28 labels.")
        cells = [row[key] for key in ("x_min", "y_min", "x_max", "y_max")]
        if label != "No finding" and not all(cell.lower() in ("", "nan") for cell in cells):
            try:
                left, top, right, bottom = (float(cell) for cell in cells)
            except ValueError:
                left = right = top = bottom = math.nan
            if not (left <= right and top <= bottom and math.isfinite(right - left + bottom - top)):
                raise DataError(
                    f"{table}:{line} holds the box {short_repr(cells)}, which is not a rectangle; fetch the table again."
                )
            image.boxes.append(Box(label, (left, top, right, bottom), reader=row.get("rad_id") or None))
        elif label in FINDINGS:
            image.remarks.append(BOX_EMPTY)
        if image.id not in labelled:
            named.setdefault(image.id, {}).setdefault(row.get("rad_id") or CONSENSUS, set()).add(label)
    for name, readers in named.items():
        # Reader → label → whether it was named, for the listed labels and for what any reader named.
        labels = dict.fromkeys((*listed, "No finding", *sorted(set[str]().union(*readers.values()))))
        images[name].answers = {
            reader: {label: int(label in own) for label in labels} for reader, own in readers.items()
        }
        if unlabelled is not None:
            images[name].remarks.append(unlabelled)
