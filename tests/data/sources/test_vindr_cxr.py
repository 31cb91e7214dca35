"""VinDr-CXR: three readers an image, a consensus without readers, Kaggle's table, images in one table only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from dicom_images import write_image
from importing import expected, study_lines

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.label_maps import VINDR_CXR
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources.vindr_cxr import FINDINGS, KAGGLE_FINDINGS, plan

FIXTURES = Path(__file__).parent / "fixtures"
PHYSIONET, KAGGLE = FIXTURES / "vindr_cxr", FIXTURES / "vindr_kaggle"
ASKED = {
    "all": tuple(VINDR_CXR),
    "all but COPD": tuple(name for name in VINDR_CXR if name != "COPD"),
    "findings": (*FINDINGS, "No finding"),
    "kaggle": (*KAGGLE_FINDINGS, "No finding"),
}


def written_out(fixture: Path) -> list[dict[str, Any]]:
    """The studies written by hand; `zero` names the labels that are 0 where the line gives nothing else."""
    lines = expected(fixture)
    for line in lines:
        line["study"]["own_labels"] = {**dict.fromkeys(ASKED[line.pop("zero")], 0), **line["study"]["own_labels"]}
    return lines


@pytest.mark.parametrize("fixture", [PHYSIONET, KAGGLE])
def test_the_images_are_as_written_by_hand(fixture: Path) -> None:
    """Two of three readers make a 1, one of three a -1; two of two would be needed where only two read."""
    assert study_lines("vindr-cxr", fixture) == written_out(fixture)


def test_there_are_22_findings_and_kaggle_has_14_of_them() -> None:
    assert len(FINDINGS) == 22 and len(KAGGLE_FINDINGS) == 14 and set(KAGGLE_FINDINGS) < set(FINDINGS)


def test_the_layout_is_found_or_chosen(tmp_path: Path) -> None:
    assert plan(ImportConfig(PHYSIONET)).layout == "physionet"
    assert plan(ImportConfig(KAGGLE)).layout == "kaggle"
    with pytest.raises(DataError, match=r"does not hold train\.csv, Kaggle's table"):
        plan(ImportConfig(PHYSIONET, layout="kaggle"))
    with pytest.raises(DataError, match="image_labels_train"):
        plan(ImportConfig(tmp_path))
    with pytest.raises(ConfigError, match="Did you mean 'kaggle'"):
        plan(ImportConfig(KAGGLE, layout="kagle"))


def test_registries_beside_the_images_and_one_split_alone_are_read(tmp_path: Path) -> None:
    shutil.copy(PHYSIONET / "annotations" / "image_labels_test.csv", tmp_path)
    assert [line["study"]["id"] for line in study_lines("vindr-cxr", tmp_path)] == ["t1", "t2"]


def test_age_and_sex_come_from_the_header_of_the_image(tmp_path: Path) -> None:
    """000Y stands for an unknown age here, since no child is in the data set; a copy as PNG has no header."""
    shutil.copytree(PHYSIONET, tmp_path, dirs_exist_ok=True)
    write_image(tmp_path / "train" / "a1.dicom", PatientAge="061Y", PatientSex="F")
    write_image(tmp_path / "train" / "b2.dicom", PatientAge="000Y", PatientSex="M")
    (tmp_path / "train" / "c3.png").write_bytes(b"\x89PNG")
    (tmp_path / "train" / "d4.dicom").write_bytes(b"\0" * 128 + b"DICM" + b"\xff" * 40)
    by_id = {line["study"]["id"]: line for line in study_lines("vindr-cxr", tmp_path)}
    assert (by_id["a1"]["study"]["age"], by_id["a1"]["study"]["sex"], by_id["a1"]["remarks"]) == (61, "F", [])
    assert "age" not in by_id["b2"]["study"] and by_id["b2"]["study"]["sex"] == "M"
    assert by_id["b2"]["remarks"] == ["age 0 in the header of an adult, left out"]
    assert by_id["c3"]["study"]["images"] == [{"path": "train/c3.png", "view": "PA"}]
    assert by_id["d4"]["remarks"] == ["DICOM header not readable; age, sex and view left out"]


def test_text_from_labels_never_stands_in_the_test_split(tmp_path: Path) -> None:
    corpus = import_corpus("vindr-cxr", ImportConfig(PHYSIONET, workers=1), tmp_path / "corpus")
    assert corpus.card.counts == {"studies": 8, "patients": 8, "images": 0, "train": 6, "test": 2}
    assert all(bool(study.structured) == (study.split == "train") for study in corpus)


@pytest.mark.parametrize(
    ("table", "before", "after", "told_of"),
    [
        ("annotations_train", "b2,R8,Cardiomegaly,100.5", "b2,R8,Cardiomegaly,", r"train\.csv:5 holds the box"),
        ("annotations_train", "5,6,70,80", "5,6,4,80", r"train\.csv:13 holds the box"),
        ("annotations_train", "5,6,70,80", "5,6,inf,80", r"train\.csv:13 holds the box"),
        ("annotations_train", "Nodule/Mass", "Nodul", r"train\.csv:10: 'class_name' is 'Nodul'"),
        ("annotations_train", "class_name", "class", "no column 'class_name'"),
        ("annotations_test", "t2,", "a1,", "which the train tables list too"),
        ("annotations_test", "t2,", ",", r"test\.csv:2 has an empty 'image_id'"),
        ("image_labels_train", "b2,R9", "b2,R8", r"csv:6 lists image b2 a second time for the same reader"),
        ("image_labels_train", "a1,R8,0", "a1,R8,maybe", r"csv:2: 'Aortic enlargement' is 'maybe'"),
        ("image_labels_test", "No finding", "Normal", "no column 'No finding'"),
    ],
)
def test_a_broken_table_is_a_sentence(tmp_path: Path, table: str, before: str, after: str, told_of: str) -> None:
    shutil.copytree(PHYSIONET, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "annotations" / f"{table}.csv"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(DataError, match=told_of):
        plan(ImportConfig(tmp_path))
