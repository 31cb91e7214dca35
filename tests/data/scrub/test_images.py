"""Images of every kind are examined and cleaned; the picture stays, text and names go."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
from burned_text import burn
from PIL import Image
from pydicom import Dataset, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
)

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import decode, encode_png
from cxrlab.data import deidentify_image as image_files
from cxrlab.data.burned_in_text import TextBox
from cxrlab.data.deidentify_image import Cleaned, Pseudonyms, TextRemains, blank, clean, examine, is_image
from cxrlab.data.images import decode_dicom

NAMES = Pseudonyms(b"k" * 32)
GROUND = np.rint(60 + 40 * np.outer(np.hanning(160), np.hanning(200))).astype(np.uint8)
TEXT = burn(GROUND, "SECRET ANNA", 16, (0.0, 0.0))


def dicom(pixels: np.ndarray, syntax: str = ExplicitVRLittleEndian, **elements: Any) -> bytes:
    image = Dataset()
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = syntax
    image.SOPClassUID, image.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1.1", "1.2.3.4"
    image.file_meta.MediaStorageSOPClassUID, image.file_meta.MediaStorageSOPInstanceUID = image.SOPClassUID, "1.2.3.4"
    image.PatientName, image.PatientID, image.StudyDate = "SECRET^ANNA", "SECRET-17", "20190512"
    image.Rows, image.Columns = pixels.shape[:2]
    image.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    image.PhotometricInterpretation = "MONOCHROME2" if pixels.ndim == 2 else "RGB"
    if pixels.ndim == 3:
        image.PlanarConfiguration = 0
    image.BitsAllocated = image.BitsStored = 8 * pixels.dtype.itemsize
    image.HighBit, image.PixelRepresentation = image.BitsStored - 1, int(pixels.dtype.kind == "i")
    swapped = pixels.astype(pixels.dtype.newbyteorder(">")) if syntax == ExplicitVRBigEndian else pixels
    image.PixelData = swapped.tobytes()
    for name, value in elements.items():
        setattr(image, name, value)
    image["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if syntax in (RLELossless, JPEG2000Lossless):
            image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            image.compress(syntax, generate_instance_uid=False)
        image.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def cleaned(data: bytes, *, markers: bool = False) -> Cleaned:
    return clean(data, "a", examine(data, "a"), NAMES, markers=markers)


def text_of(data: bytes) -> tuple[tuple[int, int, int, int], ...]:
    return examine(data, "a").text


@pytest.mark.parametrize(
    "pixels",
    [GROUND, GROUND.astype(np.uint16) * 16, GROUND.astype(np.int16) - 500, np.stack([GROUND, GROUND, 255 - GROUND], 2)],
    ids=["8", "16", "signed", "colour"],
)
def test_a_dicom_image_without_text_keeps_its_picture(pixels: np.ndarray) -> None:
    """What is shown is the same to the last bit; only the header is new."""
    data = dicom(pixels)
    copy = cleaned(data)
    assert (decode_dicom(copy.data, "b") == decode_dicom(data, "a")).all()
    assert b"SECRET" not in copy.data and b"20190512" not in copy.data and "SECRET-17" in copy.identifiers


@pytest.mark.parametrize(
    "elements",
    [
        {"WindowCenter": 90, "WindowWidth": 100},
        {"RescaleSlope": "2", "RescaleIntercept": "-7", "WindowCenter": 170, "WindowWidth": 200},
        {"PhotometricInterpretation": "MONOCHROME1"},
        {"PixelPaddingValue": 60},
    ],
    ids=["window", "rescale", "inverse", "padding"],
)
def test_what_changes_the_picture_stays_in_the_header(elements: dict[str, Any]) -> None:
    """Window, rescale, photometric direction and padding."""
    data = dicom(GROUND, **elements)
    assert (decode_dicom(cleaned(data).data, "b") == decode_dicom(data, "a")).all()


def test_lookup_tables_stay() -> None:
    """A table of words that reverses the greys still does, also from a file of the other byte order."""
    table = Dataset()
    table.LUTDescriptor, table.LUTExplanation = [256, 0, 16], "SECRET"
    table.LUTData = np.arange(255, -1, -1, dtype="<u2").tobytes()
    data = dicom(GROUND.astype(np.uint16), VOILUTSequence=[table])
    copy = cleaned(data).data
    assert (decode_dicom(copy, "b") == decode_dicom(data, "a")).all() and b"SECRET" not in copy


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless, ExplicitVRBigEndian], ids=["rle", "j2k", "big"])
def test_compressed_and_swapped_images_are_written_plainly(syntax: str) -> None:
    """Pixels are decoded, text is blanked, and nothing of the old stream is carried along."""
    data = dicom(TEXT.image.astype(np.uint16), syntax)
    copy = dcmread(io.BytesIO(cleaned(data).data))
    assert copy.file_meta.TransferSyntaxUID == ExplicitVRLittleEndian
    assert text_of(data) and not text_of(cleaned(data).data)


def test_a_jpeg_stream_is_decoded() -> None:
    """Baseline JPEG inside DICOM, as many consoles send it."""
    buffer = io.BytesIO()
    Image.fromarray(TEXT.image).save(buffer, "JPEG", quality=95)
    data = dicom(TEXT.image, JPEGBaseline8Bit, PixelData=encapsulate([buffer.getvalue()]))
    assert text_of(data) and not text_of(cleaned(data).data)


@pytest.mark.parametrize("kind", ["png", "png16", "jpeg", "dicom"])
def test_text_is_blanked_and_the_rest_is_not(kind: str) -> None:
    """No ink is left that can be seen; far from the box nothing moves but a JPEG's rounding."""
    buffer = io.BytesIO()
    Image.fromarray(TEXT.image).save(buffer, "JPEG", quality=90)
    data = {
        "png": encode_png(TEXT.image),
        "png16": encode_png(TEXT.image.astype(np.uint16) * 257),
        "jpeg": buffer.getvalue(),
        "dicom": dicom(TEXT.image, WindowCenter=128, WindowWidth=256),
    }[kind]
    before, after = (shown(one) for one in (data, cleaned(data).data))
    assert np.abs(after[TEXT.ink] - GROUND[TEXT.ink]).max() < 25
    assert np.abs(after[60:] - before[60:]).max() <= (2 if kind == "jpeg" else 0)
    assert not text_of(cleaned(data).data)


