"""NIH ChestX-ray14: frontal images of one hospital with 14 labels mined from reports that were not published.

Counts: 112,120 images of 30,805 patients; official lists train_val 86,524 and test 25,596; 984 boxes on 880 images.
Views: PA and AP; frontal where the table gives none, since all images are; unknown where it gives another word.
Labels: 14 of its own, by text mining, 'No Finding' where none was found. An image's own labels are 0 where the
    mining found nothing, which is how the data set is scored; its CheXpert labels are stated only where present.
Language: none; the reports are not part of it.
Licence: open; attribution to the NIH Clinical Center is asked for.
Citation: Wang et al., ChestX-ray8: hospital-scale chest X-ray database and benchmarks, CVPR 2017.
Obtain: the NIH Clinical Center's public download; root holds Data_Entry_2017*.csv, BBox_List_2017.csv,
    train_val_list.txt and test_list.txt, and images/ or images_001/images/ to images_012/images/.
Defects: brackets split two header names in four, and older copies end each line with a comma; some ages are above 400;
    the labels are about 90 % right by their authors' own count; train and val are not separated; NIH was not part of
    CXR-697K.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from cxrlab.core.errors import DataError, did_you_mean, short_repr
from cxrlab.core.files import read_text
from cxrlab.core.label_maps import NIH_CXR14, map_label
from cxrlab.core.records import Box, ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan

OWN_LABELS = tuple(name for name in NIH_CXR14 if name != "No Finding")
ODD_VIEW = "view given by another word than PA and AP; it is unknown"
IN_NO_LIST = "image in neither of the official lists"
BOX_WITHOUT_IMAGE = "box for an image that the table does not list"
# Commas in brackets split two names of the header in four.
_HEADER = {
    "OriginalImage[Width": "Width",
    "Height]": "Height",
    "OriginalImagePixelSpacing[x": "SpacingX",
    "y]": "SpacingY",
}
_BOX_HEADER = ("Image Index", "Finding Label", "x", "y", "w", "h")
# The box list calls one label by a shorter name.
_BOX_LABELS = {"Infiltrate": "Infiltration"}


@dataclass(frozen=True)
class SourceImage:
    """One row of the table; each image is a study of its own."""

    name: str
    labels: tuple[str, ...]
    follow_up: int
    patient: str
    age: str
    sex: str
    view: str
    split: str | None
    boxes: tuple[Box, ...]
    prior: str | None = None


def plan(config: ImportConfig) -> ImportPlan[SourceImage]:
    """The images in the order of the table, joined with boxes and lists."""
    source_tables.chosen_layout(config, ())
    table = source_tables.find_file(
        config.root, "Data_Entry_2017*.csv", "Data_Entry_2017*.csv.gz", what="the table of images (Data_Entry_2017)"
    )
    # The official lists; empty when they are not there. What is not test is train: the list does not name a val.
    splits: dict[str, str] = {}
    for file, split in (("train_val_list.txt", "train"), ("test_list.txt", "test")):
        path = source_tables.find_optional(config.root, file)
        for name in read_text(path).split() if path else ():
            if splits.setdefault(name, split) != split:
                raise DataError(f"{path} and the other list both name {name}; fetch them again.")
    boxes = _boxes(config.root)
    images = _images(table, splits, boxes)
    orphans = sum(map(len, boxes.values())) - sum(len(image.boxes) for image in images)
    # Image → path, for the images in `images_001/images` and the like or beside the table.
    paths = {
        entry.name: f"{folder.relative_to(config.root).as_posix()}/{entry.name}".removeprefix("./")
        for folder in [*sorted(config.root.glob("images_*/images")), config.root]
        for entry in os.scandir(folder)
        if entry.name.endswith(".png")
    }
    return ImportPlan(
        items=images,
        study_id=_study_id,
        read=partial(read, paths, bool(splits)),
        total=len(images),
        layout=table.name.removesuffix(".gz"),
        collections=("nih-clinical-center",),
        remarks={BOX_WITHOUT_IMAGE: orphans} if orphans else {},
    )


def read(paths: Mapping[str, str], listed: bool, image: SourceImage) -> Imported:
    """One image as a study; `paths` are those of images outside `images/`, `listed` is whether there are lists."""
    age, sex = source_tables.parse_age(image.age), source_tables.parse_sex(image.sex)
    chexpert_labels = {map_label("nih-cxr14", label).label for label in image.labels}
    study = Study(
        id=_study_id(image),
        patient=image.patient,
        images=(ImageFile(paths.get(image.name, f"images/{image.name}"), _view(image.view)),),
        split=image.split,
        age=age.years,
        sex=sex.letter,
        prior=Path(image.prior).stem if image.prior else None,
        labels=dict.fromkeys(sorted(filter(None, chexpert_labels)), 1),
        own_labels={label: int(label in image.labels) for label in OWN_LABELS} if image.labels else {},
        boxes=image.boxes or None,
        extra={"follow_up": image.follow_up},
    )
    lost = IN_NO_LIST if listed and image.split is None else None
    return Imported(
        study, source_tables.present_remarks(age.remark, sex.remark, lost, None if _view(image.view) else ODD_VIEW)
    )


def _images(table: Path, splits: Mapping[str, str], boxes: Mapping[str, tuple[Box, ...]]) -> list[SourceImage]:
    needed = ("Image Index", "Finding Labels", "Follow-up #", "Patient ID", "Patient Age", "View Position")
    images: dict[str, SourceImage] = {}
    visits: dict[str, list[tuple[int, str]]] = {}
    for line, row in source_tables.read_rows(table, needed, rename=_HEADER):
        place, name = f"{table}:{line}", row["Image Index"]
        if not Path(name).stem or name in images:
            raise DataError(
                f"{place}: 'Image Index' is {short_repr(name)}, no image or one listed before; fetch it again."
            )
        cell = row["Finding Labels"]
        labels = tuple(label for label in cell.split("|") if label) if cell.lower() != "nan" else ()
        for label in labels:
            if label not in NIH_CXR14:
                hint = did_you_mean(label, NIH_CXR14)
                raise DataError(f"{place}: 'Finding Labels' holds {short_repr(label)}.{hint} NIH lists 14 labels.")
        images[name] = image = SourceImage(
            name=name,
            labels=labels,
            follow_up=int(source_tables.parse_digits(row["Follow-up #"], f"{place}: 'Follow-up #'")),
            patient=source_tables.parse_digits(row["Patient ID"], f"{place}: 'Patient ID'").zfill(8),
            age=row["Patient Age"],
            sex=row.get("Patient Gender", row.get("Patient Sex", "")),
            view=row["View Position"],
            split=splits.get(name),
            boxes=boxes.get(name, ()),
        )
        visits.setdefault(image.patient, []).append((image.follow_up, name))
    priors = {name: before for several in visits.values() for (_, before), (_, name) in pairwise(sorted(several))}
    return [replace(image, prior=priors.get(name)) for name, image in images.items()]


def _boxes(root: Path) -> dict[str, tuple[Box, ...]]:
    """Boxes by image, from left, top, width and height; empty when the list is not there."""
    table = source_tables.find_optional(root, "BBox_List_2017.csv", "BBox_List_2017.csv.gz")
    found: dict[str, list[Box]] = {}
    if table is not None:
        # The header spans "Bbox [x,y,w,h]" over four columns and leaves three more names empty.
        for line, row in source_tables.read_rows(
            table, _BOX_HEADER, rename=lambda header: [*_BOX_HEADER, *header[6:]], padded=True
        ):
            label = _BOX_LABELS.get(row["Finding Label"], row["Finding Label"])
            try:
                left, top, width, height = (float(row[key]) for key in "xywh")
                box = Box(label, (left, top, left + width, top + height))
            except (ValueError, DataError):
                raise DataError(f"{table}:{line} holds no box (label, x, y, w, h); fetch the file again.") from None
            found.setdefault(row["Image Index"], []).append(box)
    return {name: tuple(several) for name, several in found.items()}


def _view(word: str) -> View | None:
    """The view; frontal where the table gives none, as all images of the data set; None for any other word."""
    return View(word) if word in (View.PA, View.AP) else None if word else View.FRONTAL


def _study_id(image: SourceImage) -> str:
    return Path(image.name).stem
