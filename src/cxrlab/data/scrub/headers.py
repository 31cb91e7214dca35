"""DICOM headers: which elements tell of a patient, and a new header with none of them.

Cleaning goes by a list of what may stay, in the spirit of the standard's basic confidentiality
profile (PS3.15, annex E): an element that nobody thought of, a private one or one of the wrong form
is gone. No value of a header ever leaves this file but through that list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.data.scrub.pseudonyms import Pseudonyms

if TYPE_CHECKING:
    from pydicom import Dataset

METHOD = "cxrlab scrub: headers by keep-list, new UIDs, text boxes blanked"

_WHOLE = (
    "Rows", "Columns", "SamplesPerPixel", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation",
    "PlanarConfiguration", "PixelAspectRatio", "PixelPaddingValue", "PixelPaddingRangeLimit",
    "SmallestImagePixelValue", "LargestImagePixelValue", "PixelIntensityRelationshipSign", "SeriesNumber",
    "InstanceNumber", "ExposureTime", "XRayTubeCurrent", "Exposure", "ExposureInuAs", "RelativeXRayExposure",
    "RedPaletteColorLookupTableDescriptor", "GreenPaletteColorLookupTableDescriptor",
    "BluePaletteColorLookupTableDescriptor", "LUTDescriptor",
)  # fmt: skip
_REAL = (
    "PixelSpacing", "ImagerPixelSpacing", "WindowCenter", "WindowWidth", "RescaleSlope", "RescaleIntercept", "KVP",
    "DistanceSourceToDetector", "DistanceSourceToPatient", "EstimatedRadiographicMagnificationFactor",
    "LossyImageCompressionRatio",
)  # fmt: skip
_CODE = (
    "PhotometricInterpretation", "Modality", "BodyPartExamined", "ViewPosition", "PatientOrientation", "Laterality",
    "ImageLaterality", "ImageType", "PresentationLUTShape", "PresentationIntentType", "VOILUTFunction",
    "PatientPosition", "PixelIntensityRelationship", "LossyImageCompression", "LossyImageCompressionMethod",
    "PixelSpacingCalibrationType", "RescaleType", "ModalityLUTType",
)  # fmt: skip
_BINARY = (
    "LUTData", "RedPaletteColorLookupTableData", "GreenPaletteColorLookupTableData",
    "BluePaletteColorLookupTableData",
)  # fmt: skip
_TABLES = ("ModalityLUTSequence", "VOILUTSequence", "PresentationLUTSequence")
_UIDS = ("SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
# Every image must have these elements; without a value they say nothing.
_EMPTY = (
    "PatientName", "PatientBirthDate", "StudyDate", "StudyTime", "AccessionNumber", "ReferringPhysicianName", "StudyID",
)  # fmt: skip
_OWN = ("SOPClassUID", "PatientSex", "PatientAge", "PixelData", "BurnedInAnnotation", "PatientIdentityRemoved")
_STAYS = frozenset((*_WHOLE, *_REAL, *_CODE, *_BINARY, *_TABLES, *_OWN, "SpecificCharacterSet"))
# What every file says of itself; the instance is told by the header's own element.
_META = (
    "FileMetaInformationVersion", "TransferSyntaxUID", "MediaStorageSOPClassUID", "MediaStorageSOPInstanceUID",
    "ImplementationClassUID", "ImplementationVersionName",
)  # fmt: skip
# Words of the standard and of usage for what a chest image is. Any other, a name typed into such an element too, goes.
_WORDS = frozenset(
    """
    MONOCHROME1 MONOCHROME2 RGB YBR_FULL YBR_FULL_422 YBR_ICT YBR_RCT YBR_PARTIAL_420 PALETTE_COLOR
    CR DX RG XR OT SC MG RF XA CT MR
    CHEST THORAX LUNG RIB RIBS HEART STERNUM CLAVICLE SHOULDER SPINE TSPINE CSPINE LSPINE ABDOMEN PELVIS NECK SKULL
    AP PA LL RL LLD RLD LLO RLO LAO RAO LPO RPO LAT LATERAL L_LAT R_LAT LLAT RLAT FRONTAL OBLIQUE LORDOTIC DECUB
    L R B U P A H F AL AR PL PR LA LP RA RP FL FR FA FP HL HR HA HP LF LH RF RH AF AH PF PH
    HFP HFS HFDR HFDL FFDR FFDL FFP FFS
    ORIGINAL DERIVED PRIMARY SECONDARY POST_PROCESSED RAW
    IDENTITY INVERSE PRESENTATION PROCESSING LINEAR LINEAR_EXACT SIGMOID LIN LOG DISP GEOMETRY FIDUCIAL US HU OD
    00 01 ISO_10918_1 ISO_14495_1 ISO_15444_1 ISO_13818_2 ISO_14496_10
    """.split()
)
_PSEUDONYM = {**dict.fromkeys(_UIDS, re.compile(r"2\.25\.\d+")), "PatientID": re.compile(r"P[0-9a-f]{16}")}
# Numbers of an image are small; eight digits are a date or somebody's number.
_LARGEST = 99_999
_IDENTIFIERS = ("PatientID", "AccessionNumber", "StudyID", "PatientBirthDate", *_UIDS)
OLDEST = 90


def telling_tags(header: Dataset) -> tuple[str, ...]:
    """Keywords of elements that hold something and that cleaning removes or replaces, in the order of the file.

    Values are looked at for being empty, never returned. A private element is counted by
    `private_tags`; what a sequence holds is not listed apart from it.
    """
    strange = {name for name, kept, given in _kept_values(header) if len(kept) < given}
    found = _names(header, {*_STAYS - strange, *_own_names(header)})
    meta = _names(header.file_meta, _META)
    preamble = ["FilePreamble"] if any(header.preamble or b"") else []
    return tuple(dict.fromkeys([*preamble, *meta, *found]))


def _own_names(header: Dataset) -> list[str]:
    """Elements that an earlier cleaning put there, as far as they have the form that it gives them."""
    if str(header.get("DeidentificationMethod") or "") != METHOD:
        return []
    fitting = [name for name, form in _PSEUDONYM.items() if form.fullmatch(str(header.get(name) or ""))]
    return ["DeidentificationMethod", *fitting]


def private_tags(header: Dataset) -> int:
    """How many elements of private groups the header holds."""
    return sum(tag.is_private for tag in header.keys())


def burned_in(header: Dataset) -> str | None:
    """What the header itself says of text in the pixels: YES or NO; None where it says neither."""
    word = str(header.get("BurnedInAnnotation") or "").strip().upper()
    return word if word in ("YES", "NO") else None


def identifiers(header: Dataset) -> tuple[str, ...]:
    """Values that may stand in the name of a file, for replacing them there; never to be shown."""
    values = [str(header.get(name) or "") for name in _IDENTIFIERS]
    names = re.split(r"[\^= ,]+", str(header.get("PatientName") or ""))
    return tuple(value for value in (*values, *names) if value)


def clean_header(header: Dataset, pseudonyms: Pseudonyms) -> Dataset:
    """A new header with what an image needs to be shown and understood, and nothing that names anybody.

    Sex stays, and age in years up to 89; above that all patients are 90. Dates, names, numbers and
    free text are gone, UIDs and the patient's number are replaced. Pixels are not copied.
    """
    from pydicom import Dataset as New

    little = bool(header.original_encoding[1])
    clean = _kept(header, New(), little=little)
    for name in _TABLES:
        if header.get(name):
            setattr(clean, name, [_kept(item, New(), little=little) for item in header[name].value])
    clean.SOPClassUID = _sop_class(header)
    for name in _UIDS:
        value = str(header.get(name) or "")
        if not value and name == "SOPInstanceUID":  # every file must have one; old ones do not
            value = hashlib.blake2b(header.PixelData).hexdigest()
        if value:
            setattr(clean, name, pseudonyms.uid(value))
    for name in _EMPTY:
        setattr(clean, name, "")
    clean.PatientID = pseudonyms.patient(str(header.get("PatientID") or ""))
    sex = str(header.get("PatientSex") or "").strip().upper()
    clean.PatientSex = sex if sex in ("F", "M", "O") else ""
    clean.PatientAge = _age(str(header.get("PatientAge") or ""))
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
    """Copy what may stay, each value made anew from its number or code."""
    for name, values, _ in _kept_values(header):
        if values:
            setattr(clean, name, values if len(values) > 1 else values[0])
    for name in _BINARY:
        if name in header:
            clean.add_new(header[name].tag, "OW", _table(header[name].value, little=little))
    return clean


def _kept_values(header: Dataset) -> Iterator[tuple[str, list[int | str], int]]:
    """Each number and code that may stay: its name, its values up to the first of another form, how many there are."""
    forms: tuple[tuple[tuple[str, ...], Callable[[Any], int | str]], ...] = (
        (_WHOLE, _whole), (_REAL, _real), (_CODE, _code),
    )  # fmt: skip
    for names, read in forms:
        for name in names:
            if name in header and not _empty(header[name].value):
                given = _several(header[name].value)
                yield name, list(_readable(given, read)), len(given)


def _several(value: Any) -> list[Any]:
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else [value]


def _readable(values: list[Any], read: Callable[[Any], int | str]) -> Iterator[int | str]:
    """The values up to the first that is not of its form."""
    for value in values:
        try:
            yield read(value)
        except (ValueError, TypeError, OverflowError):
            return


def _whole(value: Any) -> int:
    return int(_small(int(value)))


def _real(value: Any) -> str:
    return f"{_small(float(value)):.10g}"  # sixteen characters are the most that the standard allows


def _small(value: float) -> float:
    if not abs(value) <= _LARGEST:  # written so that no-number fails too
        raise ValueError("too large")
    return value


def _code(value: Any) -> str:
    word = str(value).strip()
    if word.replace(" ", "_") not in _WORDS:
        raise ValueError("not a known word")
    return word


def _table(value: Any, *, little: bool) -> bytes:
    """The entries of a lookup table as little-endian words, whatever the file's byte order was."""
    if isinstance(value, bytes):
        even = value + b"\0" * (len(value) % 2)
        return even if little else np.frombuffer(even, ">u2").astype("<u2").tobytes()
    return np.array([int(entry) & 0xFFFF for entry in _several(value)], "<u2").tobytes()


def _sop_class(header: Dataset) -> str:
    """The kind of image; one that no standard defines could be anything, and becomes a secondary capture."""
    value = str(header.get("SOPClassUID") or "")
    return value if re.fullmatch(r"1\.2\.840\.10008(\.\d+)+", value) else "1.2.840.10008.5.1.4.1.1.7"


def _age(text: str) -> str:
    match = re.fullmatch(r"(\d{3})([YMWD])", text.strip().upper())
    if match is None:
        return ""
    return f"{OLDEST:03d}Y" if match[2] == "Y" and int(match[1]) >= OLDEST else match[0]
