"""IU X-ray in R2Gen's layout: which numbered file is which image, views by table or picture, other spellings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chest_images import frontal_images, png, side_image
from importing import expected, study_lines

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import OUTSIDE_FOLDER, import_corpus
from cxrlab.data.sources.iu_xray import NOT_IN_TABLE, plan
from cxrlab.data.sources.openi import FROM_PICTURE, SHOWS_NOTHING, UNDECODABLE

FIXTURE = Path(__file__).parent / "fixtures" / "iu_xray"


def written(root: Path, *rows: dict[str, Any], **images: bytes) -> Path:
    """A folder with these studies of train; images by `<k>` of the first one."""
    root.mkdir(exist_ok=True)
    (root / "annotation.json").write_text(json.dumps({"train": list(rows)}))
    for name, data in images.items():
        path = root / "images" / rows[0]["id"] / f"{name.removeprefix('f')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def row(name: str = "CXR7_IM-0001", paths: tuple[str, ...] | None = None) -> dict[str, Any]:
    return {"id": name, "report": "Clear.", "image_path": list(paths or (f"{name}/0.png", f"{name}/1.png"))}


def test_the_thirteen_studies_are_as_written_by_hand() -> None:
    """Files are numbered in the order of the images' names as text (10001 before 9001), not in that of the table."""
    assert study_lines("iu-xray", FIXTURE) == expected(FIXTURE)


def test_without_the_table_the_pictures_state(tmp_path: Path) -> None:
    """The front view is found wherever it stands, and how sure that is stands beside it."""
    root = written(tmp_path / "iu", row(), f0=png(side_image()), f1=png(frontal_images()[0]))
    corpus = import_corpus("iu-xray", ImportConfig(root, workers=1), tmp_path / "out")
    lateral, frontal = next(iter(corpus)).images
    assert (lateral.view, frontal.view) == (View.LATERAL, View.FRONTAL)
    for image in (lateral, frontal):
        assert image.extra["view_from"] == "image" and 0.9 < image.extra["view_confidence"] <= 1
    assert corpus.card.remarks == {FROM_PICTURE: 1}
    assert corpus.card.settings["layout"] == "r2gen" and corpus.card.collections == ("indiana",)


def test_the_table_may_lie_elsewhere_and_wins_over_the_picture(tmp_path: Path) -> None:
    """Its word is the collection's own; the pictures here are swapped to see who is believed."""
    name = "CXR4101_IM-5001"
    root = written(tmp_path / "iu", row(name), f0=png(side_image()), f1=png(frontal_images()[0]))
    config = ImportConfig(root, projections=FIXTURE / "indiana_projections.csv", workers=1)
    corpus = import_corpus("iu-xray", config, tmp_path / "out")
    assert [image.view for image in next(iter(corpus)).images] == [View.FRONTAL, View.LATERAL]
    assert corpus.card.settings["layout"] == "r2gen with projections"


def test_a_image_that_the_table_forgot_is_looked_at(tmp_path: Path) -> None:
    """The second image of number 2084 is blank and no row of the table, so that it must not take its neighbour's row."""
    name = "CXR2084_IM-0715-1001"
    root = written(tmp_path / "iu", row(name), f0=png(frontal_images()[0]), f1=png(np.ones((64, 64), np.float32)))
    (told_of,) = study_lines("iu-xray", root, projections=FIXTURE / "indiana_projections.csv")
    assert [image["view"] for image in told_of["study"]["images"]] == ["frontal", "other"]
    assert told_of["remarks"] == [SHOWS_NOTHING, NOT_IN_TABLE]


def test_a_image_that_cannot_be_decoded_costs_its_view_alone(tmp_path: Path) -> None:
    root = written(tmp_path / "iu", row(), f0=b"no picture", f1=png(frontal_images()[0]))
    (one,) = study_lines("iu-xray", root)
    assert [image["view"] for image in one["study"]["images"]] == ["other", "frontal"]
    assert one["remarks"] == [UNDECODABLE, FROM_PICTURE]


def test_images_with_another_ending_or_beside_the_annotation_are_found(tmp_path: Path) -> None:
    """Copies of the data set are re-encoded as JPEG, and some lack the folder images."""
    name = "CXR7_IM-0001"
    root = written(tmp_path / "iu", row(name))
    for place in (root / "images" / name / "0.jpg", root / name / "1.png"):
        place.parent.mkdir(parents=True)
        place.write_bytes(png(frontal_images()[0]))
    (one,) = study_lines("iu-xray", root)
    assert [image["path"] for image in one["study"]["images"]] == [f"images/{name}/0.jpg", f"{name}/1.png"]


