"""What CheXpert v1 and Plus share: where films lie, what their paths and columns tell.

A table names a film as `CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg`, whatever the
folder is called on the disk; the batches of the full release drop `train/`, and CheXpert Plus ships the
films of one table as PNG, JPEG and DICOM trees.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import intern

from cxrlab.core.errors import DataError, shown
from cxrlab.core.files import unreadable
from cxrlab.core.records import ImageFile
from cxrlab.core.vocabulary import View
from cxrlab.data.sources.layouts import image_path, portable
from cxrlab.data.sources.values import Age, age_of

SPLITS = {"train": "train", "valid": "val", "validate": "val", "val": "val", "test": "test"}
ENDINGS = (".png", ".jpg", ".dcm")

AGE_ZERO = "age 0, which stands for unknown"
LISTED_TWICE = "image listed twice; the first row counts"

_PATH = re.compile(
    r"(?:(?P<before>.*)/)?(?P<patient>patient\d+)/(?P<study>study\d+)/(?P<image>[^/]*?)(?P<ending>\.[A-Za-z]+)"
)
_PATIENT = re.compile(r"patient\d+")
# Enough for PNG/PNG/train and for chunks of it; a tree of images begins no deeper.
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class ImagePath:
    """A path of a table, taken apart.

    Args:
        before: Everything before the patient ("CheXpert-v1.0-small/train").
        patient: "patient00001".
        study: "study1".
        image: "view1_frontal".
        ending: ".jpg".
    """

    before: str
    patient: str
    study: str
    image: str
    ending: str

    @property
    def study_id(self) -> str:
        """Unique in the whole collection: a patient stands in one split only."""
        return f"{self.patient}/{self.study}"

    @property
    def study_number(self) -> int:
        """Which of the patient's studies it is."""
        return int(self.study.removeprefix("study"))

    @property
    def split_folder(self) -> str:
        """The folder above the patient: "train", "valid", "test"; anything else where a path has no such folder."""
        return self.before.rpartition("/")[2]


def parsed_path(cell: str, place: str) -> ImagePath:
    """A path of a table; anything else is an error that names the place."""
    match = _PATH.fullmatch(portable(cell))
    if match is None:
        raise DataError(
            f"{place} is {shown(cell)}; the path of a CheXpert image ends like "
            "train/patient00001/study1/view1_frontal.jpg."
        )
    parts = match.groupdict(default="")
    # Held once each: hundreds of thousands of paths share a few folders and names.
    before, study, image, ending = (intern(parts[key]) for key in ("before", "study", "image", "ending"))
    return ImagePath(before, parts["patient"], study, image, ending)


def known_age(cell: str) -> Age:
    """An age as both tables write it."""
    age = age_of(cell)
    return Age(None, AGE_ZERO) if age.years == 0 else age


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One row's image; `ap_pa` is what the source says beyond the view ("LL"), empty for most."""

    path: ImagePath
    view: View
    ap_pa: str

    def image(self, trees: Trees) -> ImageFile:
        """The image where it lies."""
        return ImageFile(trees.place(self.path), self.view, {"AP/PA": self.ap_pa} if self.ap_pa else {})


def image_of(path: ImagePath, frontal_lateral: str, ap_pa: str) -> SourceImage:
    """The image with its view by the two columns, or by its name where the columns are not there.

    AP/PA says "LL" or "RL" for some lateral images, and nothing or something else for a few frontal ones.
    """
    side = frontal_lateral.lower() or path.image.rpartition("_")[2].lower()
    word = ap_pa.upper()
    if side == "frontal":
        view = View(word) if word in (View.AP, View.PA) else View.FRONTAL
    else:
        view = View.LATERAL if side == "lateral" else View.OTHER
    return SourceImage(path, view, "" if word == view else intern(ap_pa))


@dataclass(frozen=True)
class Trees:
    """The folders under a root that hold patients.

    Args:
        root: The source folder.
        with_splits: Folders that hold train, valid or test, relative to the root with `/` behind; "" is the root.
        without: Folders that hold patients themselves.
    """

    root: Path
    with_splits: tuple[str, ...]
    without: tuple[str, ...]

    def place(self, path: ImagePath) -> str:
        """Where the image of a table lies, relative to the root; where it would lie when it does not.

        The table's own ending goes before PNG, and PNG before DICOM: trees of several kinds may stand side by side.
        """
        return image_path(self.root, self._candidates(path))

    def _candidates(self, path: ImagePath) -> Iterator[str]:
        endings = dict.fromkeys((path.ending, *ENDINGS))
        image = f"{path.patient}/{path.study}/{path.image}"
        folder = path.split_folder
        below = f"{folder}/" if folder in SPLITS else ""
        for ending in endings:
            yield from (f"{tree}{below}{image}{ending}" for tree in self.with_splits or ("",))
            yield from (f"{tree}{image}{ending}" for tree in self.without)


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
