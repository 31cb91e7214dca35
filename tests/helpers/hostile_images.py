"""Image files that a server must refuse: decompression bombs, damaged files and other formats, each with a name.

Each file is small; the harm is in decoding it. Many contain the word `PLANTED`, which must not appear in any response
or log.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from PIL import Image
from pydicom import dcmwrite
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, RLELossless
from serving_models import image_of

PLANTED = "quokka"
IMAGE = image_of(5, 24)
SHOWN = Image.fromarray(IMAGE)
PNG_START = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR, PALETTE, GREY_ALPHA, COLOUR_ALPHA = 0, 2, 3, 4, 6

Files = dict[str, bytes]


def saved(image: Image.Image, kind: str, **settings: Any) -> bytes:
    """An image as a file."""
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def head(width: int, height: int, bits: int = 8, colour: int = GREY, *more: int) -> bytes:
    """The header chunk of a PNG; `more` are the compression, the filter and the interlacing."""
    return chunk(b"IHDR", struct.pack(">IIBB", width, height, bits, colour) + bytes((*more, 0, 0, 0)[:3]))


def png(*chunks: bytes) -> bytes:
    """A PNG of these chunks and its end."""
    return b"".join([PNG_START, *chunks, chunk(b"IEND")])


ROWS = zlib.compress(b"".join(b"\0" + row.tobytes() for row in IMAGE))
PIXELS = chunk(b"IDAT", ROWS)
HEAD = head(24, 24)
EMPTY = chunk(b"IDAT", zlib.compress(b""))


def png_bombs() -> Files:
    """Small files that claim to be, or unpack to, very large ones; all are refused by their headers."""
    megabytes = zlib.compress(bytes(50_000_000), 9)
    one_megabyte = chunk(b"zTXt", PLANTED.encode() + b"\0\0" + zlib.compress(bytes(1_000_000), 9))
    return {
        "png of 5001 x 5000": png(head(5001, 5000), EMPTY),
        "png of 60,000 x 60,000": png(head(60_000, 60_000), EMPTY),
        "png of two thousand million in a row": png(head(2**31 - 1, 1), EMPTY),
        "png of two thousand million rows": png(head(1, 2**31 - 1), EMPTY),
        "png of the largest size there is": png(head(2**31 - 1, 2**31 - 1), EMPTY),
        "png of more than the largest size": png(head(2**32 - 1, 2**32 - 1), EMPTY),
        "png of a line of a million": png(head(1_000_000, 1), chunk(b"IDAT", zlib.compress(bytes(1_000_001)))),
        "png of a column of a million": png(head(1, 1_000_000), chunk(b"IDAT", zlib.compress(bytes(2_000_000)))),
        "16-bit bomb": png(head(50_000, 50_000, 16), EMPTY),
        "1-bit bomb": png(head(100_000, 100_000, 1), EMPTY),
        "colour bomb": png(head(40_000, 40_000, 8, COLOUR), EMPTY),
        "transparent 16-bit bomb": png(head(30_000, 30_000, 16, COLOUR_ALPHA), EMPTY),
        "palette bomb": png(head(50_000, 50_000, 8, PALETTE), chunk(b"PLTE", bytes(768)), EMPTY),
        "interlaced bomb": png(head(50_000, 50_000, 8, GREY, 0, 0, 1), EMPTY),
        "bomb in the colour profile": png(HEAD, chunk(b"iCCP", b"p\0\0" + megabytes), PIXELS),
        "bomb in a compressed text": png(HEAD, chunk(b"zTXt", PLANTED.encode() + b"\0\0" + megabytes), PIXELS),
        "bomb in an international text": png(HEAD, chunk(b"iTXt", b"t\0\1\0\0\0" + megabytes), PIXELS),
        "bomb in a text after the pixels": png(HEAD, PIXELS, chunk(b"zTXt", b"t\0\0" + megabytes)),
        "seventy texts of a megabyte": png(HEAD, one_megabyte * 70, PIXELS),
        "a hundred thousand empty texts": png(HEAD, chunk(b"tEXt") * 100_000, PIXELS),
        "a hundred thousand private chunks": png(HEAD, PIXELS, chunk(b"prVt") * 100_000),
        "pixels in a hundred thousand empty pieces": png(HEAD, chunk(b"IDAT") * 100_000, PIXELS),
    }


def damaged_pngs() -> Files:
    """Files whose parts are missing, wrong or contradict each other."""
    whole = png(HEAD, PIXELS)
    flipped = bytearray(whole)
    flipped[len(PNG_START) + 8 + 13] ^= 0xFF  # the first byte of the header's checksum
    return {
        "png without width": png(head(0, 24), PIXELS),
        "png without height": png(head(24, 0), PIXELS),
        "png of three bits": png(head(24, 24, 3), PIXELS),
        "png of no known colours": png(head(24, 24, 8, 7), PIXELS),
        "png without pixels": png(HEAD),
        "png of empty pixels": png(HEAD, EMPTY),
        "png of half its pixels": png(HEAD, chunk(b"IDAT", ROWS[: len(ROWS) // 2])),
        "png whose pixels are no stream": png(HEAD, chunk(b"IDAT", PLANTED.encode() * 20)),
        "png without a header": png(PIXELS),
        "png with a wrong checksum of its header": bytes(flipped),
        "png with a wrong checksum of its pixels": whole[:-16] + bytes(4) + whole[-12:],
        "png without an end": whole[:-12],
        "png cut in its pixels": whole[:200],
        "png cut in its header": whole[:20],
        "png of a signature alone": PNG_START,
        "png sent as text": whole.replace(b"\r\n", b"\n"),
        "png whose chunk is longer than the file": png(HEAD, struct.pack(">I", 10**6) + b"IDAT" + ROWS),
        "png whose chunk is as long as can be": png(HEAD, struct.pack(">I", 2**32 - 1) + b"IDAT" + ROWS),
        "animated png": saved(SHOWN, "PNG", save_all=True, append_images=[Image.fromarray(image_of(6, 24))]),
        "packed png": gzip.compress(whole),
    }


def _jpeg(**settings: Any) -> bytes:
    return saved(Image.fromarray(image_of(5, 64)), "JPEG", **settings)


def _claimed(height: int, width: int, precision: int = 8, parts: int = 1) -> bytes:
    """A JPEG whose frame header says something else."""
    data = _jpeg()
    at = data.index(b"\xff\xc0") + 4
    return data[:at] + struct.pack(">BHHB", precision, height, width, parts) + data[at + 6 :]


def jpegs() -> Files:
    """JPEG bombs and damaged files."""
    data = _jpeg()
    progressive = _jpeg(progressive=True)
    last = progressive.rindex(b"\xff\xda")
    tables = data.index(b"\xff\xdb")
    scan = data.index(b"\xff\xda")
    return {
        "jpeg of 65,500 x 65,500": _claimed(65_500, 65_500),
        "jpeg of 6000 x 5000": _claimed(6000, 5000),
        "jpeg of a line of 65,500": _claimed(1, 65_500),
        "jpeg without height": _claimed(0, 64),
        "jpeg without width": _claimed(64, 0),
        "jpeg of twelve bits": _claimed(64, 64, 12),
        "jpeg without parts": _claimed(64, 64, 8, 0),
        "jpeg of nine parts": _claimed(64, 64, 8, 9),
        "jpeg of five hundred scans": progressive[:last] + progressive[last:-2] * 500 + b"\xff\xd9",
        "jpeg of a hundred thousand notes": data[:2] + b"\xff\xe5\0\x02" * 100_000 + data[2:],
        "jpeg of a hundred thousand comments": data[:2] + b"\xff\xfe\0\x02" * 100_000 + data[2:],
        "jpeg of a hundred thousand tables": data[:2] + b"\xff\xdb\0\x02" * 100_000 + data[2:],
        "jpeg of a hundred thousand filling bytes": data[:2] + b"\xff" * 100_000 + data[2:],
        "jpeg with a hundred thousand bytes of junk": data[:tables] + bytes(100_000) + data[tables:],
        "jpeg of lossless pixels": data.replace(b"\xff\xc0", b"\xff\xc3", 1),
        "jpeg of hierarchical pixels": data.replace(b"\xff\xc0", b"\xff\xc5", 1),
        "jpeg without a frame": data.replace(b"\xff\xc0", b"\xff\xed", 1),
        "jpeg without tables": data[:tables] + data[data.index(b"\xff\xc0") :],
        "jpeg with a part of no length": data[:2] + b"\xff\xe1\0\0" + data[2:],
        "jpeg with a part longer than the file": data[:2] + b"\xff\xe1\xff\xff",
        "jpeg with an extension that hides parts": data[:2] + b"\xff\xf0\xff\xff" + b"\xff\xe5\0\x02" * 9 + data[2:],
        "jpeg cut in its pixels": data[: scan + 60],
        "jpeg cut before its pixels": data[:scan],
        "jpeg of its first bytes": data[:3],
        "jpeg and then words": b"\xff\xd8\xff" + PLANTED.encode() * 50,
    }


def other_formats() -> Files:
    """Images in unsupported formats, and files that are not images."""
    other = Image.fromarray(image_of(6, 24))
    pages = {"save_all": True, "append_images": [other]}
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><text>{PLANTED}</text></svg>'
    entity = f'<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>{svg.replace(PLANTED, "&x;")}'
    laughs = '<!DOCTYPE l [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    return {
        "gif": saved(SHOWN, "GIF"),
        "animated gif": saved(SHOWN, "GIF", **pages),
        "gif bomb": b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + bytes(40),
        "webp": saved(SHOWN, "WEBP"),
        "animated webp": saved(SHOWN, "WEBP", **pages),
        "tiff": saved(SHOWN, "TIFF"),
        "tiff of two pages": saved(SHOWN, "TIFF", **pages),
        "bmp": saved(SHOWN, "BMP"),
        "bmp bomb": b"BM" + struct.pack("<IHHIIiiHHI", 54, 0, 0, 54, 40, 2**31 - 1, 2**31 - 1, 1, 24, 0) + bytes(24),
        "ico": saved(SHOWN, "ICO"),
        "pgm": saved(SHOWN, "PPM"),
        "pcx": saved(SHOWN, "PCX"),
        "tga": saved(SHOWN, "TGA"),
        "jpeg 2000": saved(SHOWN, "JPEG2000"),
        "postscript": saved(SHOWN, "EPS"),
        "pdf": saved(SHOWN, "PDF"),
        "avif": b"\0\0\0\x1cftypavif" + bytes(100),
        "video": b"\0\0\0\x20ftypisom" + bytes(100),
        "photoshop file": b"8BPS\0\1" + bytes(100),
        "svg": svg.encode(),
        "svg that reads a file": entity.encode(),
        "svg that grows without end": (laughs + "]><svg>&i;</svg>").encode(),
        "html": f"<html><script>alert('{PLANTED}')</script>".encode(),
        "archive": b"PK\x03\x04" + bytes(60),
        "program": b"\x7fELF" + bytes(60),
        "pickle": b"\x80\x04\x95" + bytes(20) + b"cos\nsystem\n",
        "numpy file": b"\x93NUMPY\x01\0" + bytes(60),
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(60),
        "a megabyte of zeros": bytes(1_000_000),
        "one byte": b"\0",
        "words": f"{PLANTED} ".encode() * 20,
    }


def dicom(change: Callable[[Any], None] | None = None, **elements: Any) -> bytes:
    """A DICOM image of 24 x 24 with these elements, changed, as a file."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1.1", "1.2.3"
    image = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    image.SOPClassUID, image.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    image.PatientName, image.PhotometricInterpretation = f"{PLANTED}^JANE", "MONOCHROME2"
    image.Rows = image.Columns = 24
    image.SamplesPerPixel, image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = (
        1,
        8,
        8,
        7,
        0,
    )
    image.PixelData = IMAGE.tobytes()
    for name, value in elements.items():
        setattr(image, name, value)
    if change is not None:
        change(image)
    stream = io.BytesIO()
    dcmwrite(stream, image, enforce_file_format=True)
    return stream.getvalue()


