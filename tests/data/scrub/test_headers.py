"""A cleaned header holds nothing that names anybody, whatever the file brought along."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
from pydicom import Dataset, Sequence, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from cxrlab.data.deidentify_image import (
    Pseudonyms,
    burned_in,
    clean_header,
    identifiers,
    identifying_tags,
    private_tags,
)

NAMES = Pseudonyms(b"k" * 32)
# Every kind of element that could name somebody, each with a word that can be searched for.
SECRETS: dict[str, Any] = {
    "PatientName": "SECRET^ANNA",
    "PatientID": "SECRET-17",
    "PatientBirthDate": "19500102",
    "PatientAddress": "SECRET street",
    "OtherPatientIDs": "SECRET2",
    "AccessionNumber": "SECRET3",
    "StudyDate": "20190512",
    "AcquisitionDateTime": "20190512123456",
    "InstitutionName": "SECRET hospital",
    "StationName": "SECRET-XR1",
    "OperatorsName": "SECRET^BOB",
    "ReferringPhysicianName": "SECRET^CARL",
    "StudyDescription": "chest of SECRET",
    "ImageComments": "SECRET comment",
    "DeviceSerialNumber": "SECRET9",
    "ProtocolName": "SECRET protocol",
}


def image(**elements: Any) -> Dataset:
    """An image as a parser returns it, so that raw elements are met too."""
    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    header.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    header.SOPInstanceUID, header.StudyInstanceUID, header.SeriesInstanceUID = "1.2.3.4", "1.2.3", "1.2.3.1"
    header.Rows, header.Columns, header.BitsAllocated = 2, 2, 8
    header.PhotometricInterpretation, header.Modality = "MONOCHROME2", "DX"
    header.PixelData = b"\0" * 4
    header["PixelData"].VR = "OB"
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in elements.items():
            setattr(header, name, value)
        header.save_as(buffer, enforce_file_format=True)
    buffer.seek(0)
    return dcmread(buffer)


def with_private() -> Dataset:
    header = image(**SECRETS)
    block = header.private_block(0x0009, "SECRET MAKER", create=True)
    block.add_new(1, "LO", "SECRET note")
    item = Dataset()
    item.PatientName = "SECRET^NESTED"
    header.RequestAttributesSequence = Sequence([item])
    header.add_new(0x60000010, "US", 2)
    header.add_new(0x60003000, "OW", b"SECRETSECRET")
    return header


def dump(header: Dataset) -> str:
    return f"{header}\n{header.to_json()}".upper()


def test_no_secret_survives() -> None:
    """Names, numbers, dates, free text, private elements, nested sequences and overlays are gone."""
    clean = clean_header(with_private(), NAMES)
    text = dump(clean)
    for secret in ("SECRET", "1950", "2019", "1.2.3"):
        assert secret not in text
    assert private_tags(clean) == 0 and not any(tag.group == 0x6000 for tag in clean.keys())


def test_what_a_image_needs_stays() -> None:
    """Geometry, window, view, sex and age."""
    clean = clean_header(
        image(PatientSex="F", PatientAge="071Y", ViewPosition="PA", PixelSpacing=[0.14, 0.14], WindowCenter=[2048, 9],
             WindowWidth=[4096, 9], RescaleSlope="1.5", ImageType=["ORIGINAL", "PRIMARY"], BodyPartExamined="CHEST"),
        NAMES,
    )  # fmt: skip
    assert (clean.PatientSex, clean.PatientAge, clean.ViewPosition, clean.BodyPartExamined) == (
        "F",
        "071Y",
        "PA",
        "CHEST",
    )
    assert list(clean.PixelSpacing) == [0.14, 0.14] and list(clean.WindowCenter) == [2048, 9]
    assert clean.RescaleSlope == 1.5 and list(clean.ImageType) == ["ORIGINAL", "PRIMARY"]
    assert (clean.Rows, clean.Modality, clean.PatientIdentityRemoved) == (2, "DX", "YES")
    assert clean.PatientName == "" and clean.StudyDate == "" and clean.AccessionNumber == ""


@pytest.mark.parametrize(
    ("given", "kept"),
    [("089Y", "089Y"), ("090Y", "090Y"), ("104Y", "090Y"), ("006M", "006M"), ("born 1911", ""), ("", "")],
)
def test_age_tops_out(given: str, kept: str) -> None:
    """So few live beyond ninety that an age alone may name them."""
    assert clean_header(image(PatientAge=given), NAMES).PatientAge == kept


def test_a_value_in_the_wrong_place_does_not_pass() -> None:
    """An element of the keep-list whose value is not of its form is left out: codes with small letters, long ones."""
    clean = clean_header(image(BodyPartExamined="Anna Secret", ViewPosition="P" * 17, PatientSex="Anna"), NAMES)
    assert "BodyPartExamined" not in clean and "ViewPosition" not in clean and clean.PatientSex == ""


def test_a_name_in_capitals_is_no_code() -> None:
    """A word is kept because the standard has it, not for its form; what follows a strange one goes too."""
    strange = dict.fromkeys(("BodyPartExamined", "ViewPosition", "PatientPosition", "Modality"), "SECRET ANNA")
    clean = clean_header(image(ImageType=["ORIGINAL", "PRIMARY", "SECRET"], **strange), NAMES)
    assert list(clean.ImageType) == ["ORIGINAL", "PRIMARY"] and not any(name in clean for name in strange)
    assert clean.PhotometricInterpretation == "MONOCHROME2"
    palette = clean_header(image(PhotometricInterpretation="PALETTE COLOR"), NAMES)
    assert palette.PhotometricInterpretation == "PALETTE COLOR"
    assert set(strange) < set(identifying_tags(image(**strange))) and "Modality" not in identifying_tags(image())


def test_a_number_of_eight_digits_is_no_measure() -> None:
    """A birth date or somebody's number fits into any numeric element."""
    clean = clean_header(image(SeriesNumber=19500101, InstanceNumber=7, KVP="19500101", Exposure=-19500101), NAMES)
    assert clean.InstanceNumber == 7 and not any(name in clean for name in ("SeriesNumber", "KVP", "Exposure"))


