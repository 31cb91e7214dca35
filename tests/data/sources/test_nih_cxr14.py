"""NIH ChestX-ray14: bracket headers, boxes, official lists, follow-ups out of order."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, import_corpus
from cxrlab.data.sources.nih_cxr14 import BOX_WITHOUT_IMAGE, ODD_VIEW, plan

FIXTURE = Path(__file__).parent / "fixtures" / "nih_cxr14"


def imported(root: Path) -> list[Imported]:
    found = plan(ImportConfig(root))
    answers = [found.read(item) for item in found.items]
    assert all(isinstance(one, Imported) for one in answers)
    return [one for one in answers if isinstance(one, Imported)]


def test_the_twelve_images_are_as_written_by_hand() -> None:
    """Each expected study was derived from the rows by a person, not by the importer."""
    expected = [json.loads(line) for line in (FIXTURE / "expected.jsonl").read_text().splitlines()]
    answers = imported(FIXTURE)
    assert len(expected) == 12
    for one, wanted in zip(answers, expected, strict=True):
        assert (one.study.to_json(), list(one.remarks)) == (wanted["study"], wanted["remarks"])


def test_a_box_for_an_unknown_image_is_counted() -> None:
    """The fourth box of the fixture is for an image that no row lists."""
    assert plan(ImportConfig(FIXTURE)).remarks == {BOX_WITHOUT_IMAGE: 1}


def test_the_older_table_has_a_last_comma_and_another_word_for_sex() -> None:
    """Ages are written as in DICOM there; six months are half a year."""
    first, second = imported(FIXTURE / "older")
    assert (first.study.age, first.study.sex, first.study.split) == (58, "M", None)
    assert (second.study.age, second.study.sex) == (0.5, "F")
    assert not first.remarks and not second.remarks, "without the official lists no image can be missing from them"


def test_images_are_found_in_the_twelve_folders_of_the_download(tmp_path: Path) -> None:
    shutil.copy(FIXTURE / "Data_Entry_2017_v2020.csv", tmp_path)
    for name in ("images_001/images/00000001_000.png", "images_012/images/00000009_000.png", "00000002_000.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    paths = {one.study.id: one.study.images[0].path for one in imported(tmp_path)}
    assert paths["00000001_000"] == "images_001/images/00000001_000.png"
    assert paths["00000009_000"] == "images_012/images/00000009_000.png"
    assert paths["00000002_000"] == "00000002_000.png"


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ("Finding Labels", "Labels", "no column 'Finding Labels'"),
        ("Cardiomegaly,0", "Cardiomegoly,0", r"csv:\d+: 'Finding Labels' holds 'Cardiomegoly'. Did you mean"),
        (",0,2,80", ",x,2,80", "Follow-up"),
        (",0,2,80", f",{'9' * 5000},2,80", "Follow-up"),
        (",0,2,80", ",0,two,80", "Patient ID"),
        ("00000002_000.png", "", r"csv:\d+: 'Image Index' is ''"),
        (
            "00000002_000.png",
            "00000001_000.png",
            r"csv:\d+: 'Image Index' is '00000001_000.png', no image or one listed",
        ),
        ("57,M,PA,", "57,M,PA", ":2 has 10 cells"),
    ],
)
def test_a_broken_table_is_a_sentence(tmp_path: Path, before: str, after: str, reported: str) -> None:
    text = (FIXTURE / "Data_Entry_2017_v2020.csv").read_text()
    (tmp_path / "Data_Entry_2017_v2020.csv").write_text(text.replace(before, after, 1))
    with pytest.raises(DataError, match=reported):
        imported(tmp_path)


def test_a_view_by_another_word_is_unknown(tmp_path: Path) -> None:
    """Not frontal: the import says so. That no study has a text, and one no split, stands on the card."""
    shutil.copytree(FIXTURE, tmp_path / "source")
    table = tmp_path / "source" / "Data_Entry_2017_v2020.csv"
    table.write_text(table.read_text().replace("57,M,PA,", "57,M,LL,", 1))
    first = imported(tmp_path / "source")[0]
    assert first.study.images[0].view is None and first.remarks == (ODD_VIEW,)
    corpus = import_corpus("nih-cxr14", ImportConfig(tmp_path / "source", workers=1), tmp_path / "c")
    assert corpus.card.absent == {"text": 12, "split": 1}, "its images are not in the folder"


def test_a_label_that_is_not_a_number_is_unknown(tmp_path: Path) -> None:
    text = (FIXTURE / "Data_Entry_2017_v2020.csv").read_text()
    (tmp_path / "Data_Entry_2017_v2020.csv").write_text(text.replace(",Cardiomegaly,0", ",nan,0", 1))
    assert imported(tmp_path)[0].study.own_labels == {}


def test_a_box_that_is_no_box_and_a_image_in_both_lists_are_sentences(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path / "a")
    (tmp_path / "a" / "BBox_List_2017.csv").write_text(
        "Image Index,Finding Label,Bbox [x,y,w,h],,,\nx.png,Mass,1,2,3,q\n"
    )
    with pytest.raises(DataError, match=r"BBox_List_2017\.csv:2"):
        plan(ImportConfig(tmp_path / "a"))
    shutil.copytree(FIXTURE, tmp_path / "b")
    shutil.copy(FIXTURE / "train_val_list.txt", tmp_path / "b" / "test_list.txt")
    with pytest.raises(DataError, match="both name 00000001_000"):
        plan(ImportConfig(tmp_path / "b"))


@pytest.mark.real_data
@pytest.mark.full
def test_the_whole_table_and_its_boxes(real_data: Path, tmp_path: Path) -> None:
    """112,120 rows of 30,805 patients; 984 boxes on 880 images, as the data set's authors count them."""
    corpus = import_corpus("nih-cxr14", ImportConfig(real_data / "nih_cxr14"), tmp_path / "nih")
    assert corpus.card.counts == {"studies": 112120, "patients": 30805, "images": 2}
    boxes: Counter[str] = Counter()
    images = 0
    for _, study in read_jsonl(corpus.file):  # the lines as they are: making studies of them takes half a minute
        images += bool(study.get("boxes"))
        boxes.update(box["label"] for box in study.get("boxes") or ())
    assert (images, boxes.total()) == (880, 984)
    assert boxes["Atelectasis"] == 180 and boxes["Infiltration"] == 123
