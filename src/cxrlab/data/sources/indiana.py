"""What the two forms of the Indiana University collection share: names of films, the table of views, views of films.

Open-I's reports call a film `CXR1_1_IM-0001-3001` or `CXR2_IM-0652-1001`, the table of views
`1_IM-0001-3001.dcm.png`, the DICOM folders `1/1_IM-0001-3001.dcm`: the number of the report, then a name
that begins with IM. A person has one report, so that number is study and patient at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.records import ImageFile
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.images import load_image
from cxrlab.data.sources.studies import is_image, read_dicom_header
from cxrlab.data.sources.tables import find_optional, noted, read_rows
from cxrlab.data.view_classifier import classify_views

COLLECTION = "indiana"
PROJECTIONS = "indiana_projections.csv"
FROM_PICTURE = "view told from the picture itself"
UNDECODABLE = "image cannot be decoded, view unknown"
SHOWS_NOTHING = "image shows no chest (blank or noise), view unknown"
_VIEWS = {"frontal": View.FRONTAL, "lateral": View.LATERAL}
_IMAGE = re.compile(r"(?:CXR)?(?P<number>\d+)_(?:\d+_)?(?P<name>IM-\d+(?:-\d+)*)", re.IGNORECASE)
# Images, blank or noise most of them, that the collection holds and the table of views leaves out: they count where
# images are numbered.
_UNLISTED = {
    "2084": ("IM-0715-1001-0002", "IM-0715-2001-0001"),
    "2560": ("IM-1064-4001",),
    "3809": ("IM-1919-1003002",),
}


class ImageName(NamedTuple):
    """An image of the collection: the number of its report and its own name ("IM-0001-3001")."""

    number: str
    name: str


# Views by the number of the report and the name of the image.
Projections = Mapping[str, Mapping[str, View]]


def image_name(text: str) -> ImageName | None:
    """The image that a file or entry is named after, in any of the forms above; None for other names."""
    match = _IMAGE.match(text)
    return ImageName(match["number"].lstrip("0") or "0", match["name"].upper()) if match else None


def read_projections(config: ImportConfig) -> Projections | None:
    """The table of views: the one that the settings name, else that of the root; None where there is none."""
    given = config.projections and noted(config.projections)
    found = given or find_optional(config.root, PROJECTIONS, f"{PROJECTIONS}.gz")
    if found is None:
        return None
    views: dict[str, dict[str, View]] = {}
    for line, row in read_rows(found, ("uid", "filename", "projection")):
        image, view = image_name(row["filename"]), _VIEWS.get(row["projection"].lower())
        if image is None:
            raise DataError(
                f"{found}:{line}: {short_repr(row['filename'])} is no image of Open-I (1_IM-0001-3001.dcm.png)."
            )
        if view is None:
            raise DataError(
                f"{found}:{line}: the projection is {short_repr(row['projection'])}, not Frontal or Lateral."
            )
        if views.setdefault(image.number, {}).setdefault(image.name, view) is not view:
            raise DataError(f"{found}:{line}: {row['filename']} has two projections; fetch the table again.")
    if not views:
        raise DataError(f"{found} lists no image; fetch the table again.")
    return views


def numbered_images(projections: Projections, number: str) -> list[str]:
    """The names of a report's images in the order in which R2Gen numbers them: that of their names as text."""
    listed = projections.get(number, {})
    return sorted({*listed, *_UNLISTED.get(number, ())}) if listed else []


def with_views(
    root: Path, paths: Sequence[str], known: Sequence[View | None]
) -> tuple[tuple[ImageFile, ...], list[str]]:
    """The images of one study with their views, and remarks.

    Args:
        root: The source folder.
        paths: Images relative to it.
        known: The view of each by the table; None where it does not tell. Then the header of a DICOM image is asked,
            and last the picture.

    An image that is not in the folder, cannot be decoded or shows nothing has the view `other`.
    """
    images: dict[int, ImageFile] = {}
    asked: dict[int, str] = {}
    for place, (path, view) in enumerate(zip(paths, known, strict=True)):
        if view is not None:
            images[place] = ImageFile(path, view, {"view_from": "projections"})
        elif is_image(root, path):
            header, _ = read_dicom_header(root, path)
            if header is not None and header.view is not None:
                images[place] = ImageFile(path, header.view, {"view_from": "header"})
            else:
                asked[place] = path
    told, remarks = _told_by_pictures(root, asked)
    images.update(told)
    return tuple(images.get(place, ImageFile(path, View.OTHER)) for place, path in enumerate(paths)), remarks


def _told_by_pictures(root: Path, paths: Mapping[int, str]) -> tuple[dict[int, ImageFile], list[str]]:
    images, remarks = {}, set()
    for place, path in paths.items():
        try:
            images[place] = load_image(root / path)
        except DataError:  # 'data check' names it; here it costs the view, not the study
            remarks.add(UNDECODABLE)
    told = {}
    for place, guess in zip(images, classify_views(list(images.values())), strict=True):
        remarks.add(SHOWS_NOTHING if guess.view is View.OTHER else FROM_PICTURE)
        told[place] = ImageFile(paths[place], guess.view, {"view_from": "image", "view_confidence": guess.confidence})
    return told, sorted(remarks)