def shown(data: bytes) -> np.ndarray:
    if data[128:132] == b"DICM":
        return decode_dicom(data, "a") * 255
    pixels = decode(data, "a")
    return pixels.astype(float) / (257 if pixels.dtype == np.uint16 else 1)


def test_a_side_marker_stays_unless_it_is_requested() -> None:
    """It names a side, not a patient."""
    marked = burn(GROUND, "L", 30, (1.0, 0.0))
    data = encode_png(marked.image)
    found = examine(data, "a")
    assert found.markers and not found.text
    assert (decode(cleaned(data).data, "a") == marked.image).all()
    assert np.abs(decode(cleaned(data, markers=True).data, "a").astype(int)[marked.ink] - GROUND[marked.ink]).max() < 25


@pytest.mark.parametrize(
    ("said", "text", "kept"), [("NO", False, "NO"), ("NO", True, None), ("YES", False, None), (None, False, None)]
)
def test_burned_in_annotation_is_only_kept_where_it_is_true(said: str | None, text: bool, kept: str | None) -> None:
    """A detector that may miss is no reason to say NO where the source did not."""
    image = TEXT.image if text else GROUND
    data = dicom(image, **({"BurnedInAnnotation": said} if said else {}))
    header = dcmread(io.BytesIO(cleaned(data).data))
    assert header.get("BurnedInAnnotation") == kept and header.DeidentificationMethod


def test_hidden_bits_are_cleared() -> None:
    """Old files keep an overlay in the bits above those stored; it may hold the name."""
    data = dicom(GROUND.astype(np.uint16) | 0x8000, BitsStored=12, HighBit=11)
    header = dcmread(io.BytesIO(cleaned(data).data))
    assert header.pixel_array.max() <= 0x0FFF


def test_blank_takes_the_median_of_the_rim() -> None:
    """A rim of 3 pixels around the box, of two greys, the more frequent of which wins; colours channel by channel."""
    pixels = np.full((20, 20), 7, np.uint8)
    pixels[:, 0] = 200
    pixels[8:12, 8:12] = 255
    blank(pixels, (8, 8, 12, 12))
    assert (pixels[:, 1:] == 7).all()
    colour = np.zeros((9, 9, 3), np.uint8)
    colour[...] = (1, 2, 3)
    colour[4, 4] = 250
    blank(colour, (4, 4, 5, 5))
    assert colour[4, 4].tolist() == [1, 2, 3]


def test_blanking_a_whole_image_leaves_one_grey() -> None:
    """A box without a rim takes the middle of the image."""
    pixels = np.arange(9, dtype=np.uint8).reshape(3, 3)
    blank(pixels, (0, 0, 3, 3))
    assert (pixels == 4).all()


def test_text_that_stays_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image on which text is found however often it is blanked must not pass as clean."""
    monkeypatch.setattr(image_files, "text_boxes", lambda image: (TextBox((0, 0, 4, 4)),))
    with pytest.raises(TextRemains, match="3 passes"):
        cleaned(encode_png(GROUND))


def test_a_mask_has_no_text() -> None:
    """The outline of a finding may look like a letter and must not be touched."""
    data = encode_png(TEXT.ink)
    assert examine(data, "a", mask=True).boxes == ()


@pytest.mark.parametrize(
    "data",
    [
        dicom(GROUND)[:400],
        dicom(GROUND, NumberOfFrames=3),
        dicom(GROUND, Rows=60000, Columns=60000),
        dicom(GROUND, DeflatedExplicitVRLittleEndian),
        b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
    ],
    ids=["cut", "frames", "bomb", "deflated", "png"],
)
def test_what_cannot_be_read_in_full_is_refused(data: bytes) -> None:
    """Cut, of several frames, of a monstrous size, deflated, no picture."""
    with pytest.raises(DataError):
        examine(data, "a")


def test_images_are_recognised_by_content() -> None:
    """DICOM with and without preamble, PNG, JPEG; nothing else."""
    assert is_image(dicom(GROUND)) and is_image(encode_png(GROUND)) and not is_image(b"id,name\n1,Anna\n")
