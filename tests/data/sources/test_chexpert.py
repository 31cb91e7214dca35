"""CheXpert v1: path prefixes, several images a study, unknown ages, tables of three splits."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan, import_corpus
from cxrlab.data.sources.chexpert import LISTED_TWICE, plan

FIXTURE = Path(__file__).parent / "fixtures" / "chexpert" / "v1"
IMAGE = "patient99001/study1/view1_frontal.jpg"


def imported(config: ImportConfig) -> list[Imported]:
    found: ImportPlan[Any] = plan(config)
    answers = [found.read(item) for item in found.items]
    assert all(isinstance(one, Imported) for one in answers)
    return [one for one in answers if isinstance(one, Imported)]


def first_path(config: ImportConfig) -> str:
    return imported(config)[0].study.images[0].path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the fixture, by the name that the host gives it, that a test may change."""
    return shutil.copytree(FIXTURE, tmp_path / "data" / "CheXpert-v1.0-small")


def test_the_sixteen_rows_are_as_written_by_hand() -> None:
    """Each expected study was derived from the rows by a person, not by the importer."""
    expected = [json.loads(line) for line in (FIXTURE / "expected.jsonl").read_text().splitlines()]
    for one, wanted in zip(imported(ImportConfig(FIXTURE)), expected, strict=True):
        assert (one.study.to_json(), list(one.remarks)) == (wanted["study"], wanted["remarks"])


def test_the_source_is_reported_and_a_image_listed_twice_counted() -> None:
    found = plan(ImportConfig(FIXTURE))
    assert (found.layout, found.total, found.collections) == ("small", 11, ("stanford",))
    assert found.remarks == {LISTED_TWICE: 1} and found.label_style == "chexpert"


def test_the_root_may_be_the_folder_or_the_one_above(root: Path) -> None:
    """The tables begin each path with the folder's name; the disk has it once or not at all."""
    (root / "train" / IMAGE).parent.mkdir(parents=True)
    (root / "train" / IMAGE).write_bytes(b"x")
    assert first_path(ImportConfig(root)) == f"train/{IMAGE}"
    assert first_path(ImportConfig(root.parent)) == f"CheXpert-v1.0-small/train/{IMAGE}"
    renamed = root.rename(root.parent / "images of Stanford")
    assert first_path(ImportConfig(renamed)) == f"train/{IMAGE}"
    assert first_path(ImportConfig(renamed.parent)) == f"images of Stanford/train/{IMAGE}"


def test_images_that_are_not_there_are_looked_for_in_the_right_place(root: Path) -> None:
    assert first_path(ImportConfig(root)) == f"train/{IMAGE}"


def test_batches_side_by_side_are_found(tmp_path: Path) -> None:
    """The full release comes in folders of which one holds the tables and valid, the others patients without train/."""
    tables = shutil.copytree(FIXTURE, tmp_path / "CheXpert-v1.0 batch 1 (validate & csv)")
    for table in tables.glob("*.csv"):
        table.write_text(table.read_text().replace("CheXpert-v1.0-small/", "CheXpert-v1.0/"))
    second = f"CheXpert-v1.0 batch 2 (train 1)/{IMAGE}"
    third = "CheXpert-v1.0 batch 3 (train 2)/patient99003/study1/view1_frontal.jpg"
    valid = "CheXpert-v1.0 batch 1 (validate & csv)/valid/patient99541/study1/view1_frontal.jpg"
    for image in (second, third, valid):
        (tmp_path / image).parent.mkdir(parents=True)
        (tmp_path / image).write_bytes(b"x")
    paths = {one.study.id: one.study.images[0].path for one in imported(ImportConfig(tmp_path))}
    assert paths["patient99001/study1"] == second
    assert paths["patient99003/study1"] == third
    assert paths["patient99541/study1"] == valid
    assert plan(ImportConfig(tmp_path)).layout == "v1"


