"""DICOM images: every convention of a header ends in the same picture, and what is broken is refused by name."""

from __future__ import annotations

import base64
import io
import os
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydicom import Dataset, Sequence, dcmwrite
from pydicom.dataset import FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.pixels.processing import apply_windowing
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import View
from cxrlab.data.images import decode_dicom, dicom_info, is_dicom, load_image, load_rgb, window_values

RAMP = np.arange(64, dtype=np.uint16).reshape(8, 8) * 65  # 0 … 4095, in equal steps


def header(pixels: np.ndarray, **tags: Any) -> Dataset:
    """A minimal 12-bit MONOCHROME2 image; tags replace or add elements."""
    image = Dataset()
    image.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    image.SOPInstanceUID = "1.2.3.4"
    image.Rows, image.Columns = pixels.shape[:2]
    image.SamplesPerPixel = 1
    image.PhotometricInterpretation = "MONOCHROME2"
    image.BitsAllocated = pixels.dtype.itemsize * 8
    image.BitsStored = 12 if pixels.dtype.itemsize == 2 else 8
    image.HighBit = image.BitsStored - 1
    image.PixelRepresentation = int(pixels.dtype.kind == "i")
    image.PixelData = pixels.tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some tests need values that the standard forbids
        for name, value in tags.items():
            setattr(image, name, value)
    image["PixelData"].VR = "OW"
    return image


def written(image: Dataset, syntax: str = ExplicitVRLittleEndian, *, preamble: bool = True) -> bytes:
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = syntax
    image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
    image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcmwrite(buffer, image, enforce_file_format=preamble)
    return buffer.getvalue()


def shown(pixels: np.ndarray = RAMP, **tags: Any) -> np.ndarray:
    return decode_dicom(written(header(pixels, **tags)), "a.dcm")


WINDOW = {"WindowCenter": 2048, "WindowWidth": 4096}
FUZZED = written(header(RAMP, **WINDOW, RescaleSlope=1, RescaleIntercept=0, PixelPaddingValue=0, ViewPosition="PA"))


def test_a_window_over_the_whole_range_is_the_stored_ramp() -> None:
    """Centre 2048 and width 4096 map 0 to 0 and 4095 to 1, linearly (PS3.3 C.11.2.1.2)."""
    image = shown(**WINDOW)
    assert image.dtype == np.float32 and image.shape == (8, 8)
    assert np.allclose(image, RAMP / 4095, atol=1e-6)


def test_monochrome1_is_turned() -> None:
    """In MONOCHROME1 the least value is white; every later part expects bone to be bright."""
    assert np.allclose(shown(**WINDOW, PhotometricInterpretation="MONOCHROME1"), 1 - RAMP / 4095, atol=1e-6)


def test_inverse_shape_and_monochrome1_turn_it_once() -> None:
    """A digital radiograph states both for one and the same thing; turning twice would undo it."""
    alone = shown(**WINDOW, PresentationLUTShape="INVERSE")
    both = shown(**WINDOW, PresentationLUTShape="INVERSE", PhotometricInterpretation="MONOCHROME1")
    assert np.array_equal(alone, both) and np.allclose(alone, 1 - RAMP / 4095, atol=1e-6)
    assert np.allclose(shown(**WINDOW, PresentationLUTShape="IDENTITY"), RAMP / 4095, atol=1e-6)


