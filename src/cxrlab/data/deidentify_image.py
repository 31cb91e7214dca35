"""De-identify one image: list what in its file may name a patient, and write a copy without it."""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, JpegImagePlugin

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import os_error, read_text
from cxrlab.core.image_codec import PNG_START, decode, encode_png, open_picture
from cxrlab.data.burned_in_text import Corners, TextBox, text_boxes
from cxrlab.data.images import (
    Picture,
    check_single_image,
    displayed,
    grey_image,
    is_dicom,
    parse_dicom,
    report_damaged_header,
    stored_pixels,
)
from cxrlab.findings.data_files import converted

if TYPE_CHECKING:
    from pydicom import Dataset

    from cxrlab.data.images import ImageArray

Shown = Callable[[Picture], "ImageArray"]

# Maximum number of passes of blanking.
PASSES = 3


class TextRemains(DataError):
    """An image with text left after several passes of blanking."""


class NotOneImage(DataError):
    """A DICOM file that is not a single image: a report, several frames."""


@dataclass(frozen=True)
class Examined:
    """What in a file may name a patient, by name and place, never by value."""

    kind: str
    tags: tuple[str, ...]
    private: int = 0
    burned_in: str | None = None  # the header's statement on text in the pixels: YES, NO or None
    boxes: tuple[TextBox, ...] = ()  # burned-in text

    @property
    def text(self) -> tuple[Corners, ...]:
        return tuple(box.corners for box in self.boxes if not box.marker)

    @property
    def markers(self) -> tuple[Corners, ...]:
        return tuple(box.corners for box in self.boxes if box.marker)


@dataclass(frozen=True)
class Cleaned:
    """A file without what may name a patient."""

    data: bytes
    identifiers: tuple[str, ...] = ()  # values of the old header that may be in the file's name; never to be shown


def is_image(data: bytes) -> bool:
    """Whether bytes look like an image that can be examined: DICOM, PNG or JPEG, by content."""
    return is_picture(data) or is_dicom(data)


def examine(data: bytes, name: str, *, mask: bool = False) -> Examined:
    """Examine header and pixels of an image, without looking for text in a mask; a `DataError` if it cannot be read."""
    if is_picture(data):
        kind = "png" if data.startswith(PNG_START) else "jpeg"
        pixels = decode(data, name)
        return Examined(kind, identifying_parts(data, name), boxes=() if mask else text_boxes(grey_image(pixels)))
    header = parse_dicom(data, name)
    with report_damaged_header(name):
        try:
            check_single_image(header, name)
        except DataError as error:
            raise NotOneImage(str(error)) from error
        image = displayed(header, stored_pixels(header, name), name)
        boxes = text_boxes(image)
        return Examined("dicom", identifying_tags(header), private_tags(header), burned_in(header), boxes)


def clean(data: bytes, name: str, found: Examined, pseudonyms: Pseudonyms, *, markers: bool) -> Cleaned:
    """A copy of an image that was examined, with a new header and its text blanked; may raise `TextRemains`."""
    boxes = [box.corners for box in found.boxes if markers or not box.marker]
    if found.kind != "dicom":
        if not boxes:
            return Cleaned(clean_picture(data, name))
        pixels = np.array(decode(data, name))
        _blank_all(pixels, boxes, name, grey_image, markers=markers)
        return Cleaned(clean_picture(data, name, pixels))
    header = parse_dicom(data, name)
    with report_damaged_header(name):
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
    """Blank boxes, and text that is detected afterwards."""
    for _ in range(PASSES):
        for box in boxes:
            blank(pixels, box)
        boxes = [box.corners for box in text_boxes(shown(pixels)) if markers or not box.marker]
        if not boxes:
            return
    raise TextRemains(f"{name} shows text after {PASSES} passes of blanking; look at it and leave it out.")


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


METHOD = "cxrlab scrub: headers by keep-list, new UIDs, text boxes blanked"


@dataclass(frozen=True)
class _Elements:
    """The keywords and words of `deidentify_image.yaml`, separated by blanks."""

    whole_numbers: str
    real_numbers: str
    codes: str
    lookup_tables: str
    table_sequences: str
    uids: str
    emptied: str
    written_by_us: str
    file_meta: str
    known_words: str


