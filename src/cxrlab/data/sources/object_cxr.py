"""object-CXR: frontal images of Chinese township hospitals, marked where jewellery, buttons and the like lie on them.

Counts: 10,000 images, half of them with foreign objects: train 8,000, dev (here val) 1,000, test 1,000.
Views: frontal; PA or AP is not stated.
Labels: 'foreign object', 1 or 0, drawn by twelve radiologists as rectangles, ellipses or polygons; support devices
    were left out by them. None of CheXpert's 14 labels.
Language: none; there are no reports, so its text is made from labels.
Licence: CC BY-NC 4.0.
Citation: JF Healthcare, object-CXR: automatic detection of foreign objects on chest X-rays, MIDL challenge, 2020.
Obtain: the challenge's download (train.zip, dev.zip, train.csv, dev.csv; the test part was published later); root
    holds the tables and the folders train/, dev/ and test/, or all images in one folder.
Defects: patients are not stated, so each image counts as a patient of its own and the splits cannot be checked for
    leakage; some shapes reach beyond the image and are cut at zero; an image without a mark may hold objects outside the
    lungs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path, PurePosixPath

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.records import Box, ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.source_tables import Row, chosen_layout, find_optional, image_path, posix_path, read_rows

LABEL = "foreign object"
KINDS = ("rectangle", "ellipse", "polygon")
BEYOND_IMAGE = "shape beyond the edge of the image, cut at zero"
NO_NAME = "row without the name of an image"
TWICE = "image listed twice in one table"
_TABLES = {"train": "train", "dev": "val", "test": "test"}


@dataclass(frozen=True)
class Shape:
    """A closed line around an object: its kind and its points as x, y, x, y … in pixels."""

    kind: str
    points: tuple[float, ...]


@dataclass(frozen=True)
class SourceImage:
    """One row; `shapes` is None where the table has no column of objects."""

    id: str
    folder: str
    name: str
    shapes: tuple[Shape, ...] | None


def plan(config: ImportConfig) -> ImportPlan[SourceImage]:
    """The images table by table."""
    chosen_layout(config, ())
    tables = {folder: find_optional(config.root, f"{folder}.csv", f"{folder}/{folder}.csv") for folder in _TABLES}
    if not any(tables.values()):
        raise DataError(
            f"{config.root} does not hold a table of images: looked for {', '.join(f'{name}.csv' for name in tables)}; "
            "give the folder that holds it."
        )
    images: dict[str, SourceImage] = {}
    repeated = 0
    for folder, table in ((folder, table) for folder, table in tables.items() if table is not None):
        needed = ("image_name",) if folder == "test" else ("image_name", "annotation")
        for line, row in read_rows(table, needed, rename={"image_path": "image_name"}):
            name = PurePosixPath(posix_path(row["image_name"])).name
            image_id = f"{folder}-{PurePosixPath(name).stem}" if name else f"{folder} line {line}"
            repeated += image_id in images
            images[image_id] = SourceImage(image_id, folder, name, _shapes(row, f"{table}:{line}"))
    return ImportPlan(
        items=list(images.values()),
        study_id=attrgetter("id"),
        read=partial(read, config.root),
        total=len(images),
        layout="csv",
        collections=("jf-healthcare",),
        label_style="object-cxr",
        remarks={TWICE: repeated} if repeated else {},
    )


def read(root: Path, image: SourceImage) -> Imported | Dropped:
    """One image as a study; every shape becomes the box around it, and keeps its line under `shapes`."""
    if not image.name:
        return Dropped(image.id, NO_NAME)
    shapes = image.shapes or ()
    places = (f"{image.folder}/{image.name}", image.name, f"images/{image.name}", f"images/{image.folder}/{image.name}")
    boxes: list[Box] = []
    for shape in shapes:  # the rectangle around a shape, within the image's upper and left edge
        across, down = shape.points[::2], shape.points[1::2]
        left, top, right, bottom = (max(0.0, float(edge)) for edge in (min(across), min(down), max(across), max(down)))
        boxes.append(Box(LABEL, (left, top, right, bottom)))
    study = Study(
        id=image.id,
        patient=image.id,
        images=(ImageFile(image_path(root, places), View.FRONTAL),),
        split=_TABLES[image.folder],
        own_labels={} if image.shapes is None else {LABEL: int(bool(shapes))},
        boxes=tuple(boxes) or None,
        extra={"shapes": [{"kind": shape.kind, "points": list(shape.points)} for shape in shapes]} if shapes else {},
    )
    beyond = any(min(shape.points) < 0 for shape in shapes)
    return Imported(study, (BEYOND_IMAGE,) if beyond else ())


def _shapes(row: Row, place: str) -> tuple[Shape, ...] | None:
    """The shapes of a row; None where the table has no such column, nothing where the cell is empty or NaN."""
    cell = row.get("annotation")
    if cell is None:
        return None
    shapes: list[Shape] = []
    for text in filter(None, map(str.strip, cell.split(";"))) if cell.lower() != "nan" else ():
        try:
            values = [float(word) for word in text.split()]
        except ValueError:
            values = [math.nan]
        if not all(map(math.isfinite, values)):
            raise DataError(
                f"{place}: 'annotation' holds {short_repr(text)}, which is not numbers; fetch the table again."
            )
        kind, *points = [int(value) if value == int(value) else value for value in values]
        enough = len(points) >= 6 and len(points) % 2 == 0 if kind == 2 else len(points) == 4
        if kind not in (0, 1, 2) or not enough:
            raise DataError(
                f"{place}: 'annotation' holds {short_repr(text)}; a shape is 0 or 1 with four numbers, or 2 with a pair "
                "for each of three or more corners. Correct the row or fetch the table again."
            )
        shapes.append(Shape(KINDS[int(kind)], tuple(points)))
    return tuple(shapes)