@pytest.mark.parametrize("shape", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_windows_agree_with_pydicom(shape: str) -> None:
    """An independent implementation of the same formula, brought from its output range to [0, 1]."""
    image = header(RAMP, WindowCenter=1500, WindowWidth=900, VOILUTFunction=shape)
    expected = apply_windowing(RAMP, image) / 4095
    assert np.allclose(shown(WindowCenter=1500, WindowWidth=900, VOILUTFunction=shape), expected, atol=1e-6)


def test_the_standards_own_examples_of_a_linear_window() -> None:
    """PS3.3: centre 2048, width 4096 → 0 and 4095 are the ends; centre 2048, width 1 → a threshold at 2047/2048."""
    assert window_values(np.array([0.0, 4095.0]), 2048, 4096).tolist() == [0.0, 1.0]
    assert window_values(np.array([2047.0, 2048.0]), 2048, 1).tolist() == [0.0, 1.0]
    assert window_values(np.array([-1e9, 10.0, 1e9]), 10, 20, "SIGMOID").tolist() == [0.0, 0.5, 1.0]


def test_the_first_of_several_windows_is_used() -> None:
    """Viewers open an image with its first window."""
    several = shown(WindowCenter=[2048, 100], WindowWidth=[4096, 50])
    assert np.array_equal(several, shown(**WINDOW))


def test_the_rescale_comes_before_the_window() -> None:
    """With slope 2 and intercept -1000 the window that spans the values is centred at 3096, 8192 wide."""
    image = shown(RescaleSlope=2, RescaleIntercept=-1000, WindowCenter=3095.5, WindowWidth=8191)
    assert np.allclose(image, RAMP / 4095, atol=1e-3)


def test_signed_values() -> None:
    """Stored -2048 … 2047 with a window around 0 is the same ramp."""
    image = shown(RAMP.astype(np.int16) - 2048, WindowCenter=0, WindowWidth=4096)
    assert np.allclose(image, RAMP / 4095, atol=1e-6)


def test_a_lookup_table_goes_before_a_window() -> None:
    """The table doubles dark values (entry k is min(2k, 4095)) and its brightest entry is white."""
    table = Dataset()
    table.LUTDescriptor = [4096, 0, 16]
    table.LUTData = np.minimum(np.arange(4096) * 2, 4095).astype("<u2").tobytes()
    table["LUTData"].VR = "OW"
    image = shown(VOILUTSequence=Sequence([table]), WindowCenter=1, WindowWidth=1)
    assert np.allclose(image, np.minimum(RAMP * 2.0, 4095) / 4095, atol=1e-6)


def test_without_a_window_a_deep_image_is_stretched() -> None:
    """Values 1000 … 1063 use a sixty-fourth of 12 bits; undisturbed they would show as flat grey."""
    image = shown(np.arange(1000, 1064, dtype=np.uint16).reshape(8, 8))
    assert image.min() == 0.0 and image.max() == 1.0 and abs(float(image.mean()) - 0.5) < 0.01


EIGHT = np.arange(50, 114, dtype=np.uint8).reshape(8, 8)


@every_row(
    "tags",
    [
        {},
        {"WindowCenter": "", "WindowWidth": ""},
        {"WindowCenter": 5, "WindowWidth": 0},
        {"WindowCenter": "nan", "WindowWidth": 10},
        {"WindowCenter": 5, "WindowWidth": "inf"},
        {"WindowCenter": 5, "WindowWidth": "nan", "VOILUTFunction": "SIGMOID"},
        {"RescaleSlope": 1, "RescaleIntercept": 0},
        {"RescaleSlope": "1.0", "RescaleIntercept": ""},
    ],
)
def test_without_a_usable_window_eight_bits_are_taken_as_they_are(tags: dict[str, Any]) -> None:
    """8-bit images were prepared for a screen; stretching them would change their exposure. A width of 0 or a number
    that is none makes no window, and a rescale that changes nothing is none."""
    assert np.allclose(shown(EIGHT, **tags), EIGHT / 255, atol=1e-6)


def test_a_rescale_that_changes_eight_bits_means_that_they_were_not_ready() -> None:
    """With slope 2 the values 100 … 226 are in a unit of their own and are stretched over the screen."""
    image = shown(EIGHT, RescaleSlope=2, RescaleIntercept=0)
    assert image.min() == 0.0 and image.max() == 1.0


def test_a_range_too_wide_for_numbers_is_refused() -> None:
    """Ends of -1.6e308 and 1.6e308 are finite and their difference is not: 0 / 0 would be an image of NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = written(header(RAMP, RescaleSlope="8e304", RescaleIntercept="-1.64e308"))
        with pytest.raises(DataError, match="finite"):
            decode_dicom(data, "a.dcm")


def lookup(entries: int, data: bytes, bits: int, first: int = 0) -> Sequence:
    """A lookup table as it stands in a header."""
    table = Dataset()
    table.LUTDescriptor = [entries % 65536, first, bits]
    table.LUTData = data
    table["LUTData"].VR = "OW"
    return Sequence([table])


def test_a_table_of_bytes_is_unpacked_by_its_bits() -> None:
    """Eight-bit entries stand one in a byte (with a pad byte where their number is odd) or one in a word; 255 - k."""
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for entries in (64, 63):
        falling = 255 - np.minimum(np.arange(entries), 62)
        packed = falling.astype(np.uint8).tobytes() + b"\0" * (entries % 2)
        wide = falling.astype("<u2").tobytes()
        for data in (packed, wide):
            image = shown(pixels, VOILUTSequence=lookup(entries, data, 8))
            assert np.allclose(image, (255 - np.minimum(pixels, 62)) / 255, atol=1e-6)


def test_values_outside_a_table_take_its_ends() -> None:
    """The table begins at 1000 and has 3 entries: everything darker is the first, everything brighter the last."""
    table = lookup(3, np.array([10, 20, 40], "<u2").tobytes(), 16, first=1000)
    image = shown(np.array([[0, 1000, 1001, 1002, 4095]], np.uint16), VOILUTSequence=table)
    assert np.allclose(image, [[0.25, 0.25, 0.5, 1.0, 1.0]])


@pytest.mark.parametrize("where", ["VOILUTSequence", "ModalityLUTSequence"])
@pytest.mark.parametrize(("entries", "size", "bits"), [(4096, 100, 16), (65536, 8192, 16), (64, 40, 8), (64, 128, 60)])
def test_a_table_shorter_than_declared_is_refused(where: str, entries: int, size: int, bits: int) -> None:
    """Cut tables and impossible descriptors; 0 stands for 65,536 entries."""
    with pytest.raises(DataError, match=f"a.dcm declares a lookup table of {entries} entries"):
        shown(**{where: lookup(entries, bytes(size), bits)})


def test_a_modality_table_comes_before_the_window() -> None:
    """Entry k of the table is 4095 - k, so the ramp is turned before it is windowed."""
    table = lookup(4096, np.arange(4096)[::-1].astype("<u2").tobytes(), 16)
    table[0].ModalityLUTType = "US"
    assert np.allclose(shown(**WINDOW, ModalityLUTSequence=table), 1 - RAMP / 4095, atol=1e-6)


def test_a_deflated_file_is_refused_before_it_is_unpacked() -> None:
    """40 MB of zeros deflate to 40 kB; unpacking must not even begin, for the pixels or for the header."""
    data = written(header(np.zeros((4000, 5000), np.uint16), **WINDOW), DeflatedExplicitVRLittleEndian)
    assert len(data) < 100_000
    tracemalloc.start()
    for read in (decode_dicom, dicom_info):
        with pytest.raises(DataError, match="a.dcm is a deflated DICOM file"):
            read(data, "a.dcm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_padding_is_black_and_does_not_count() -> None:
    """A bright padding border must neither glow nor squeeze the image's own range."""
    pixels = RAMP.copy()
    pixels[0] = 4095
    image = shown(pixels, PixelPaddingValue=4095)
    assert (image[0] == 0).all() and image[7, 6] == 1.0
    turned = shown(pixels, PixelPaddingValue=4000, PixelPaddingRangeLimit=4095, PhotometricInterpretation="MONOCHROME1")
    assert (turned[0] == 0).all()


def test_overlay_bits_above_the_stored_ones_are_dropped() -> None:
    """Old files keep drawings in bits 12–15; left in, they would be the brightest thing on the image."""
    pixels = RAMP.copy()
    pixels[3, 3] |= 0x8000
    assert np.array_equal(shown(pixels, **WINDOW), shown(**WINDOW))


def test_colour_becomes_luminance() -> None:
    """Pure red, green and blue weigh 0.299, 0.587 and 0.114."""
    pixels = np.zeros((1, 4, 3), np.uint8)
    pixels[0, [0, 1, 2], [0, 1, 2]] = 255
    image = shown(pixels, SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0)
    assert np.allclose(image, [[0.299, 0.587, 0.114, 0.0]], atol=1e-6)


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_lossless_compression_changes_nothing(syntax: str) -> None:
    """The same image, compressed, must decode to the same picture."""
    noise = np.random.default_rng(0).integers(0, 4096, (80, 64), dtype=np.uint16)
    image = header(noise, **WINDOW)
    plain = decode_dicom(written(image), "a.dcm")
    image.compress(syntax, generate_instance_uid=False)
    assert np.array_equal(decode_dicom(written(image, syntax), "a.dcm"), plain)


def encapsulated(pixels: np.ndarray, stream: bytes, syntax: str, **tags: Any) -> bytes:
    image = header(pixels, **tags, PixelData=encapsulate([stream]))
    image["PixelData"].VR = "OB"
    image["PixelData"].is_undefined_length = True
    return written(image, syntax)


def lossless_jpeg(pixels: np.ndarray) -> bytes:
    """Lossless JPEG of 12-bit pixels, as small as an encoder can be: each pixel is coded by its difference
    from the left one (from the one above in the first column), every difference size by a 5-bit code."""
    padded = np.pad(pixels.astype(int), ((1, 0), (1, 0)))
    padded[1:, 0] = padded[:-1, 1]
    padded[1, 0] = 2048
    bits = ""
    for step in np.diff(padded[1:], axis=1).ravel():
        size = int(abs(step)).bit_length()
        low = step if step >= 0 else step + (1 << size) - 1
        bits += f"{size:05b}" + (f"{low:0{size}b}" if size else "")
    bits += "1" * (-len(bits) % 8)
    body = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
    height, width = pixels.shape
    table = bytes([0, 0, 0, 0, 0, 17, *[0] * 11, *range(17)])
    frame = bytes([12, *height.to_bytes(2, "big"), *width.to_bytes(2, "big"), 1, 1, 0x11, 0])
    scan = bytes([1, 1, 0, 1, 0, 0])
    parts = [
        b"\xff" + bytes([mark]) + (len(data) + 2).to_bytes(2, "big") + data
        for mark, data in ((0xC4, table), (0xC3, frame), (0xDA, scan))
    ]
    return b"\xff\xd8" + b"".join(parts) + body + b"\xff\xd9"


@pytest.mark.parametrize("syntax", [JPEGLossless, JPEGLosslessSV1])
def test_lossless_jpeg_changes_nothing(syntax: str) -> None:
    """The commonest compression of radiograph archives; the stream is made above from the standard's rules."""
    noise = np.random.default_rng(1).integers(0, 4096, (20, 24), dtype=np.uint16)
    data = encapsulated(noise, lossless_jpeg(noise), syntax, **WINDOW)
    assert np.array_equal(decode_dicom(data, "a.dcm"), shown(noise, **WINDOW))


# JPEG-LS of the 16 x 16 picture (17xy + 31x + 7y) mod 4096, made once with an independent encoder.
JPEG_LS = (
    "|JeWc01FHN5C9MX0TBTI+5iXv0RR910KWbA_uroVdHwh2zg}~=DK9QCFD@-CD=H}{CooRjnAq^#*woO>$i%?BxIme)8JLXt^ziKH<lx-c)"
    "L@;#NywylVlbEs<>KjZwps|&Hzqa{6pTiLIhe|1F_?@eHCqvxh{*+mLAcs%HJXhkfel8a1_B4-ad_NxIh>9s19+yHN2RB(ghHW^=z2V!4("
    "DNwMBNn~H9ZoGMx)Sxe?K2bH4<)4ZouF`C>Ra`0E{Ath8l>pBs5lLb|V#x$6**u63sM_VnSk=xZ3(nE}KuHXr^(c_0Nlt)Y%<KrBf-?MHN"
    "ppysg<<CSv1j=`^}+K8dH|T~OquGZ9sl*o;;)9e^}|d;i%"
)


def test_jpeg_ls_changes_nothing() -> None:
    """Every pixel of the formula comes back."""
    y, x = np.mgrid[:16, :16]
    pixels = ((17 * x * y + 31 * x + 7 * y) % 4096).astype(np.uint16)
    data = encapsulated(pixels, base64.b85decode(JPEG_LS), JPEGLSLossless, **WINDOW)
    assert np.array_equal(decode_dicom(data, "a.dcm"), shown(pixels, **WINDOW))


def test_jpeg_baseline_is_close() -> None:
    """Lossy at quality 95: within a few grey steps on a smooth image."""
    smooth = np.tile(np.arange(64, dtype=np.uint8) * 4, (64, 1))
    buffer = io.BytesIO()
    Image.fromarray(smooth).save(buffer, "JPEG", quality=95)
    data = encapsulated(smooth, buffer.getvalue(), JPEGBaseline8Bit)
    assert np.abs(decode_dicom(data, "a.dcm") - smooth / 255).max() < 0.03


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
def test_a_file_without_preamble_is_recognised(syntax: str) -> None:
    """Old archives drop the first 132 bytes; the picture is all there."""
    data = written(header(RAMP, **WINDOW), syntax)
    assert is_dicom(data[132:]) and np.allclose(decode_dicom(data[132:], "a"), RAMP / 4095, atol=1e-6)
    bare = written(header(RAMP, **WINDOW), syntax)
    at = bare.index(b"\x08\x00\x16\x00")
    assert is_dicom(bare[at:]) and np.allclose(decode_dicom(bare[at:], "a"), RAMP / 4095, atol=1e-6)


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n" + bytes(200), b"hello " * 50, bytes(300), b"\x08\x00" * 80])
def test_other_bytes_are_not_taken_for_dicom(data: bytes) -> None:
    """Force-reading anything would turn text into an empty header."""
    assert not is_dicom(data)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.95, 0.999])