def _element(tag: int, kind: bytes, value: bytes) -> bytes:
    """An element as it stands in a file, whatever the standard says of its type."""
    long = kind in (b"OB", b"OW", b"SQ", b"UN", b"UT")
    length = struct.pack("<2xI" if long else "<H", len(value))
    return struct.pack("<HH", tag >> 16, tag & 0xFFFF) + kind + length + value


def _with(data: bytes, tag: int, kind: bytes, value: bytes) -> bytes:
    """The file with the element of this tag replaced, its pixels last."""
    start = data.index(struct.pack("<HH", tag >> 16, tag & 0xFFFF) + (b"O" if tag == _PIXELS else b""))
    length = len(data) - start if tag == _PIXELS else 10  # the others replaced here are short numbers
    return data[:start] + _element(tag, kind, value) + data[start + length :]


_ROWS, _PIXELS = 0x00280010, 0x7FE00010


def _segmented(image: Any) -> None:
    """Tables of colours of which six bytes stand for 65,535 entries each."""
    image.PhotometricInterpretation = "PALETTE COLOR"
    for colour in ("Red", "Green", "Blue"):
        setattr(image, f"{colour}PaletteColorLookupTableDescriptor", [0, 0, 16])
        table = struct.pack("<HHH", 0, 1, 5) + struct.pack("<HHH", 1, 65_535, 9) * 5000
        setattr(image, f"Segmented{colour}PaletteColorLookupTableData", table)


