"""The 590 test studies of IU X-ray are never trained on, retrieved from or tuned to, whatever imports them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import cxrlab
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources.openi import image_name, r2gen_id, r2gen_split

ROOT = Path(__file__).parents[3]
FIXTURES = Path(__file__).parent / "fixtures"


def test_the_split_is_that_of_r2gen() -> None:
    split = r2gen_split()
    counts = {name: list(split.values()).count(name) for name in ("train", "val", "test")}
    assert counts == {"train": 2069, "val": 296, "test": 590} and len(split) == 2955


@pytest.mark.parametrize("how", ["official", "patient", "train"])
@pytest.mark.parametrize("layout", ["openi", "openi_csv"])
def test_test_studies_of_open_i_stay_in_test(tmp_path: Path, layout: str, how: str) -> None:
    """Of the fixture's studies CXR2 and CXR12 are R2Gen's, CXR4 is in val, and CXR3 in none of its splits."""
    shutil.copytree(FIXTURES / layout, tmp_path / "root")
    corpus = import_corpus("openi", ImportConfig(tmp_path / "root", split=how, workers=1), tmp_path / how)
    found = {study.id: study.split for study in corpus.studies()}
    assert found["CXR2"] == found["CXR12"] == "test"
    assert (found["CXR4"], found["CXR3"]) == ("val", None) or how != "official"
    assert how != "train" or {found[key] for key in found if key not in ("CXR2", "CXR12")} == {"train"}


@pytest.mark.parametrize("how", ["patient", "train"])
def test_test_studies_of_iu_x_ray_stay_in_test(tmp_path: Path, how: str) -> None:
    """A hundred studies of its test part, of which a draw by patient would put about eighty into train."""
    rows = [
        {"id": f"CXR{k}_IM-{k:04d}", "report": "The lungs are clear.", "image_path": [f"{k}/0.png"], "split": split}
        for k, split in enumerate(["train"] * 20 + ["test"] * 100)
    ]
    root = tmp_path / "root"
    root.mkdir()
    parts = {name: [row for row in rows if row["split"] == name] for name in ("train", "test")}
    (root / "annotation.json").write_text(json.dumps(parts))
    corpus = import_corpus("iu-xray", ImportConfig(root, split=how, workers=1), tmp_path / "out")
    assert {row["id"] for row in parts["test"]} <= set(corpus.ids("test"))


def settings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of a config with the keys that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from settings(inner, (*path, str(key)))
    else:
        yield path, value


def configs_on_open_i() -> list[Path]:
    found = [
        path
        for path in (ROOT / "configs").rglob("*.yaml")
        if re.search(r"open.?i|\biu\b|iu.?x", path.read_text(), re.I)
    ]
    return sorted(
        path for path in found if re.search(r"openi|\biu", str(list(settings(yaml.safe_load(path.read_text())))))
    )


@pytest.mark.parametrize("path", configs_on_open_i(), ids=lambda path: path.name)
def test_no_config_takes_test_studies_for_anything_but_testing(path: Path) -> None:
    """Members keep their splits or become test as a whole; pools and libraries name the train split."""
    for keys, value in settings(yaml.safe_load(path.read_text())):
        if keys[-1] == "as_split":
            assert value == "test", keys
        if keys[-1] in ("pool", "library", "training") and str(value).startswith("corpus:"):
            assert str(value).endswith("@train"), keys
        if keys[-1] == "split":
            assert value in ("train", "val"), keys


def test_the_configs_on_open_i_are_found() -> None:
    names = {path.name for path in configs_on_open_i()}
    assert {"preference_openi.yaml", "ada_steal_openi.yaml", "external_openi.yaml"} <= names


def test_the_experiment_on_iu_x_ray_generates_for_val_only() -> None:
    text = (ROOT / "experiments" / "iu_xray.py").read_text()
    assert set(re.findall(r'split="(\w+)"', text)) == {"val"}


def test_predictions_are_matched_by_either_id_of_a_study(tmp_path: Path) -> None:
    """R2Gen calls CXR1 of Open-I CXR1_IM-0001."""
    corpus = import_corpus("openi", ImportConfig(FIXTURES / "openi", workers=1), tmp_path / "openi")
    report = str(corpus["CXR1"].sections.findings)  # type: ignore[union-attr]
    assert corpus["CXR1"].extra["aliases"] == ["CXR1_IM-0001"]
    for key in ("CXR1", "CXR1_IM-0001"):
        sheet = cxrlab.score(corpus.path, {key: report}, allow_missing=True, metrics=["rougeL:google"])
        study = next(one for one in sheet.studies if one.pair.id == "CXR1")
        assert study.values["rougeL:google"] == 1
    with pytest.raises(cxrlab.core.errors.DataError, match="same study"):
        cxrlab.score(corpus.path, {"CXR1": report, "CXR1_IM-0001": report}, allow_missing=True)


@pytest.mark.real_data
def test_the_published_predictions_are_of_the_test_split(real_data: Path) -> None:
    """All 590 and no other; none of them is in the copy with images; R2Gen's ids follow from the images' names."""
    with (real_data / "public_predictions" / "cvt2distilgpt2_iu_test.csv").open(newline="") as stream:
        published = {row["dicom_id"] for row in csv.DictReader(stream)}
    test = {key for key, split in r2gen_split().items() if split == "test"}
    assert {key.partition("_")[0] for key in published} == test and len(published) == 590
    annotation = json.loads((real_data / "iu_xray" / "annotation.json").read_text())
    for split in ("train", "val"):
        assert {r2gen_split()[row["id"].partition("_")[0]] for row in annotation[split]} == {split}
    with (real_data / "openi" / "indiana_projections.csv").open(newline="") as stream:
        names = [image_name(row["filename"]) for row in csv.DictReader(stream)]
    by_number: dict[str, list[Any]] = {}
    for name in names:
        assert name is not None
        by_number.setdefault(name.number, []).append(name)
    derived = {r2gen_id(found) for found in by_number.values()}
    assert published <= derived