def test_a_cut_file_is_refused_by_name(share: float) -> None:
    """Wherever the download stopped, the message names the file."""
    data = written(header(np.tile(RAMP, (8, 8)), **WINDOW))
    with pytest.raises(DataError, match=r"^images/a\.dcm "):
        decode_dicom(data[: int(len(data) * share)], "images/a.dcm")


def test_what_is_no_single_image_is_refused() -> None:
    """No pixels, several frames, no size, one grey value: each has its own sentence."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"PixelData": None}, "without pixels"),
        ({"NumberOfFrames": 3}, "3 frames"),
        ({"Rows": None}, "'Rows'"),
        ({"Rows": 60000, "Columns": 60000}, "limit"),
    ]
    for tags, message in cases:
        image = header(RAMP)
        for name, value in tags.items():
            delattr(image, name) if value is None else setattr(image, name, value)
        with pytest.raises(DataError, match=message):
            decode_dicom(written(image), "a.dcm")
    with pytest.raises(DataError, match="single grey value"):
        shown(np.full((8, 8), 700, np.uint16))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_give_a_image_or_a_sentence(data: st.DataObject) -> None:
    """Whatever bytes are changed, no other exception comes out, and an image is finite and in [0, 1]."""
    image = bytearray(FUZZED)
    for _ in range(data.draw(st.integers(1, 6))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            shown_image = decode_dicom(bytes(image), "a.dcm")
            dicom_info(bytes(image), "a.dcm")
        except DataError as error:
            assert str(error).startswith("a.dcm ")
        else:
            assert np.isfinite(shown_image).all() and shown_image.min() >= 0.0 and shown_image.max() <= 1.0


def test_a_rescale_that_gives_nothing_is_refused() -> None:
    """An image of NaN would poison every mean that it enters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = written(header(RAMP, RescaleSlope="nan", RescaleIntercept="0"))
    with pytest.raises(DataError, match="finite"):
        decode_dicom(data, "a.dcm")


