"""A folder of DICOM files becomes a corpus: grouping, views, reports from a table or from structured reports."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pydicom
import pytest
from dicom_images import write_image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.vocabulary import View
from cxrlab.data.config import DicomFolderConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.sources.dicom_folder import (
    NOT_DICOM,
    SEVERAL_FRAMES,
    SEVERAL_REPORTS,
    UNMATCHED,
    import_dicom,
    structured_text,
)


def content_item(concept: str, text: str | None = None, *children: Dataset) -> Dataset:
    """One item of a structured report."""
    item, code = Dataset(), Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = "1", "99TEST", concept
    item.RelationshipType, item.ConceptNameCodeSequence = "CONTAINS", Sequence([code])
    item.ValueType = "CONTAINER" if text is None else "TEXT"
    if text is not None:
        item.TextValue = text
    if children:
        item.ContentSequence = Sequence(list(children))
    return item


def write_report(path: Path, study: str, *items: Dataset, **elements: str) -> None:
    """A structured report of a study."""
    report = pydicom.Dataset()
    report.file_meta = FileMetaDataset()
    report.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    report.SOPClassUID = report.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.88.22"
    report.SOPInstanceUID = report.file_meta.MediaStorageSOPInstanceUID = f"{study}.9"
    report.Modality, report.StudyInstanceUID = "SR", study
    for name, value in elements.items():
        setattr(report, name, value)
    report.ContentSequence = Sequence(list(items))
    report.save_as(path, enforce_file_format=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two studies of one patient, one of a patient without id, and what is no radiograph."""
    folder = tmp_path / "dicom"
    one: dict[str, Any] = {
        "StudyInstanceUID": "1.1",
        "PatientID": "MRN1",
        "AccessionNumber": "A1",
        "StudyDate": "20240101",
    }
    write_image(folder / "x" / "IM1", **one, ViewPosition="PA", PatientAge="061Y", PatientSex="F", ImageLaterality="U")
    write_image(folder / "x" / "IM2", **one, SeriesDescription="CHEST LAT")
    two = {**one, "StudyInstanceUID": "1.2", "AccessionNumber": "A2", "StudyDate": "20240301"}
    write_image(folder / "IM3.dcm", **two, PatientOrientation=["L", "F"])
    write_image(folder / "IM4.dcm", **two, PatientOrientation=["A", "F"])
    write_image(folder / "IM5", StudyInstanceUID="1.3", ViewPosition="AP", AccessionNumber="A3")
    write_image(folder / "CT1", StudyInstanceUID="1.4", Modality="CT")
    write_image(folder / "cine", StudyInstanceUID="1.4", NumberOfFrames=2)
    (folder / "readme.txt").write_text("no DICOM at all, but long enough to be looked at")
    os.mkfifo(folder / "pipe")  # reading it would wait forever
    return folder


def imported(root: Path, out: Path, **settings: Any) -> Corpus:
    corpus = import_dicom(DicomFolderConfig(root=root, workers=1, **settings), out)[1]
    assert corpus is not None
    return corpus


def test_images_are_grouped_and_their_headers_are_read(root: Path, tmp_path: Path) -> None:
    found = {study.id: study for study in imported(root, tmp_path / "out")}
    views = {name: [one.view for one in study.images] for name, study in found.items()}
    assert views == {"1.1": [View.PA, View.LATERAL], "1.2": [View.FRONTAL, View.LATERAL], "1.3": [View.AP]}
    first = found["1.1"]
    assert (first.patient, first.age, first.sex, first.prior) == ("MRN1", 61, "F", None)
    assert found["1.2"].prior == "1.1" and found["1.3"].patient == "1.3"
    assert [one.path for one in first.images] == ["images/x/IM1", "images/x/IM2"]
    assert first.images[0].extra["laterality"] == "U"


def test_what_is_no_radiograph_is_counted(root: Path, tmp_path: Path) -> None:
    found, corpus = import_dicom(DicomFolderConfig(root=root, workers=1), tmp_path / "out", dry_run=True)
    assert corpus is None and not (tmp_path / "out").exists() and found.studies == 3
    assert found.skipped == {NOT_DICOM: 2, SEVERAL_FRAMES: 1, "DICOM images that are no radiographs (CT)": 1}
    card = imported(root, tmp_path / "out").card
    assert card.remarks == found.skipped and "data scrub" in card.extra["identifying"]


