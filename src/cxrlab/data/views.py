"""Which image of a study a model is shown: corpora keep every view, a model takes one."""

from __future__ import annotations

from typing import NamedTuple

from cxrlab.core.errors import DataError
from cxrlab.core.records import Study
from cxrlab.core.vocabulary import View
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import ImageArray

# PA before AP: it is taken in the X-ray room at full breath and shows the heart in its true size.
FRONTAL = (View.PA, View.AP, View.FRONTAL)


def frontal(study: Study) -> int:
    """Index of the frontal image: the first PA, else the first AP, else the first of unknown direction.

    A study without any is a `DataError`: a lateral image would be read as a frontal one without a word. An image whose
    view is unknown may be lateral, so it does not count.
    """
    for view in FRONTAL:
        for index, image in enumerate(study.images):
            if image.view is view:
                return index
    views = ", ".join("unknown" if image.view is None else image.view for image in study.images)
    has = f"only the views {views}" if views else "no image"
    state = " State the view of each image in studies.jsonl." if "unknown" in views else ""
    raise DataError(f"study '{study.id}' has {has}; a frontal image (PA, AP or frontal) is needed.{state}")


class Shown(NamedTuple):
    """The number of an image among those of its study, and whether it is shown in colour."""

    number: int
    colour: bool


def shown(study: Study) -> Shown:
    """What training and evaluation alike show of a study: the frontal image in grey, of a caption its picture in colour.

    A `DataError` where there is neither.
    """
    if study.caption is None:
        return Shown(frontal(study), colour=False)
    if not study.images:
        raise DataError(f"study '{study.id}' has a caption and no image.")
    return Shown(0, colour=True)


def image_of(corpus: Corpus, study: Study, size: int | None = None) -> ImageArray:
    """The image [H, W], or the picture of a caption [H, W, 3], in [0, 1]; fitted into size × size where one is given."""
    number, colour = shown(study)
    return (corpus.rgb if colour else corpus.image)(study, number, size)