def test_a_palette_is_looked_up() -> None:
    """Index 1 is pure green in the tables, so its luminance is 0.587; index 0 is black."""
    image = header(np.array([[0, 1]], np.uint8), PhotometricInterpretation="PALETTE COLOR")
    for name, words in (("Red", [0, 0]), ("Green", [0, 65535]), ("Blue", [0, 0])):
        setattr(image, f"{name}PaletteColorLookupTableDescriptor", [2, 0, 16])
        setattr(image, f"{name}PaletteColorLookupTableData", np.array(words, "<u2").tobytes())
    assert np.allclose(decode_dicom(written(image), "a.dcm"), [[0.0, 0.587]], atol=1e-3)


def test_dicom_through_the_common_reader(tmp_path: Path) -> None:
    """A DICOM file without an ending is recognised by its content, as an image and in three channels."""
    path = tmp_path / "1.2.840.113"
    path.write_bytes(written(header(RAMP, **WINDOW)))
    assert np.allclose(load_image(path), RAMP / 4095, atol=1e-6)
    assert load_rgb(path, size=4).shape == (4, 4, 3)


def test_scrambled_compressed_pixels_are_refused() -> None:
    """A decoder's own exception must not reach the user."""
    image = header(RAMP)
    written(image)
    image.compress(RLELossless, generate_instance_uid=False)
    image.PixelData = image.PixelData[:20] + bytes(len(image.PixelData) - 20)
    with pytest.raises(DataError, match="cannot be decoded"):
        decode_dicom(written(image, RLELossless), "a.dcm")