def _no_pixels(image: Any) -> None:
    del image.PixelData


def _syntax(uid: str) -> Callable[[Any], None]:
    def change(image: Any) -> None:
        image.file_meta.TransferSyntaxUID = uid

    return change


def dicoms() -> Files:
    """DICOM files that hide more than they say, or are damaged; the patient's name must not come back."""
    plain = dicom()
    start = plain.index(struct.pack("<HH", 8, 0x16))
    nested = b"\x08\0\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\0\xe0\xff\xff\xff\xff" * 3000
    items = struct.pack("<HHI", 0xFFFE, 0xE000, 0) * 500
    one_bit = {"BitsAllocated": 1, "BitsStored": 1, "HighBit": 0}
    return {
        "dicom of compressed pixels": dicom(lambda image: image.compress(RLELossless)),
        "dicom that says it is compressed": plain.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.5\0"),
        "deflated dicom": dicom(_syntax(DeflatedExplicitVRLittleEndian)),
        "dicom of an unknown syntax": plain.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.99999.1.2.1\0"),
        "dicom of 65,535 x 65,535": dicom(Rows=65_535, Columns=65_535),
        "dicom of a line of 65,535": dicom(Rows=1, Columns=65_535, PixelData=bytes(65_536)),
        "dicom without rows": dicom(Rows=0),
        "dicom without pixels": dicom(_no_pixels),
        "dicom of too few pixels": dicom(PixelData=bytes(100)),
        "dicom of two images": dicom(PixelData=IMAGE.tobytes() * 2),
        "dicom of two images that says so": dicom(NumberOfFrames=2, PixelData=IMAGE.tobytes() * 2),
        "dicom of a thousand million images": dicom(NumberOfFrames=10**9),
        "dicom of less than no images": dicom(NumberOfFrames=-1),
        "dicom of eight images of one bit": dicom(**one_bit),
        "dicom of no bits": dicom(BitsAllocated=0),
        "dicom of sixty-four bits": dicom(BitsAllocated=64, BitsStored=64, HighBit=63),
        "dicom of no colours": dicom(SamplesPerPixel=0),
        "dicom of unknown colours": dicom(PhotometricInterpretation=PLANTED.upper()),
        "dicom of a palette that is not there": dicom(PhotometricInterpretation="PALETTE COLOR"),
        "dicom whose colours blow up": dicom(_segmented),
        "dicom whose pixels are data sets": _with(plain, _PIXELS, b"SQ", items),
        "dicom whose pixels are words": _with(plain, _PIXELS, b"UT", PLANTED.encode() * 90),
        "dicom whose rows are words": _with(plain, _ROWS, b"LO", f"{PLANTED} {PLANTED} ".encode()),
        "dicom of a long header": dicom(lambda image: image.add_new(0x00091001, "OB", bytes(300_000))),
        "dicom in dicom in dicom": plain[:start] + nested + plain[start:],
        "dicom of infinite brightness": dicom(RescaleSlope="1e308", RescaleIntercept="1e308", PixelRepresentation=0),
        "dicom of one grey": dicom(BitsAllocated=16, BitsStored=16, HighBit=15, PixelData=bytes(24 * 24 * 2)),
        "dicom cut in its header": plain[:200],
        "dicom cut in its pixels": plain[:-100],
        "dicom of a mark alone": bytes(128) + b"DICM",
        "dicom and then words": bytes(128) + b"DICM" + PLANTED.encode() * 50,
    }