@pytest.mark.parametrize("ids", [("A1", "A2", "A9"), ("1.1", "1.2", "9.9")])
def test_reports_come_from_a_table_by_uid_or_accession_number(root: Path, tmp_path: Path, ids: tuple[str, ...]) -> None:
    table = tmp_path / "reports.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["accession", "report", "Edema"])
        rows.writerows([name, f"FINDINGS: Heart {name}. IMPRESSION: Normal.", 0] for name in ids)
    assert import_dicom(DicomFolderConfig(root=root, reports=table, workers=1))[1] is None
    corpus = imported(root, tmp_path / "out", reports=table, columns=("auto",))
    found = {study.id: study for study in corpus}
    assert found["1.2"].sections is not None and found["1.2"].sections.findings == f"Heart {ids[1]}."
    assert found["1.1"].labels == {"Edema": 0} and found["1.3"].sections is None
    assert corpus.card.remarks[UNMATCHED] == 1 and corpus.card.absent == {"text": 1}


def test_reports_come_from_structured_reports(root: Path, tmp_path: Path) -> None:
    findings = content_item(
        "Findings", None, content_item("Finding", "Large heart."), content_item("Finding", "Effusion.")
    )
    write_report(root / "sr1", "1.1", findings, content_item("Impression", "Failure."))
    write_report(root / "sr2", "1.1", content_item("Findings", "Normal."), VerificationFlag="VERIFIED")
    write_report(root / "sr3", "1.2", content_item("Report", "FINDINGS: Clear. IMPRESSION: Normal."))
    write_report(root / "sr4", "9.9", content_item("Findings", "Of another study."))
    corpus = imported(root, tmp_path / "out")
    found = {study.id: study.sections for study in corpus}
    assert found["1.1"] is not None and found["1.1"].findings == "Normal."  # the verified one
    assert found["1.2"] is not None and (found["1.2"].findings, found["1.2"].impression) == ("Clear.", "Normal.")
    assert corpus.card.remarks[SEVERAL_REPORTS] == 1
    assert list(corpus.card.settings["made_from"]) == ["structured reports"]


def test_the_sections_of_a_structured_report_follow_from_its_concepts() -> None:
    report = Dataset()
    nested = content_item("Findings", None, content_item("Finding", "Large heart."), content_item("Lungs", "Clear."))
    report.ContentSequence = Sequence(
        [content_item("History", "Cough."), nested, content_item("Conclusions", "Normal.")]
    )
    assert structured_text(report) == {
        "indication": "Cough.",
        "findings": "Large heart.\nClear.",
        "impression": "Normal.",
    }


def test_pseudonyms_leave_no_identifier_in_the_corpus(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    import_dicom(DicomFolderConfig(root=root, workers=1, pseudonyms=True), out, dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["dicom"]  # a dry run keeps no key
    corpus = imported(root, out, pseudonyms=True)
    text = (out / "studies.jsonl").read_text() + (out / "card.yaml").read_text()
    assert not any(name in text for name in ('"1.1"', '"1.2"', "MRN1", "IM1", '"A1"'))
    lines = [json.loads(line) for line in (out / "studies.jsonl").read_text().splitlines()]
    assert len({line["patient"] for line in lines}) == 2 and lines[0]["prior"] in {line["id"] for line in lines}
    key = tmp_path / "out.pseudonyms" / "pseudonyms.key"
    assert key.stat().st_mode & 0o777 == 0o600 and not any(path.name == key.name for path in out.rglob("*"))
    names = list(corpus.ids())
    assert list(imported(root, tmp_path / "again" / "out", pseudonyms=True).ids()) != names  # another key
    (tmp_path / "same.pseudonyms").mkdir()
    (tmp_path / "same.pseudonyms" / key.name).write_bytes(key.read_bytes())
    assert list(imported(root, tmp_path / "same", pseudonyms=True).ids()) == names


def test_wrong_settings_are_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no DICOM image"):
        imported(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(ConfigError, match="--reports"):
        imported(root, tmp_path / "out", columns=("auto",))
    with pytest.raises(DataError, match="--root"):
        imported(tmp_path / "no", tmp_path / "out")
    with pytest.raises(ConfigError, match="--out"):
        imported(root, root / "out")
