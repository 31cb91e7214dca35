"""CIFAR-100: small colour photographs of a hundred classes, a pool of pictures without any chest.

Counts: 50,000 train, 10,000 test, 32 x 32 pixels; CIFAR-10 in its python form is read too.
Views: other.
Labels: none of ours; the caption is the name of the fine class.
Language: English class names.
Licence: research use; the photographs were gathered from the web and have no stated licence.
Citation: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
Obtain: cifar-100-python.tar.gz from the author's page at the University of Toronto, unpacked; root is the folder with
    'meta', 'train' and 'test'.
Defects: the files are Python pickles, which may hold programs; anything but plain data is refused. A few test pictures
    repeat train pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cxrlab.core.codec import encode_png
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.pools import Picture, cifar_pool
from cxrlab.data.sources.layouts import chosen_layout
from cxrlab.data.sources.source import Imported, Plan


class Shot(NamedTuple):
    """A picture with its split and its number in it."""

    split: str
    number: int
    picture: Picture


def plan(config: ImportConfig) -> Plan[Shot]:
    """Both splits, in the order of the files."""
    chosen_layout(config, ())
    cifar_pool(config.root)  # refuses a folder that is no CIFAR before anything is written
    return Plan(items=_shots(config), study_id=_study_id, read=read, total=None, layout="python", writes=True)


def read(shot: Shot) -> Imported:
    """One picture as a PNG file."""
    path = f"images/{_study_id(shot)}.png"
    study = Study(
        id=_study_id(shot),
        patient=_study_id(shot),
        images=(ImageFile(path, View.OTHER),),
        split=shot.split,
        caption=shot.picture.label.replace("_", " "),
        extra={"file": shot.picture.name},
    )
    return Imported(study, files={path: encode_png(shot.picture.image)})


def _shots(config: ImportConfig) -> Iterator[Shot]:
    for split in ("train", "test"):
        for number, picture in enumerate(cifar_pool(config.root, split)):
            yield Shot(split, number, picture)


def _study_id(shot: Shot) -> str:
    # By number: the file names of the pickles are not unique.
    return f"{shot.split}{shot.number:05d}"