def test_two_releases_under_one_root_ask_for_the_layout(root: Path) -> None:
    full = shutil.copytree(root, root.parent / "CheXpert-v1.0")
    for table in full.glob("*.csv"):
        table.write_text(table.read_text().replace("CheXpert-v1.0-small/", "CheXpert-v1.0/"))
    for folder in (root, full):
        (folder / "train" / IMAGE).parent.mkdir(parents=True)
        (folder / "train" / IMAGE).write_bytes(b"x")
    with pytest.raises(DataError, match="v1 and small.*--layout"):
        plan(ImportConfig(root.parent))
    for layout, folder in (("v1", "CheXpert-v1.0"), ("small", "CheXpert-v1.0-small")):
        assert first_path(ImportConfig(root.parent, layout=layout)) == f"{folder}/train/{IMAGE}"


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ("Frontal/Lateral", "View", "no column 'Frontal/Lateral'"),
        (",Edema", ",Oedema", "no column 'Edema'"),
        ("/study1/view1_frontal.jpg", "/view1_frontal.jpg", r"train\.csv:2: 'Path' is"),
        (",-1.0,1.0", ",-1.0,7", r"train\.csv:3: 'Lung Opacity' is '7'"),
    ],
)
def test_a_broken_table_is_a_sentence(root: Path, before: str, after: str, reported: str) -> None:
    text = (root / "train.csv").read_text()
    assert before in text
    (root / "train.csv").write_text(text.replace(before, after, 1))
    with pytest.raises(DataError, match=reported):
        plan(ImportConfig(root))


def test_a_study_in_two_splits_is_refused(root: Path) -> None:
    """Whoever cut a valid.csv of his own out of train.csv would test on what was trained on."""
    (root / "valid.csv").write_text((root / "train.csv").read_text())
    with pytest.raises(DataError, match=r"valid\.csv:2 lists patient99001/study1, which the table of another split"):
        plan(ImportConfig(root))


def test_one_table_is_enough(root: Path) -> None:
    """The external validation set is valid.csv alone."""
    (root / "train.csv").unlink()
    (root / "test_labels.csv").unlink()
    assert [one.study.split for one in imported(ImportConfig(root))] == ["val", "val"]


def test_a_folder_without_tables_and_an_unknown_layout_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not hold CheXpert's tables: looked for train\.csv"):
        plan(ImportConfig(tmp_path))
    with pytest.raises(DataError, match=r"of the layout 'plus': looked for df_chexpert_plus_240401\.csv"):
        plan(ImportConfig(tmp_path, layout="plus"))
    with pytest.raises(ConfigError, match="Choose one of v1, small, plus"):
        plan(ImportConfig(tmp_path, layout="large"))
    with pytest.raises(DataError, match="does not exist"):
        plan(ImportConfig(tmp_path / "nowhere"))


def test_an_import_makes_text_from_labels_except_for_the_test_split(root: Path, tmp_path: Path) -> None:
    (root / "train" / IMAGE).parent.mkdir(parents=True)
    (root / "train" / IMAGE).write_bytes(b"x")
    corpus = import_corpus("chexpert", ImportConfig(root, workers=1), tmp_path / "corpus")
    assert corpus.card.counts == {
        "studies": 11, "patients": 9, "images": 1, "train": 8, "val": 2, "test": 1,
    }  # fmt: skip
    first = corpus["patient99001/study1"]
    assert first.images[0].path == f"images/train/{IMAGE}" and first.structured["labels"]["findings"]
    assert first.sections is None and first.report is None
    assert not corpus["patient99741/study1"].structured


def test_a_folder_that_may_not_be_read_is_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "denied", str(folder))

    monkeypatch.setattr("os.scandir", refused)
    with pytest.raises(DataError, match="CheXpert-v1.0-small: permission is denied"):
        plan(ImportConfig(root))


def test_registries_of_one_release_may_lie_in_several_folders(tmp_path: Path, root: Path) -> None:
    """Stanford ships train and valid in one archive and test in another; a loop of links does not matter."""
    release = tmp_path / "release"
    shutil.copytree(root, release / "CheXpert-v1.0 batch 1 (validate & csv)")
    (release / "CheXpert").mkdir()
    (release / "CheXpert-v1.0 batch 1 (validate & csv)" / "test_labels.csv").rename(
        release / "CheXpert" / "test_labels.csv"
    )
    (release / "CheXpert-v1.0 batch 2 (train 1)" / IMAGE).parent.mkdir(parents=True)
    (release / "CheXpert-v1.0 batch 2 (train 1)" / IMAGE).write_bytes(b"x")
    (release / "circle").symlink_to("circle")
    found = imported(ImportConfig(release))
    assert [one.study.to_json()["split"] for one in found] == [
        one.study.split for one in imported(ImportConfig(FIXTURE))
    ]
    assert found[0].study.images[0].path == f"CheXpert-v1.0 batch 2 (train 1)/{IMAGE}"