_FILE = Path(__file__).with_suffix(".yaml")
_ELEMENTS: _Elements = converted(_Elements, read_yaml(_FILE)[0], _FILE.name)
_WHOLE, _REAL, _CODE = (_ELEMENTS.whole_numbers.split(), _ELEMENTS.real_numbers.split(), _ELEMENTS.codes.split())
_BINARY, _TABLES, _UIDS = (_ELEMENTS.lookup_tables.split(), _ELEMENTS.table_sequences.split(), _ELEMENTS.uids.split())
_EMPTY, _OWN, _META = (_ELEMENTS.emptied.split(), _ELEMENTS.written_by_us.split(), _ELEMENTS.file_meta.split())
_WORDS = frozenset(_ELEMENTS.known_words.split())
_STAYS = frozenset((*_WHOLE, *_REAL, *_CODE, *_BINARY, *_TABLES, *_OWN, "SpecificCharacterSet"))
_PSEUDONYM = {**dict.fromkeys(_UIDS, re.compile(r"2\.25\.\d+")), "PatientID": re.compile(r"P[0-9a-f]{16}")}
# Numbers of an image are small; eight digits are a date or the number of a person.
_LARGEST = 99_999
_IDENTIFIERS = ("PatientID", "AccessionNumber", "StudyID", "PatientBirthDate", *_UIDS)
OLDEST = 90


def identifying_tags(header: Dataset) -> tuple[str, ...]:
    """Keywords of public elements with a value that cleaning removes or replaces, in the order of the file."""
    unusual = {name for name, kept, given in _kept_values(header) if len(kept) < given}
    own = set()  # elements that an earlier cleaning wrote, as far as they have the form that it gives them
    if str(header.get("DeidentificationMethod") or "") == METHOD:
        own = {name for name, form in _PSEUDONYM.items() if form.fullmatch(str(header.get(name) or ""))}
        own.add("DeidentificationMethod")
    found = _names(header, {*_STAYS - unusual, *own})
    meta = _names(header.file_meta, _META)
    preamble = ["FilePreamble"] if any(header.preamble or b"") else []
    return tuple(dict.fromkeys([*preamble, *meta, *found]))


def private_tags(header: Dataset) -> int:
    """How many elements of private groups the header holds."""
    return sum(tag.is_private for tag in header.keys())


def burned_in(header: Dataset) -> str | None:
    """The header's statement on text in the pixels: YES or NO, else None."""
    word = str(header.get("BurnedInAnnotation") or "").strip().upper()
    return word if word in ("YES", "NO") else None


def identifiers(header: Dataset) -> tuple[str, ...]:
    """Values that may be in the name of a file, where they are replaced; never to be shown."""
    values = [str(header.get(name) or "") for name in _IDENTIFIERS]
    names = re.split(r"[\^= ,]+", str(header.get("PatientName") or ""))
    return tuple(value for value in (*values, *names) if value)


def clean_header(header: Dataset, pseudonyms: Pseudonyms) -> Dataset:
    """A new header with what an image needs to be shown and understood; everything else is removed.

    Sex stays, and age in years up to 89; above that all patients are 90. UIDs and the patient's number are replaced.
    """
    from pydicom import Dataset as New

    little = bool(header.original_encoding[1])
    clean = _kept(header, New(), little=little)
    for name in _TABLES:
        if header.get(name):
            setattr(clean, name, [_kept(item, New(), little=little) for item in header[name].value])
    kind = str(header.get("SOPClassUID") or "")
    # One that no standard defines could be anything, and becomes a secondary capture.
    standard = re.fullmatch(r"1\.2\.840\.10008(\.\d+)+", kind)
    clean.SOPClassUID = kind if standard else "1.2.840.10008.5.1.4.1.1.7"
    for name in _UIDS:
        value = str(header.get(name) or "")
        if not value and name == "SOPInstanceUID":  # every file must have one, which old ones lack
            value = hashlib.blake2b(header.PixelData).hexdigest()
        if value:
            setattr(clean, name, pseudonyms.uid(value))
    for name in _EMPTY:
        setattr(clean, name, "")
    clean.PatientID = pseudonyms.patient(str(header.get("PatientID") or ""))
    sex = str(header.get("PatientSex") or "").strip().upper()
    clean.PatientSex = sex if sex in ("F", "M", "O") else ""
    age = re.fullmatch(r"(\d{3})([YMWD])", str(header.get("PatientAge") or "").strip().upper())
    old = age is not None and age[2] == "Y" and int(age[1]) >= OLDEST
    clean.PatientAge = f"{OLDEST:03d}Y" if old else age[0] if age else ""
    clean.PatientIdentityRemoved = "YES"
    clean.DeidentificationMethod = METHOD
    return clean


