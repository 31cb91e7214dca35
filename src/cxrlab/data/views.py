"""Which film of a study is read: corpora keep every view, a report model takes one."""

from __future__ import annotations

from cxrlab.core.errors import DataError
from cxrlab.core.records import Study
from cxrlab.core.vocabulary import View

# PA before AP: it is taken in the X-ray room at full breath and shows the heart in its true size.
FRONTAL = (View.PA, View.AP, View.FRONTAL)


def frontal(study: Study) -> int:
    """Index of the frontal film: the first PA, else the first AP, else the first of unknown direction.

    A study without any is a `DataError`: a lateral film would be read as a frontal one without a word.
    """
    for view in FRONTAL:
        for index, image in enumerate(study.images):
            if image.view is view:
                return index
    views = ", ".join(image.view.value for image in study.images)
    has = f"only the views {views}" if views else "no image"
    raise DataError(f"study '{study.id}' has {has}; a frontal film (PA, AP or frontal) is needed.")
