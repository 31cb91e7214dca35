"""Age, sex, view and size from the beginning of a DICOM film, for tables that do not tell them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cxrlab.core.errors import DataError
from cxrlab.data.dicom import DicomInfo, dicom_info, is_dicom
from cxrlab.data.sources.layouts import is_image
from cxrlab.data.sources.values import AGE_OUT_OF_RANGE, OLDEST

HEADER_UNREADABLE = "DICOM header not readable; age, sex and view left out"
# Headers of radiographs take a few kilobytes; reading whole images would take hours for a corpus.
_HEADER_BYTES = 1 << 18


def header_of(root: Path, image: str) -> tuple[DicomInfo | None, str | None]:
    """What the header tells, and a remark where a DICOM file could not be read or gives an age that nobody has.

    Args:
        root: The source folder.
        image: Path of the image in it.

    Neither for an image that is absent, lies outside or is no DICOM file. Whole years come out as whole numbers.
    """
    if not is_image(root, image):
        return None, None  # the engine tells of it
    try:
        with (root / image).open("rb") as stream:
            data = stream.read(_HEADER_BYTES)
    except OSError:
        return None, HEADER_UNREADABLE
    if not is_dicom(data):
        return None, None
    try:
        info = dicom_info(data, image)
    except DataError:
        return None, HEADER_UNREADABLE
    if info.age is None:
        return info, None
    if info.age > OLDEST:
        return replace(info, age=None), AGE_OUT_OF_RANGE
    return replace(info, age=int(info.age) if info.age == int(info.age) else round(info.age, 3)), None