def _names(header: Dataset, known: Collection[str]) -> Iterator[str]:
    """Keywords of public elements with a value, but for the known ones; by number where the standard has no word."""
    from pydicom.datadict import keyword_for_tag

    for tag in header.keys():
        name = keyword_for_tag(tag) or f"({tag.group:04X},{tag.element:04X})"
        if not tag.is_private and tag.element != 0 and name not in known and not _empty(header[tag].value):
            yield name


def _empty(value: Any) -> bool:
    if value is None or (hasattr(value, "__len__") and len(value) == 0):
        return True
    return not isinstance(value, bytes) and str(value).strip() == ""


def _kept(header: Dataset, clean: Dataset, *, little: bool) -> Dataset:
    """Copy the elements that stay, each value written anew from its number or code."""
    for name, values, _ in _kept_values(header):
        if values:
            setattr(clean, name, values if len(values) > 1 else values[0])
    for name in _BINARY:  # entries of a lookup table, as little-endian words
        if name in header:
            value = header[name].value
            if isinstance(value, bytes):
                words = np.frombuffer(value + b"\0" * (len(value) % 2), "<u2" if little else ">u2").astype("<u2")
            else:
                entries = value if hasattr(value, "__iter__") else [value]
                words = np.array([int(entry) & 0xFFFF for entry in entries], "<u2")
            clean.add_new(header[name].tag, "OW", words.tobytes())
    return clean


def _kept_values(header: Dataset) -> Iterator[tuple[str, list[int | str], int]]:
    """Each number and code that may stay: its name, its values up to the first of another form, how many there are."""
    for name in (name for name in (*_WHOLE, *_REAL, *_CODE) if name in header and not _empty(header[name].value)):
        value = header[name].value
        given = list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else [value]
        kept: list[int | str] = []
        with suppress(ValueError, TypeError, OverflowError):  # up to the first that is not of its form
            for one in given:
                if name in _CODE:
                    word = str(one).strip()
                    if word.replace(" ", "_") not in _WORDS:
                        break
                    kept.append(word)
                else:
                    number = int(one) if name in _WHOLE else float(one)
                    if not abs(number) <= _LARGEST:  # also ends at a NaN
                        break
                    # The standard allows at most sixteen characters for a decimal number.
                    kept.append(number if isinstance(number, int) else f"{number:.10g}")
        yield name, kept, len(given)