def hostile_images() -> Iterable[tuple[str, bytes]]:
    """Every image that must be refused."""
    for group in (png_bombs, damaged_pngs, jpegs, other_formats, dicoms):
        yield from group().items()


def odd_images() -> Files:
    """Images with additional content, which is ignored; each must be answered."""
    exif = Image.Exif()
    exif[0x0131] = PLANTED
    texts = png(HEAD, chunk(b"tEXt", b"Comment\0" + PLANTED.encode()), chunk(b"eXIf", b"MM\0*"), PIXELS)
    return {
        "jpeg with notes of a camera": _jpeg(exif=exif, icc_profile=PLANTED.encode() * 9, comment=PLANTED),
        "jpeg of several pictures": saved(
            Image.fromarray(image_of(5, 64)), "MPO", save_all=True, append_images=[SHOWN]
        ),
        "png with texts": texts,
        "png and then zeros": png(HEAD, PIXELS) + bytes(500_000),
        "png whose stream goes on for megabytes": png(HEAD, chunk(b"IDAT", zlib.compress(bytes(50_000_000), 9))),
        "dicom and then words": dicom() + PLANTED.encode() * 50,
        "16-bit png": saved(Image.fromarray(IMAGE.astype(np.uint16) * 16), "PNG"),
        "transparent png": saved(SHOWN.convert("LA"), "PNG"),
    }
