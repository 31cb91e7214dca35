"""Any folder of pictures: a tree of PNG and JPEG files, each with the name of its folder as its caption.

Counts: as many as the folder and its subfolders hold.
Views: other; the pictures may show anything.
Labels: none; the caption is the name of the picture's own folder.
Language: whatever the folders are named in.
Licence: that of the pictures; look it up where they come from.
Citation: that of the pictures.
Obtain: from anywhere; PNG and JPEG files in any tree of folders are found.
Defects: hidden files and other formats are passed over; 'data check' reports pictures that cannot be decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.images import load_rgb
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.source_tables import chosen_layout

ENDINGS = (".png", ".jpg", ".jpeg")


def plan(config: ImportConfig) -> ImportPlan[str]:
    """Every picture under the root, in the order of the paths."""
    chosen_layout(config, ())
    files = folder_pool(config.root).files
    return ImportPlan(items=files, study_id=str, read=read, total=len(files), layout="folder")


def read(path: str) -> Imported:
    """One picture; a picture in the root itself has no caption."""
    folder = PurePosixPath(path).parent.name
    return Imported(Study(id=path, patient=path, images=(ImageFile(path, View.OTHER),), caption=folder or None))


@dataclass(frozen=True)
class Picture:
    """One picture of a pool: a name unique in it, uint8 [H, W, 3], and its class."""

    name: str
    image: NDArray[np.uint8]
    label: str


@dataclass
class FolderPool:
    """Every picture in a folder tree, in the order of their paths; iterate it for `Picture`s."""

    path: Path
    files: tuple[str, ...]
    unreadable: dict[str, str] = field(default_factory=dict)  # name → reason, filled while iterating

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Picture]:
        for name in self.files:
            try:
                image = to_uint8(load_rgb(self.path / name))
            except DataError as error:
                self.unreadable[name] = str(error)
                continue
            yield Picture(name, image, (self.path / name).parent.name)


def folder_pool(path: str | Path) -> FolderPool:
    """A pool of the PNG and JPEG files under a folder; the class is the name of the file's own folder."""
    top = Path(path)
    if not top.is_dir():
        raise DataError(f"{top} is not a folder; name one that holds pictures.")
    found = [
        (Path(folder) / name).relative_to(top).as_posix()
        for folder, _, names in os.walk(top)
        for name in names
        if name.lower().endswith(ENDINGS) and not name.startswith(".")
    ]
    if not found:
        raise DataError(f"{top} holds no picture ({', '.join(ENDINGS)}); check the path.")
    return FolderPool(top, tuple(sorted(found)))