JPEG_START = b"\xff\xd8\xff"
_PNG_NEEDS = frozenset({"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "gAMA", "cHRM", "sRGB", "sBIT", "bKGD", "pHYs"})
_APP0, _APP14, _COMMENT, _SCAN, _END = 0xE0, 0xEE, 0xFE, 0xDA, 0xD9
_JFIF = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
# Where coded pixels end: a mark that is neither a stuffed byte, a restart nor filling.
_NEXT_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_QUALITY = 95


def is_picture(data: bytes) -> bool:
    """Whether bytes begin like a PNG or JPEG file."""
    return data.startswith((PNG_START, JPEG_START))


def identifying_parts(data: bytes, name: str) -> tuple[str, ...]:
    """Names of what a file carries beside its pixels: PNG chunks of text and time, JPEG notes, bytes after its end."""
    found: list[str] = []
    if data.startswith(PNG_START):
        # The chunks up to the last one; damage ends the walk.
        at, kind = len(PNG_START), ""
        while kind != "IEND" and at + 12 <= len(data):
            length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8].decode("latin-1")
            at += 12 + length
            found += [kind] if kind not in _PNG_NEEDS else []
        after = bool(kind) and at < len(data)
    else:
        segments = list(_segments(data, name))
        for mark, part, _ in segments:
            jfif = mark == _APP0 and part[4:9] == b"JFIF\0" and len(part) == len(_JFIF)
            adobe = mark == _APP14 and part[4:9] == b"Adobe" and len(part) == 16
            if mark == _COMMENT:
                found.append("comment")
            elif 0xE0 <= mark <= 0xEF and not jfif and not adobe:
                exif = part[4:10] == b"Exif\0\0"
                found.append("EXIF" if exif else "thumbnail" if mark == _APP0 else f"APP{mark - 0xE0}")
        after = segments[-1][2] < len(data)
    return tuple(dict.fromkeys([*found, *(["bytes after the end"] if after else [])]))


def clean_picture(data: bytes, name: str, pixels: Picture | None = None) -> bytes:
    """The same picture in the same format, written anew from its pixels alone; a JPEG keeps its quantisation tables."""
    pixels = decode(data, name) if pixels is None else pixels
    if data.startswith(PNG_START):
        return encode_png(pixels)
    with open_picture(data, name) as source:
        how: dict[str, Any] = {"quality": _QUALITY}
        if isinstance(source, JpegImagePlugin.JpegImageFile) and source.mode in ("L", "RGB"):
            sampling = JpegImagePlugin.get_sampling(source)
            tables = [source.quantization[number] for number in sorted({layer[3] for layer in source.layer})]
            how = {"qtables": tables, **({"subsampling": sampling} if sampling >= 0 else {})}
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "JPEG", **how)
    return buffer.getvalue()


def _segments(data: bytes, name: str) -> Iterator[tuple[int, bytes, int]]:
    """Mark, bytes and end of each part of a JPEG file after its first mark; coded pixels go with the mark before."""
    at = 2
    while at + 2 <= len(data):
        mark = data[at + 1]
        if data[at] != 0xFF:
            break
        if mark == _END:
            yield mark, data[at : at + 2], at + 2
            return
        if mark == 0xFF:
            at += 1
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if mark == _SCAN:
            following = _NEXT_MARK.search(data, end)
            end = following.start() if following else len(data)
        yield mark, data[at:end], end
        at = end
    raise DataError(f"{name} is damaged or cut short; download or write it again.")


KEY = "pseudonyms.key"
_BYTES = 32
# Short values occur in paths by chance: one character is never replaced, a shorter value than `ANYWHERE` only as a
# whole word.
SHORTEST, ANYWHERE = 2, 4


@dataclass(frozen=True)
class Pseudonyms:
    """A secret key, and what it makes of identifiers."""

    key: bytes

    def uid(self, uid: str) -> str:
        return f"2.25.{int.from_bytes(self._mark('uid', uid, 16), 'big')}"

    def patient(self, patient: str) -> str:
        return f"P{self._mark('patient', patient, 8).hex()}"

    def path(self, path: str, identifiers: tuple[str, ...]) -> str:
        """A relative path with every identifier in it replaced, in capitals or not."""
        ordered = sorted({one for one in identifiers if len(one) >= SHORTEST}, key=lambda one: (-len(one), one))
        if not ordered:
            return path
        patterns = [
            re.escape(one) if len(one) >= ANYWHERE else rf"(?<![^\W_]){re.escape(one)}(?![^\W_])" for one in ordered
        ]
        either = "|".join(patterns)
        return re.sub(either, lambda found: self._mark("name", found[0], 8).hex(), path, flags=re.IGNORECASE)

    def _mark(self, kind: str, value: str, size: int) -> bytes:
        text = f"{kind}\0{value}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, key=self.key, digest_size=size).digest()


def pseudonyms_in(folder: Path) -> Pseudonyms:
    """Those of a run: from its key where it has one, else with a new key, which only the user may read."""
    file = folder / KEY
    if not file.exists():
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as stream:
                stream.write(secrets.token_hex(_BYTES) + "\n")
        except OSError as error:
            raise os_error(error, file) from error
    try:
        key = bytes.fromhex(read_text(file).strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise RunError(f"{file} is not a key of this program; delete the folder and start anew.")
    return Pseudonyms(key)