def test_uids_are_new_consistent_and_the_class_is_kept() -> None:
    """Two images of one study stay in one study."""
    one, other = (clean_header(image(SOPInstanceUID=uid), NAMES) for uid in ("1.2.3.8", "1.2.3.9"))
    assert one.StudyInstanceUID == other.StudyInstanceUID != "1.2.3" and one.SOPInstanceUID != other.SOPInstanceUID
    assert one.SOPClassUID == "1.2.840.10008.5.1.4.1.1.1.1"
    assert clean_header(image(SOPClassUID="1.2.3.99"), NAMES).SOPClassUID == "1.2.840.10008.5.1.4.1.1.7"


def test_lookup_tables_stay_without_their_explanations() -> None:
    """A table changes what the image shows; its free text does not."""
    table = Dataset()
    table.LUTDescriptor, table.LUTData, table.LUTExplanation = [2, 0, 8], b"\x00\x00\xff\x00", "SECRET"
    clean = clean_header(image(VOILUTSequence=[table]), NAMES)
    assert list(clean.VOILUTSequence[0].LUTDescriptor) == [2, 0, 8] and "LUTExplanation" not in clean.VOILUTSequence[0]


def test_tags_are_recognised_by_keyword_never_by_value() -> None:
    """Every planted element is named, what stays is not, and an empty element tells nothing."""
    header = with_private()
    header.PatientComments = ""
    tags = identifying_tags(header)
    assert set(SECRETS) <= set(tags) and "RequestAttributesSequence" in tags and "OverlayData" in tags
    assert not {"Rows", "Modality", "PixelData", "PatientComments", "SOPClassUID"} & set(tags)
    assert "SECRET" not in " ".join(tags).upper() and private_tags(header) == 2


def test_a_cleaned_header_states_nothing_more() -> None:
    """Its own pseudonyms are not flagged; a real number under the same claim is."""
    clean = clean_header(image(**SECRETS), NAMES)
    clean.file_meta, clean.preamble = FileMetaDataset(), b"\0" * 128
    assert identifying_tags(clean) == ()
    clean.PatientID = "4711"
    assert identifying_tags(clean) == ("PatientID",)


def test_the_preamble_may_state_too() -> None:
    """128 bytes before the header, free for any use."""
    header = image()
    header.preamble = b"anna" + b"\0" * 124
    assert identifying_tags(header)[0] == "FilePreamble"


@pytest.mark.parametrize(("value", "reported"), [("YES", "YES"), ("no", "NO"), ("Anna", None), (None, None)])
def test_burned_in_annotation(value: str | None, reported: str | None) -> None:
    """Only the two words of the standard are passed on."""
    assert burned_in(image(**({} if value is None else {"BurnedInAnnotation": value}))) == reported


def test_identifiers_for_names_of_files() -> None:
    """Parts of a name count one by one."""
    assert {"SECRET", "ANNA", "SECRET-17", "1.2.3"} <= set(identifiers(image(**SECRETS)))
