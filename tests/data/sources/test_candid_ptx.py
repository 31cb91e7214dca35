"""CANDID-PTX: a byte-order mark, several rows an image, masks as runs, tables of other findings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dicom_images import write_image
from importing import expected, study_lines

from cxrlab.core.errors import DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources.candid_ptx import MASK_WITHOUT_IMAGE, plan

FIXTURE = Path(__file__).parent / "fixtures" / "candid_ptx"
REPORTS = "Pneumothorax_reports.csv"


def test_the_studies_are_as_written_by_hand() -> None:
    """The fixture begins with the mark EF BB BF, which must not become part of the first column's name."""
    assert (FIXTURE / REPORTS).read_bytes()[:3] == b"\xef\xbb\xbf"
    assert study_lines("candid-ptx", FIXTURE) == expected(FIXTURE)


def test_masks_for_images_without_a_report_are_counted() -> None:
    """Image 9.9 has two masks in the table of tubes and no row in the table of reports."""
    assert plan(ImportConfig(FIXTURE)).remarks == {MASK_WITHOUT_IMAGE: 2}


def test_what_no_table_states_is_unknown(tmp_path: Path) -> None:
    """Without the tables of tubes and fractures nothing is known of either, even where an image has none."""
    shutil.copy(FIXTURE / REPORTS, tmp_path)
    by_id = {line["study"]["id"]: line["study"] for line in study_lines("candid-ptx", tmp_path) if "study" in line}
    assert by_id["S1"]["own_labels"] == {"pneumothorax": 1} and by_id["S1"]["labels"] == {"Pneumothorax": 1}
    assert "own_labels" not in by_id["S3"]


def test_the_other_name_of_the_fracture_table_and_of_its_column(tmp_path: Path) -> None:
    shutil.copy(FIXTURE / REPORTS, tmp_path)
    text = (FIXTURE / "acute_rib_fracture.csv").read_text().replace("anon_SOPUID", "SOPInstanceUID")
    (tmp_path / "Rib_fracture_mask_rle.csv").write_text(text)
    by_id = {line["study"]["id"]: line["study"] for line in study_lines("candid-ptx", tmp_path) if "study" in line}
    assert by_id["S2"]["own_labels"] == {"pneumothorax": 1, "acute rib fracture": 1}


def test_images_with_and_without_an_ending_state_view_age_sex_and_size(tmp_path: Path) -> None:
    """On an image of 32 rows, skipping 1030 pixels leads to column 32, row 6, which an image of 40 columns has."""
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    write_image(tmp_path / "dataset" / "1.1", 32, 40, PatientAge="045Y", PatientSex="F", ViewPosition="PA")
    write_image(tmp_path / "dataset" / "1.2.dcm", 32, 40, ViewPosition="AP")
    study = next(
        line["study"] for line in study_lines("candid-ptx", tmp_path) if line.get("study", {}).get("id") == "S1"
    )
    assert study["images"] == [{"path": "dataset/1.1", "view": "PA"}, {"path": "dataset/1.2.dcm", "view": "AP"}]
    assert (study["age"], study["sex"]) == (45, "F")
    assert study["boxes"][-1] == {"label": "pneumothorax", "corners": [32.0, 6.0, 33.0, 9.0], "image": 1}


def test_the_view_of_a_image_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """It would otherwise count as frontal, though its remark says that the view was left out."""
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "dataset").mkdir(exist_ok=True)
    (tmp_path / "dataset" / "1.1").write_bytes(bytes(128) + b"DICM" + b"\xff" * 40)
    write_image(tmp_path / "dataset" / "1.2.dcm", 32, 40)
    study = next(
        line["study"] for line in study_lines("candid-ptx", tmp_path) if line.get("study", {}).get("id") == "S1"
    )
    assert study["images"] == [{"path": "dataset/1.1"}, {"path": "dataset/1.2.dcm", "view": "frontal"}]


def test_the_source_text_stands_beside_text_from_labels(tmp_path: Path) -> None:
    corpus = import_corpus("candid-ptx", ImportConfig(FIXTURE, workers=1), tmp_path / "corpus")
    assert corpus.card.dropped == {"one study for several patients": 1, "row without the id of an image": 1}
    study = corpus["S1"]
    assert study.sections is not None and study.sections.impression == "Right pneumothorax."
    assert study.structured["labels"]["findings"]


@pytest.mark.parametrize("column", ["SOPInstanceUID", "StudyInstanceUID", "filename", "EncodedPixels", "Report"])
def test_a_missing_column_is_a_sentence(tmp_path: Path, column: str) -> None:
    text = (FIXTURE / REPORTS).read_text(encoding="utf-8-sig")
    (tmp_path / REPORTS).write_text(text.replace(column, "other", 1))
    with pytest.raises(DataError, match=f"no column '{column}'"):
        plan(ImportConfig(tmp_path))


def test_a_folder_without_the_table_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not hold the table of reports and masks"):
        plan(ImportConfig(tmp_path))
