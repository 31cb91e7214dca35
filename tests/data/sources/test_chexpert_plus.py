"""CheXpert Plus: several images a report, order of reports, labels beside the table, three trees of images."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan, import_corpus
from cxrlab.data.sources.chexpert import LABELS_WITHOUT_IMAGE, LISTED_TWICE, NO_LABELS, NO_SECTION, TABLE, plan

FIXTURE = Path(__file__).parent / "fixtures" / "chexpert" / "plus"
IMAGE = "train/patient99001/study1/view1_frontal"


def imported(config: ImportConfig) -> list[Imported]:
    found: ImportPlan[Any] = plan(config)
    answers = [found.read(item) for item in found.items]
    return [one for one in answers if isinstance(one, Imported)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURE, tmp_path / "plus")


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))


def test_the_thirteen_rows_are_as_written_by_hand() -> None:
    """Each expected study was derived from the rows by a person, not by the importer."""
    expected = [json.loads(line) for line in (FIXTURE / "expected.jsonl").read_text().splitlines()]
    for one, wanted in zip(imported(ImportConfig(FIXTURE)), expected, strict=True):
        assert (one.study.to_json(), list(one.remarks)) == (wanted["study"], wanted["remarks"])


def test_the_source_is_reported_and_what_belongs_to_no_study_counted() -> None:
    """Its text is the source's, so that none is made from labels."""
    found = plan(ImportConfig(FIXTURE))
    assert (found.layout, found.total, found.collections, found.label_style) == ("plus", 10, ("stanford",), None)
    assert found.remarks == {LISTED_TWICE: 1, LABELS_WITHOUT_IMAGE: 1}


@pytest.mark.parametrize("place", ["PNG/train", "PNG/PNG/train", "png_chexpert_plus_chunk_0/PNG/train", "train"])
def test_a_table_that_says_jpg_finds_its_png(root: Path, place: str) -> None:
    image = f"{place}{IMAGE.removeprefix('train')}.png"
    (root / image).parent.mkdir(parents=True)
    (root / image).write_bytes(b"x")
    assert imported(ImportConfig(root))[0].study.images[0].path == image


def test_of_several_trees_dicom_comes_last(root: Path) -> None:
    """A DICOM image is twenty times as large and slower to decode."""
    for image in (f"DICOM/{IMAGE}.dcm", f"PNG/{IMAGE}.png"):
        (root / image).parent.mkdir(parents=True)
        (root / image).write_bytes(b"x")
    assert imported(ImportConfig(root))[0].study.images[0].path == f"PNG/{IMAGE}.png"
    (root / f"PNG/{IMAGE}.png").unlink()
    assert imported(ImportConfig(root))[0].study.images[0].path == f"DICOM/{IMAGE}.dcm"


def test_labels_may_lie_in_their_own_folder_and_may_be_missing(root: Path) -> None:
    before = imported(ImportConfig(root))
    (root / "chexbert_labels").mkdir()
    (root / "report_fixed.json").rename(root / "chexbert_labels" / "report_fixed.json")
    assert imported(ImportConfig(root)) == before
    shutil.rmtree(root / "chexbert_labels")
    without = imported(ImportConfig(root))
    assert all(not one.study.labels and NO_LABELS in one.remarks for one in without)


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ("section_findings", "findings_section", "no column 'section_findings'"),
        ("train/patient99001/study1", "train/patient99001", r"240401\.csv:\d+: 'path_to_image' is"),
        (",valid\n", ",held\n", "'split' is 'held'"),
        ("patient99001,1,", "patient99001,first,", "'patient_report_date_order' is 'first'"),
    ],
)
def test_a_broken_table_is_a_sentence(root: Path, before: str, after: str, reported: str) -> None:
    changed(root / TABLE, before, after)
    with pytest.raises(DataError, match=reported) as error:
        plan(ImportConfig(root))
    assert "wax" not in str(error.value).lower(), "no word of a report in a message"


def test_a_study_in_two_splits_is_refused(root: Path) -> None:
    """The last row of the study that has two images is moved to another split."""
    head, found, tail = (root / TABLE).read_text().rpartition("88.0,Female,,,,,,,train")
    assert found
    (root / TABLE).write_text(f"{head}88.0,Female,,,,,,,valid{tail}")
    with pytest.raises(DataError, match="puts patient99002/study1 in another split than an earlier row"):
        plan(ImportConfig(root))


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ('"Edema": -1.0', '"Edema": 3', r"report_fixed\.json:2: 'Edema' is 3"),
        ('"Edema": -1.0', '"Oedema": -1.0', r"report_fixed\.json:2 has no 'Edema'"),
        ('"path_to_image"', '"image"', r"report_fixed\.json:1: 'path_to_image' is ''"),
        ('{"path', '["path', r"report_fixed\.json:1 is not valid JSON"),
    ],
)
def test_a_broken_file_of_labels_is_a_sentence(root: Path, before: str, after: str, reported: str) -> None:
    changed(root / "report_fixed.json", before, after)
    with pytest.raises(DataError, match=reported):
        plan(ImportConfig(root))


def test_undefined_labels_are_unknown(root: Path) -> None:
    """Other programs write NaN where JSON has null."""
    changed(root / "report_fixed.json", '"Edema": -1.0', '"Edema": NaN')
    assert not imported(ImportConfig(root))[1].study.labels


def test_a_report_in_which_nothing_is_found_has_no_sections(root: Path) -> None:
    changed(root / TABLE, '"FINDINGS: Sunken wax.\nIMPRESSION: Wax effusion."', "FINAL REPORT")
    one = imported(ImportConfig(root))[5]
    assert one.study.sections is None and one.study.report == "FINAL REPORT" and NO_SECTION in one.remarks


def test_an_import_gives_the_same_corpus_with_any_number_of_workers(root: Path, tmp_path: Path) -> None:
    one, two = (
        import_corpus("chexpert", ImportConfig(root, workers=count), tmp_path / f"corpus{count}") for count in (1, 2)
    )
    assert one.file.read_bytes() == two.file.read_bytes()
    assert one.card.counts == {"studies": 10, "patients": 8, "images": 0, "train": 8, "val": 2}
    assert not any(study.structured for study in one)


def test_a_split_that_is_not_given_is_that_of_the_path(tmp_path: Path) -> None:
    """A table that went through another program says nan."""
    table = tmp_path / "df_chexpert_plus_240401.csv"
    text = (FIXTURE / table.name).read_text(encoding="utf-8")
    table.write_text(re.sub(r",(train|valid)(?=\n)", ",nan", text), encoding="utf-8")
    splits = [one.study.split for one in imported(ImportConfig(tmp_path))]
    assert splits == [one.study.split for one in imported(ImportConfig(FIXTURE))]