def test_a_path_that_leaves_the_folder_is_neither_read_nor_kept(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png(frontal_images()[0]))
    root = written(tmp_path / "iu", row(paths=("../../secret.png",)), row("CXR8_IM-0002"))
    corpus = import_corpus("iu-xray", ImportConfig(root, workers=1), tmp_path / "out")
    assert corpus.card.dropped == {OUTSIDE_FOLDER: 1} and [study.id for study in corpus] == ["CXR8_IM-0002"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "is not an annotation of R2Gen"),
        ({"training": []}, "is not an annotation of R2Gen"),
        ({"train": {}}, "'train' is {}, not a list"),
        ({"train": []}, "lists no study"),
        ({"train": ["x"]}, "study 1 of train is 'x'"),
        ({"train": [{"report": "x", "image_path": []}]}, "study 1 of train has no 'id'"),
        ({"train": [{"id": "a", "image_path": []}]}, "has no text 'report'"),
        ({"train": [{"id": "a", "report": "x", "image_path": "a/0.png"}]}, "no list of files 'image_path'"),
        ({"train": [{**row(), "split": "test"}]}, "has the split 'test'"),
        ({"train": [row()], "test": [row()]}, "lists 'CXR7_IM-0001' twice, in train and test"),
    ],
)
def test_a_broken_annotation_is_a_sentence(tmp_path: Path, content: object, sentence: str) -> None:
    (tmp_path / "annotation.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=sentence):
        plan(ImportConfig(tmp_path))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("uid,filename,projection\n", "lists no image"),
        ("uid,filename\n1,1_IM-0001-3001.dcm.png\n", "no column 'projection'"),
        ("uid,filename,projection\n1,scan.png,Frontal\n", ":2: 'scan.png' is not an image"),
        ("uid,filename,projection\n1,1_IM-0001-3001.dcm.png,Oblique\n", ":2: the projection is 'Oblique'"),
        (
            "uid,filename,projection\n1,1_IM-0001-3001.dcm.png,Frontal\n1,1_IM-0001-3001.dcm.png,Lateral\n",
            ":3: 1_IM-0001-3001.dcm.png has two projections",
        ),
    ],
)
def test_a_broken_table_of_views_is_a_sentence(tmp_path: Path, table: str, sentence: str) -> None:
    written(tmp_path, row())
    (tmp_path / "views.csv").write_text(table)
    with pytest.raises(DataError, match=sentence):
        plan(ImportConfig(tmp_path, projections=tmp_path / "views.csv"))


def test_a_table_that_is_not_there_and_a_layout_that_is_none_are_sentences(tmp_path: Path) -> None:
    written(tmp_path, row())
    with pytest.raises(DataError, match="nowhere.csv does not exist"):
        plan(ImportConfig(tmp_path, projections=tmp_path / "nowhere.csv"))
    with pytest.raises(ConfigError, match="one only"):
        plan(ImportConfig(tmp_path, layout="csv"))
    (tmp_path / "images").mkdir()
    with pytest.raises(DataError, match="annotation of R2Gen"):
        plan(ImportConfig(tmp_path / "images"))


@pytest.mark.real_data
@pytest.mark.full
@pytest.mark.parametrize(("with_table", "least"), [(True, 1.0), (False, 0.97)])
def test_every_real_study_and_its_views(real_data: Path, tmp_path: Path, with_table: bool, least: float) -> None:
    """Frontal right for all 2,344 known ones by the table, for 97 % at least by the pictures."""
    root, table = real_data / "iu_xray", real_data / "openi" / "indiana_projections.csv"
    config = ImportConfig(root, projections=table if with_table else None)
    corpus = import_corpus("iu-xray", config, tmp_path / "out")
    assert corpus.card.counts == {"studies": 2365, "patients": 2365, "images": 4730, "train": 2069, "val": 296}
    tally: Counter[str] = Counter()
    for _, truth in read_jsonl(root / "views.jsonl"):
        views = {image.path.removeprefix("images/images/"): image.view for image in corpus[truth["id"]].images}
        tally["frontal"] += views[truth["frontal"]] is View.FRONTAL
        tally["lateral"] += truth["lateral"] is None or views[truth["lateral"]] is View.LATERAL
        tally["all"] += 1
    assert tally["all"] == 2344
    assert min(tally["frontal"], tally["lateral"]) >= least * tally["all"]
