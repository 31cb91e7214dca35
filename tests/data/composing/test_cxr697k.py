"""The shipped files, run over tiny corpora under the true names of the seven."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from composition_members import corpus, study

from cxrlab.core.config import config_from
from cxrlab.core.errors import DataError
from cxrlab.core.records import Report
from cxrlab.data.compose import Composition, as_text, compose_corpus, plan
from cxrlab.data.config import ComposeConfig

CONFIGS = Path(__file__).parents[3] / "configs"
LABELS = {"labels": {"findings": "From labels."}}
MODEL = {"gpt": {"findings": "By a model."}}


@pytest.fixture(autouse=True)
def seven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of five label corpora: two train studies, one with a lateral image beside it, and one of the test split.

    PadChest: one Spanish report with its translation, one without. MIMIC-CXR: a study with both texts, one with the
    rule's alone, one with a lateral image alone, one of test.
    """
    monkeypatch.setenv("CXRLAB_QUIET", "1")
    monkeypatch.chdir(tmp_path)
    for name in ("chexpert", "brax", "candid-ptx", "vindr-cxr", "object-cxr"):
        own: dict[str, Any] = {"sections": None}
        split = None if name in ("brax", "candid-ptx") else "train"
        kept = [
            study(1, split=split, structured=LABELS, **own),
            study(2, ("frontal", "lateral"), split=split, structured=LABELS, **own),
        ]
        rest = [] if split is None else [study(3, split="test", **own), study(4, split="val", **own)]
        corpus(tmp_path / "corpora" / name, [*kept, *rest], f"hospital of {name}", name)
    spanish = [study(1, split=None, sections=None, report="Sin hallazgos.", structured=MODEL)]
    spanish.append(study(2, split=None, sections=None, report="Normal."))
    corpus(tmp_path / "corpora" / "padchest-structured", spanish, "san juan", "padchest")
    visits = [
        study(1, ("PA", "lateral"), structured=MODEL),
        study(2, ("AP",)),
        study(3, ("lateral",), sections=Report(impression="No findings section."), structured=MODEL),
        study(4, split="test"),
    ]
    for name in ("mimic-cxr", "mimic-cxr-structured"):
        corpus(tmp_path / "corpora" / name, visits, "boston", "mimic-cxr")


def shipped(name: str, *overrides: str) -> Composition:
    return plan(config_from(ComposeConfig, CONFIGS / f"{name}.yaml", overrides))


def test_a_missing_corpus_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "corpora" / "padchest-structured")
    shutil.rmtree(tmp_path / "corpora" / "brax")
    with pytest.raises(DataError) as caught:
        shipped("llava_rad/02_compose_cxr697k")
    assert "brax: cxrlab data import brax --root DIR --out corpora/brax" in str(caught.value)
    assert "padchest: cxrlab data structure corpora/padchest --config" in str(caught.value)


def test_stage_one_takes_all_seven() -> None:
    """Frontal images of the train split with one text each; MIMIC-CXR with its lateral images: 2 + 1 + 1."""
    rows = {row.member: row for row in shipped("llava_rad/02_compose_cxr697k").rows}
    assert {name: row.pairs for name, row in rows.items()} == {
        "chexpert": 2, "brax": 2, "candid-ptx": 2, "vindr-cxr": 2, "object-cxr": 2, "mimic-cxr": 4, "padchest": 1,
    }  # fmt: skip
    assert rows["mimic-cxr"].texts == {"sections": 1, "structured:gpt": 3}
    lines = as_text(list(rows.values())).splitlines()
    assert [line for line in lines if line.startswith("total") and "697,435" in line]
    assert "words per text, vindr-cxr: 2 to 2, mean 2.0; paper 79 to 125, mean 103.2" in lines
    assert rows["mimic-cxr"].words == (3, 4, 3.2)  # 13 words in four pairs: three of "By a model."


@pytest.mark.parametrize("stage", [2, 3])
def test_later_stages_take_mimic_alone_with_both_texts(stage: int) -> None:
    """AP and PA images: one with both texts and one with the rule's, three pairs."""
    (row,) = shipped("llava_rad/02_compose_cxr697k", f"stage={stage}").rows
    assert (row.taken_images, row.pairs, row.texts) == (2, 3, {"sections": 2, "structured:gpt": 1})
    assert row.paper.pairs == 400_042


def test_the_composition_is_all_training(tmp_path: Path) -> None:
    made = compose_corpus(shipped("llava_rad/02_compose_cxr697k"), tmp_path / "out")
    assert {one.split for one in made} == {"train"} and made.card.counts["studies"] == 5 * 2 + 3 + 1
    assert len(made.card.collections) == 7


def test_the_external_sets_hold_the_source_s_text_alone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="members have no complete corpus"):
        shipped("data/external_openi")
    openi = [study(1), study(2, split=None), study(3, ("lateral",)), study(4, sections=Report(impression="Normal."))]
    corpus(tmp_path / "corpora" / "openi", openi, "indiana", "openi")
    with pytest.raises(DataError, match="cxr697k does not exist"):
        shipped("data/external_openi")
    compose_corpus(shipped("llava_rad/02_compose_cxr697k"), tmp_path / "corpora" / "cxr697k")
    made = compose_corpus(shipped("data/external_openi"), tmp_path / "openi")
    assert made.ids() == ("openi/s1", "openi/s2") and {one.split for one in made} == {"test"}
    labels_only = [study(3, split="test", sections=None), study(4, split="val", sections=None)]
    for name, studies in (("v1", labels_only), ("chexpert-plus", [*labels_only[:1], study(4, split="val")])):
        corpus(tmp_path / "corpora" / name, studies, "hospital of chexpert", "chexpert")
    made = compose_corpus(shipped("data/external_chexpert"), tmp_path / "chexpert")
    assert made.ids() == ("chexpert/s4",) and not any(one.structured for one in made)
    config = config_from(ComposeConfig, CONFIGS / "data/external_chexpert.yaml")
    members = {"chexpert": {**config.members["chexpert"], "corpus": "corpora/v1"}}
    with pytest.raises(DataError, match="nothing is taken"):  # version 1 has no reports
        compose_corpus(plan(replace(config, members=members)), tmp_path / "none")
    with pytest.raises(DataError, match="'chexpert' is not external"):
        shipped("data/external_chexpert", "external_to=corpora/cxr697k")
