"""One image: what in its file may name a patient, and a copy of it without."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cxrlab.core.codec import PNG_START, decode
from cxrlab.core.errors import DataError
from cxrlab.data.dicom import check_single_image, is_dicom, parse_dicom, sound_header, stored_pixels
from cxrlab.data.dicom_display import displayed
from cxrlab.data.images import Picture, grey_image
from cxrlab.data.scrub.burned_in import Corners, TextBox, text_boxes
from cxrlab.data.scrub.headers import burned_in, clean_header, identifiers, private_tags, telling_tags
from cxrlab.data.scrub.pictures import clean_picture, is_picture, telling_parts
from cxrlab.data.scrub.pseudonyms import Pseudonyms

if TYPE_CHECKING:
    from pydicom import Dataset

    from cxrlab.data.grey import ImageArray

Shown = Callable[[Picture], "ImageArray"]

# How often an image is looked at again after its text was blanked.
PASSES = 3


class StillText(DataError):
    """An image that shows text although what was found was blanked again and again."""


class NotOneImage(DataError):
    """A DICOM file that is no single image: a report, several frames."""


@dataclass(frozen=True)
class Examined:
    """What a file may tell, by name and place, never by value.

    Args:
        kind: "dicom", "png" or "jpeg".
        tags: Header elements, chunks or notes that hold something.
        private: Elements of private groups.
        burned_in: What the header says of text in the pixels: YES, NO or None.
        boxes: Burned-in text.
    """

    kind: str
    tags: tuple[str, ...]
    private: int = 0
    burned_in: str | None = None
    boxes: tuple[TextBox, ...] = ()

    @property
    def text(self) -> tuple[Corners, ...]:
        """Boxes of text."""
        return tuple(box.corners for box in self.boxes if not box.marker)

    @property
    def markers(self) -> tuple[Corners, ...]:
        """Boxes of side markers."""
        return tuple(box.corners for box in self.boxes if box.marker)


@dataclass(frozen=True)
class Cleaned:
    """A file without what may name a patient.

    Args:
        data: Its bytes.
        identifiers: Values of the old header that may stand in the file's name; never to be shown.
    """

    data: bytes
    identifiers: tuple[str, ...] = ()


def is_image(data: bytes) -> bool:
    """Whether bytes look like an image that can be examined: DICOM, PNG or JPEG, by content."""
    return is_picture(data) or is_dicom(data)


def examine(data: bytes, name: str, *, mask: bool = False) -> Examined:
    """Look at header and pixels of an image; one that cannot be read in full is a `DataError`.

    Args:
        data: The file.
        name: What to call it in an error.
        mask: It is the outline of a finding, in which shapes are no text.
    """
    if is_picture(data):
        kind = "png" if data.startswith(PNG_START) else "jpeg"
        pixels = decode(data, name)
        return Examined(kind, telling_parts(data, name), boxes=() if mask else text_boxes(grey_image(pixels)))
    header = parse_dicom(data, name)
    with sound_header(name):
        try:
            check_single_image(header, name)
        except DataError as error:
            raise NotOneImage(str(error)) from error
        image = displayed(header, stored_pixels(header, name), name)
        boxes = text_boxes(image)
        return Examined("dicom", telling_tags(header), private_tags(header), burned_in(header), boxes)


def clean(data: bytes, name: str, found: Examined, pseudonyms: Pseudonyms, *, markers: bool) -> Cleaned:
    """A copy of an image that was examined, with a new header and its text blanked.

    Args:
        data: The file.
        name: What to call it in an error.
        found: What `examine` said of it.
        pseudonyms: For UIDs and the patient's number.
        markers: Blank side markers too.

    An image that shows text still after some passes is a `StillText`.
    """
    boxes = [box.corners for box in found.boxes if markers or not box.marker]
    if found.kind != "dicom":
        if not boxes:
            return Cleaned(clean_picture(data, name))
        pixels = np.array(decode(data, name))
        _blank_all(pixels, boxes, name, grey_image, markers=markers)
        return Cleaned(clean_picture(data, name, pixels))
    header = parse_dicom(data, name)
    with sound_header(name):
        stored = np.array(stored_pixels(header, name))
        if boxes:
            _blank_all(stored, boxes, name, lambda pixels: displayed(header, pixels, name), markers=markers)
        fresh = clean_header(header, pseudonyms)
        if found.burned_in == "NO" and not found.text:
            fresh.BurnedInAnnotation = "NO"
        return Cleaned(_dicom_bytes(fresh, stored), identifiers(header))


def blank(pixels: Picture, box: Corners) -> None:
    """Fill a box with what surrounds it: the median of a rim around it, in each channel."""
    left, top, right, bottom = box
    rim = 3
    area = pixels[max(0, top - rim) : bottom + rim, max(0, left - rim) : right + rim]
    around = np.ones(area.shape[:2], bool)
    first, start = top - max(0, top - rim), left - max(0, left - rim)
    around[first : first + bottom - top, start : start + right - left] = False
    rest = area[around] if around.any() else pixels.reshape(-1, *pixels.shape[2:])
    # The lower middle value: a mean of two would be a grey, or an index of a palette, that the image does not have.
    pixels[top:bottom, left:right] = np.sort(rest, axis=0)[(len(rest) - 1) // 2]


def _blank_all(pixels: Picture, boxes: Sequence[Corners], name: str, shown: Shown, *, markers: bool) -> None:
    """Blank boxes and whatever comes to light then."""
    for _ in range(PASSES):
        for box in boxes:
            blank(pixels, box)
        boxes = [box.corners for box in text_boxes(shown(pixels)) if markers or not box.marker]
        if not boxes:
            return
    raise StillText(f"{name} shows text after {PASSES} passes of blanking; look at it and leave it out.")


def _dicom_bytes(header: Dataset, stored: Picture) -> bytes:
    """A DICOM file with these pixels, uncompressed."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import UID, ExplicitVRLittleEndian

    bits = 8 * stored.dtype.itemsize
    header.Rows, header.Columns = stored.shape[:2]
    header.BitsAllocated = bits
    header.BitsStored = min(int(header.get("BitsStored") or bits), bits)
    header.HighBit = header.BitsStored - 1
    header.PixelRepresentation = int(stored.dtype.kind == "i")
    header.SamplesPerPixel = 1 if stored.ndim == 2 else stored.shape[2]
    if stored.ndim == 3:
        # The decoder has turned whatever colours the file used into these.
        header.PhotometricInterpretation, header.PlanarConfiguration = "RGB", 0
    data = np.ascontiguousarray(stored).astype(stored.dtype.newbyteorder("<")).tobytes()
    header.PixelData = data + b"\0" * (len(data) % 2)
    header["PixelData"].VR = "OB" if bits == 8 else "OW"
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = UID(str(header.SOPClassUID))
    meta.MediaStorageSOPInstanceUID = UID(str(header.SOPInstanceUID))
    header.file_meta = meta
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        header.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()