def test_info_reads_what_a_corpus_needs_and_no_name() -> None:
    """View, age in years, sex and spacing; the record has no place for a name."""
    image = header(RAMP, ViewPosition="AP", PatientAge="018M", PatientSex="F", ImagerPixelSpacing=[0.14, 0.14])
    image.PatientName = "Someone^Real"
    info = dicom_info(written(image), "a.dcm")
    assert (info.view, info.age, info.sex, info.rows, info.spacing_mm) == (View.AP, 1.5, "F", 8, 0.14)
    assert "Someone" not in repr(info)


@pytest.mark.parametrize(
    ("position", "view"),
    [("PA", View.PA), ("LL", View.LATERAL), ("LATERAL", View.LATERAL), ("AP LLD", View.OTHER), ("", None)],
)
def test_views(position: str, view: View | None) -> None:
    """Decubitus images are neither plain AP nor lateral; an empty word is unknown, not frontal."""
    assert dicom_info(written(header(RAMP, ViewPosition=position)), "a").view is view


@pytest.mark.parametrize(("text", "years"), [("062Y", 62.0), ("62", 62.0), ("006M", 0.5), ("", None), ("old", None)])
def test_ages(text: str, years: float | None) -> None:
    """Some archives leave the unit out and mean years."""
    image = header(RAMP)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image.PatientAge = text
    assert dicom_info(written(image), "a").age == years


@pytest.mark.real_data
def test_real_images() -> None:
    """Two published JPEG-compressed images that differ in one tag alone, MONOCHROME1 and MONOCHROME2:
    one is the negative of the other, and in the true one the mediastinum is brighter than the right lung."""
    root = os.environ.get("CXRLAB_REAL_DATA")
    if not root or not (Path(root) / "dicom").is_dir():
        pytest.skip("CXRLAB_REAL_DATA does not name a folder with dicom/")
    files = {file.name: file.read_bytes() for file in (Path(root) / "dicom").glob("*.dcm")}
    negative = decode_dicom(files.pop("Fake_MONOHR1.dcm"), "negative")
    name, data = next(iter(files.items()))
    image = decode_dicom(data, name)
    assert image.shape == (dicom_info(data, name).rows, dicom_info(data, name).columns)
    assert np.allclose(image, 1 - negative, atol=1e-6)
    assert image[400:640, 460:560].mean() > image[400:640, 150:330].mean() + 0.1
