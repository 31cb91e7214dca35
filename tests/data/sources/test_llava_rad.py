"""LLaVA-Rad's annotation files: which rows count, and the study that they become."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources import llava_rad

NAME = "chat_{}_MIMIC_CXR_all_gpt4extract_rulebased_v1.json"


def row(patient: int, study: int, image: str, findings: Any, method: str = "rule-based", **more: Any) -> dict[str, Any]:
    """One entry in the published form."""
    folder = f"mimic/p{str(patient)[:2]}/p{patient}/s{study}"
    return {
        "id": f"{patient}_{study}",
        "image": f"{folder}/{image}.jpg",
        "generate_method": method,
        "reason": "Cough.",
        "impression": None,
        "indication": None,
        "history": None,
        "view": "AP",
        "orientation": "Erect",
        "chexpert_labels": {"Edema": 1.0, "Fracture": math.nan, "Pneumonia": -1.0, "Pneumothorax": 0.0},
        "conversations": [
            {"from": "human", "value": "<image>\nDescribe the findings of the chest x-ray.\n"},
            {"from": "gpt", "value": findings},
        ],
        **more,
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """MIMIC-CXR-JPG's folder with the images that rows name, but 'gone', and the three files in a folder beside it."""
    files = {
        "train": [
            row(10000001, 50000001, "a", "Clear\n lungs."),
            row(10000001, 50000001, "a", "The lungs are clear.", "gpt4", impression="Normal."),
            row(10000001, 50000001, "b", "The lungs are clear.", "gpt4", impression="Normal.", view="PA"),
            row(10000001, 50000002, "c", "No edema.", "gpt4", reason=None, chexpert_labels=None, history="Fever."),
            row(10000001, 50000003, "d", "Clear.", view="LATERAL"),
            row(10000001, 50000003, "e", math.nan),
        ],
        "dev": [row(11000002, 50000004, "f", "Left effusion."), row(11000002, 50000004, "g", "Right effusion.")],
        "test": [row(12000003, 50000005, "h", "Clear."), row(12000003, 50000005, "h", "Other words.", "gpt4")],
    }
    (tmp_path / "annotations").mkdir()
    for split, rows in files.items():
        (tmp_path / "annotations" / NAME.format(split)).write_text(json.dumps(rows))
        for one in rows:
            image = tmp_path / "jpg" / one["image"].replace("mimic/", "files/")
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"not decoded here")
    return tmp_path / "jpg"


def test_the_rows_that_the_loaders_keep_become_studies(root: Path, tmp_path: Path) -> None:
    config = ImportConfig(root, annotations=tmp_path / "annotations", workers=1)
    corpus = import_corpus("llava-rad", config, tmp_path / "corpus")
    assert {study.id: (study.patient, study.split, len(study.images)) for study in corpus.studies()} == {
        "s50000001": ("p10000001", "train", 2),
        "s50000002": ("p10000001", "train", 1),
        "s50000004": ("p11000002", "val", 2),
        "s50000005": ("p12000003", "test", 1),
    }
    both = corpus["s50000001"]
    assert both.sections is not None and both.sections.findings == "Clear lungs."
    assert (both.sections.indication, both.sections.impression) == ("Cough.", None)
    assert both.structured == {
        "gpt4": {"findings": "The lungs are clear.", "impression": "Normal.", "indication": "Cough."}
    }
    assert [image.view for image in both.images] == [View.AP, View.PA]
    assert both.images[0].path == "images/files/p10/p10000001/s50000001/a.jpg"
    assert both.labels == {"Edema": 1, "Pneumonia": -1, "Pneumothorax": 0}
    model_only = corpus["s50000002"]
    assert model_only.sections is None and model_only.structured == {"gpt4": {"findings": "No edema."}}
    assert (model_only.labels, model_only.extra["annotation"]) == ({}, {"history": "Fever."})
    assert corpus["s50000005"].structured == {} and corpus["s50000005"].sections.findings == "Clear."
    assert corpus["s50000004"].sections.findings == "Left effusion."
    assert corpus.card.remarks == {
        llava_rad.OTHER_VIEW: 1,
        llava_rad.NO_FINDINGS: 1,
        llava_rad.MODEL_TEXT_IN_TEST: 1,
        llava_rad.TEXTS_DIFFER: 1,  # s50000004
        llava_rad.TEXT_OF_OTHER_IMAGE: 1,  # s50000001: its second image has no text by rules
    }
    assert (corpus.card.settings["layout"], corpus.card.collections) == ("train, dev, test", ("beth-israel",))


def test_files_beside_the_images_and_a_part_of_them_are_enough(root: Path, tmp_path: Path) -> None:
    (tmp_path / "annotations" / NAME.format("test")).rename(root / "chat_test_MIMIC_CXR.json")
    plan = llava_rad.plan(ImportConfig(root))
    assert (plan.total, plan.layout, [item.id for item in plan.items]) == (1, "test", ["s50000005"])


def test_what_is_no_annotation_is_named_without_its_text(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "annotations"
    table = folder / NAME.format("train")
    good = row(10000001, 50000001, "a", "Secret.")
    moved = row(10000009, 50000001, "a", "Secret.")
    for content, words in (
        ("{", "is not JSON"),
        ("{}", "is not a list"),
        (json.dumps([good, {"text": "Secret."}]), "entry 1 has no 'image'"),
        (json.dumps([{**good, "image": "../../etc/passwd"}]), "entry 0 has no 'image'"),
        (json.dumps([{**good, "conversations": []}]), "entry 0 has no second turn"),
        (json.dumps([good, moved]), "s50000001 is listed under another patient"),
    ):
        table.write_text(content)
        with pytest.raises(DataError, match=words) as caught:
            llava_rad.plan(ImportConfig(root, annotations=folder))
        assert "Secret" not in str(caught.value)
    with pytest.raises(DataError, match="--annotations"):
        llava_rad.plan(ImportConfig(root))
