"""Any folder of pictures: a tree of PNG and JPEG files, each with the name of its folder as its caption.

Counts: as many as the folder and its subfolders hold.
Views: other; nothing says that a picture shows a chest.
Labels: none; the caption is the name of the picture's own folder.
Language: whatever the folders are named in.
Licence: that of the pictures; look it up where they come from.
Citation: that of the pictures.
Obtain: from anywhere; PNG and JPEG files in any tree of folders are found.
Defects: hidden files and other formats are passed over; whether a picture can be decoded is told by 'data check'.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.pools import folder_pool
from cxrlab.data.sources.layouts import chosen_layout
from cxrlab.data.sources.source import Imported, Plan


def plan(config: ImportConfig) -> Plan[str]:
    """Every picture under the root, in the order of the paths."""
    chosen_layout(config, ())
    files = folder_pool(config.root).files
    return Plan(items=files, study_id=str, read=read, total=len(files), layout="folder")


def read(path: str) -> Imported:
    """One picture; a picture in the root itself has no caption."""
    folder = PurePosixPath(path).parent.name
    return Imported(Study(id=path, patient=path, images=(ImageFile(path, View.OTHER),), caption=folder or None))
