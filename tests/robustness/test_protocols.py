"""Phantoms in the layouts of MIMIC-CXR and NIH ChestX-ray14, audited with the settings that are shipped for those."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.config import parse_group, raise_problems, read_yaml
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.config import ImportConfig, PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.export import export_corpus
from cxrlab.data.importing import import_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.robustness.audit import audit
from cxrlab.robustness.config import RobustnessConfig

CONFIGS = Path(__file__).parents[2] / "configs" / "robustness"
TESTED = 7


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Twelve images of 64 pixels; the first seven patients are the official test list."""
    folder = tmp_path_factory.mktemp("phantoms")
    drawn = make_phantom(PhantomConfig(n=12, size=64, seed=5, workers=1), folder / "drawn")
    patients = list(dict.fromkeys(study.patient for study in drawn))
    with CorpusWriter(folder / "split", drawn.card) as writer:
        for study in drawn:
            split = "test" if patients.index(study.patient) < TESTED else "train"
            paths = [*(image.path for image in study.images), *study.masks.values()]
            files = {path: (drawn.path / path).read_bytes() for path in paths}
            writer.add(dataclasses.replace(study, split=split), files)
    return writer.finish()


def settings(name: str, corpus: Corpus, model: str, **changes: Any) -> RobustnessConfig:
    """A shipped file with fewer attacks, images of their own size and a small model."""
    rows, _ = read_yaml(CONFIGS / f"{name}.yaml")
    found, problems = parse_group(RobustnessConfig, {**rows, "model": model, "data": str(corpus.path)}, name)
    raise_problems(problems)
    assert found is not None
    small: dict[str, Any] = {
        "attacks": ("pgd", "noise"), "eps": ("4/255",), "corruptions": ("gamma",), "severities": (3,), "image_size": 64,
        "attack": AttackSettings(steps=1), "trials": 20, "triptychs": 0, "control_studies": 2, "controls": ("blank",),
        "loading": LoadSettings(device="cpu"), "decoding": Decoding(max_new_tokens=4), "transfer": False, "uint8": False,
    }  # fmt: skip
    return dataclasses.replace(found, **{**small, **changes})


def listed(folder: Path, key: str) -> dict[str, str]:
    """Name in the layout → id of the phantom."""
    with (folder / "ids.csv").open() as stream:
        return {row[key]: row["id"] for row in csv.DictReader(stream)}


def truths(run: Path) -> dict[str, dict[str, Any]]:
    return {record["id"]: {"labels": {}, **record} for _, record in read_jsonl(run / "truth.jsonl")}


def test_mimic_cxr_is_audited_by_chexpert_s_labels_on_its_test_split(
    phantoms: Corpus, llava_folder: Path, tmp_path: Path
) -> None:
    folder = export_corpus("mimic-cxr", phantoms, tmp_path / "layout", workers=1)
    corpus = import_corpus("mimic-cxr", ImportConfig(folder, workers=1), tmp_path / "corpus")
    shown = {study.id for study in corpus if study.split == "test"}
    ids = listed(folder, "study_id")
    assert shown and {phantoms[ids[name.lstrip("s")]].split for name in shown} == {"test"}
    asked = ("Lung Opacity", "Cardiomegaly")
    config = settings("mimic_cxr", corpus, f"hf:{llava_folder}", only_labels=asked)
    assert config.labels == "chexpert" and config.questions == "own" and config.against == "reference"
    found = audit(config, tmp_path / "run")
    assert found["protocol"]["labels"] == "chexpert" and found["protocol"]["labels_asked"] == list(asked)
    assert found["protocol"]["split"] == "test" and found["protocol"]["studies"] == len(shown)
    truth_by_study = truths(tmp_path / "run")
    assert truth_by_study.keys() == shown
    for name, one in truth_by_study.items():
        source = phantoms[ids[name.lstrip("s")]]
        assert one["labels"] == {label: source.labels[label] for label in asked if source.labels.get(label) in (0, 1)}
        assert set(one["labels"]) <= set(CHEXPERT_14) and one["reference"] and one.get("findings") is None
    model = found["models"][f"hf:{llava_folder}"]
    assert {"pgd@4/255", "pgd:answers@4/255", "noise@4/255"} == set(model["attacks"])
    assert {"gamma@3"} == set(model["corruptions"])
    assert model["clean"]["closed_questions.accuracy"]["n"] == sum(
        len(one["labels"]) for one in truth_by_study.values()
    )
    assert model["attacks"]["pgd:answers@4/255"]["realised"]["linf"]["max"] <= 4 / 255


def test_nih_chestx_ray14_is_audited_by_its_own_labels_on_its_test_list(
    phantoms: Corpus, llava_folder: Path, tmp_path: Path
) -> None:
    folder = export_corpus("nih-cxr14", phantoms, tmp_path / "layout", workers=1)
    corpus = import_corpus("nih-cxr14", ImportConfig(folder, workers=1), tmp_path / "corpus")
    official = {name.removesuffix(".png") for name in (folder / "test_list.txt").read_text().split()}
    asked = ("Cardiomegaly", "Effusion")
    config = settings("nih_cxr14", corpus, f"hf:{llava_folder}", only_labels=asked)
    assert config.labels == "nih" and config.against == "own" and config.aims == ("answers", "report")
    found = audit(config, tmp_path / "run")
    truth_by_study = truths(tmp_path / "run")
    assert official and truth_by_study.keys() == official and found["protocol"]["labels"] == "nih"
    ids = listed(folder, "Image Index")
    for name, one in truth_by_study.items():
        source = phantoms[ids[f"{name}.png"]]
        there = {finding.observation for finding in source.findings or () if finding.present}
        assert one["labels"] == {label: int(bool(there & set(NIH_CXR14[label].observations))) for label in asked}
        assert one.get("reference") is None
    model = found["models"][f"hf:{llava_folder}"]
    assert {"pgd@4/255", "pgd:report@4/255", "noise@4/255"} == set(model["attacks"])
    assert model["clean"]["closed_questions.accuracy"]["n"] == 2 * len(official)
    # There is no true report: its own words become unlikely, and no loss of a reference is on file.
    assert model["clean"]["report.loss"]["n"] == 0
