"""object-CXR: rectangles, ellipses and polygons, three tables, names that repeat between them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from importing import expected, study_lines

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources.object_cxr import TWICE, plan

FIXTURE = Path(__file__).parent / "fixtures" / "object_cxr"


def test_the_twelve_images_are_as_written_by_hand() -> None:
    """Image 00001 is in train and in test: the id says of which."""
    assert study_lines("object-cxr", FIXTURE) == expected(FIXTURE)


def test_images_are_found_in_one_folder_too(tmp_path: Path) -> None:
    for table in ("train.csv", "dev.csv"):
        shutil.copy(FIXTURE / table, tmp_path)
    for name in ("00001.jpg", "images/00002.jpg", "images/dev/08001.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    paths = {line["study"]["id"]: line["study"]["images"][0]["path"] for line in study_lines("object-cxr", tmp_path)}
    assert paths["train-00001"] == "00001.jpg"
    assert paths["train-00002"] == "images/00002.jpg"
    assert paths["dev-08001"] == "images/dev/08001.jpg"
    assert paths["train-00003"] == "train/00003.jpg", "an absent image keeps its usual place"


def test_text_from_labels_stands_in_train_and_val_alone(tmp_path: Path) -> None:
    corpus = import_corpus("object-cxr", ImportConfig(FIXTURE, workers=1), tmp_path / "corpus")
    assert corpus.card.counts == {"studies": 12, "patients": 12, "images": 0, "train": 8, "val": 2, "test": 2}
    assert {study.split: bool(study.structured) for study in corpus} == {"train": True, "val": True, "test": False}


def test_a_test_table_without_annotations_leaves_the_label_unknown(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("image_name\n09001.jpg\n")
    (line,) = study_lines("object-cxr", tmp_path)
    assert "own_labels" not in line["study"] and "boxes" not in line["study"]


def test_a_image_listed_twice_and_a_row_without_a_name_are_counted(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("image_name,annotation\na.jpg,\na.jpg,\n,0 1 2 3 4\n")
    assert plan(ImportConfig(tmp_path)).remarks == {TWICE: 1}
    assert study_lines("object-cxr", tmp_path)[1] == {
        "dropped": "train line 4",
        "reason": "row without the name of an image",
    }


@pytest.mark.parametrize("cell", ["0 1 2 3", "3 1 2 3 4", "2 1 2 3 4", "2 1 2 3 4 5 6 7", "0 1 2 3 x", "0 1 2 3 inf"])
def test_a_shape_that_is_none_is_a_sentence_with_its_line(tmp_path: Path, cell: str) -> None:
    """Three numbers, an unknown kind, a polygon of two corners, half a point, a letter, no finite number."""
    (tmp_path / "train.csv").write_text(f"image_name,annotation\nb.jpg,\na.jpg,{cell}\n")
    with pytest.raises(DataError, match=r"train\.csv:3: 'annotation'"):
        plan(ImportConfig(tmp_path))


def test_a_folder_without_tables_and_a_layout_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"looked for train\.csv, dev\.csv, test\.csv"):
        plan(ImportConfig(tmp_path))
    with pytest.raises(ConfigError, match="It has one only; leave it out"):
        plan(ImportConfig(FIXTURE, layout="csv"))
    (tmp_path / "dev.csv").write_text("image,annotation\na.jpg,\n")
    with pytest.raises(DataError, match="no column 'image_name'"):
        plan(ImportConfig(tmp_path))
