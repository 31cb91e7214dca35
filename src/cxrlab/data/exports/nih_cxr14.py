"""A corpus in the layout of NIH ChestX-ray14: one table, two lists, boxes, images as PNG files.

Its fourteen labels come from exact findings where the corpus has them, else from the study's own NIH
labels; a study with neither is left out. Boxes are the bounds of masks. There is no val list: val and
train are one there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.records import Finding, Study
from cxrlab.data.corpus import Corpus
from cxrlab.data.exports.export import IDS, ImageCopy, Layout
from cxrlab.data.exports.numbers import Numbered, numbered

_TABLE = (
    "Image Index", "Finding Labels", "Follow-up #", "Patient ID", "Patient Age", "Patient Sex", "View Position",
    "OriginalImage[Width", "Height]", "OriginalImagePixelSpacing[x", "y]",
)  # fmt: skip
_BOXES = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]", "", "", "")
_NO_FINDING = "No Finding"


def layout(corpus: Corpus) -> Layout:
    """Every study with an image and known labels, one image each."""
    chosen = [one for one in numbered(corpus.studies()) if one.study.images and own_labels(one.study) is not None]
    names = {one.study.id: f"{one.patient + 1:08d}_{one.visit:03d}.png" for one in chosen}
    train = [names[one.study.id] for one in chosen if one.study.split in ("train", "val")]
    test = [names[one.study.id] for one in chosen if one.study.split == "test"]
    return Layout(
        images=[ImageCopy(one.study, 0, f"images/{names[one.study.id]}") for one in chosen],
        texts={"train_val_list.txt": "".join(f"{name}\n" for name in train),
               "test_list.txt": "".join(f"{name}\n" for name in test)},
        tables={
            "BBox_List_2017.csv": [_BOXES, *_boxes(corpus, chosen, names)],
            IDS: [("Image Index", "id"), *((names[one.study.id], one.study.id) for one in chosen)],
            "Data_Entry_2017_v2020.csv": [_TABLE, *(_row(one, names[one.study.id]) for one in chosen)],
        },
    )  # fmt: skip


def own_labels(study: Study) -> list[str] | None:
    """The NIH labels that a study makes positive; None when nothing is known of it."""
    if study.findings is not None:
        there = {finding.observation for finding in study.findings if finding.present}
        return [name for name, row in NIH_CXR14.items() if there & set(row.observations)]
    known = {name: value for name, value in study.own_labels.items() if name in NIH_CXR14}
    return [name for name, value in known.items() if value == 1] if known else None


def _row(one: Numbered, name: str) -> Sequence[Any]:
    study = one.study
    labels = "|".join(own_labels(study) or [_NO_FINDING])
    age = "" if study.age is None else int(study.age)
    # The images' own size and pixel spacing are not known here; the real table has them.
    return (name, labels, one.visit, one.patient + 1, age, study.sex or "", study.images[0].view or "", "", "", "", "")


def _boxes(corpus: Corpus, chosen: Sequence[Numbered], names: dict[str, str]) -> Iterator[Sequence[Any]]:
    for one in chosen:
        for index, finding in enumerate(one.study.findings or ()):
            mask = corpus.mask(one.study, index)
            label = _label_of(finding)
            if mask is None or label is None or not mask.any():
                continue
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            left, top = int(columns[0]), int(rows[0])
            width, height = int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top
            yield (names[one.study.id], label, left, top, width, height, "", "", "")


def _label_of(finding: Finding) -> str | None:
    return next((name for name, row in NIH_CXR14.items() if finding.observation in row.observations), None)
