"""`cxrlab classify`: what is measured, from what truth, and in which files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Finding, Report, Study
from cxrlab.core.vocabulary import Presence
from cxrlab.data.config import ComposeConfig, PhantomConfig
from cxrlab.data.corpus import assign_fold
from cxrlab.data.observation_labels import NORMAL, study_labels
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.classify import Classified, classify
from cxrlab.evaluation.config import ClassifyConfig
from cxrlab.models.finding_classifier import HeadLabels, save_head
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.random_init import TINY, build_image_processor, build_vision_encoder

CPU = LoadSettings(device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PhantomConfig(n=40, size=32, seed=7, masks=False, lateral=True, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights; the head knows two labels, and expects one positive in five of the first."""
    folder = tmp_path_factory.mktemp("models") / "encoder"
    build_vision_encoder(TINY, 0).save_pretrained(folder)
    build_image_processor(32).save_pretrained(folder)
    torch.manual_seed(1)
    head = torch.nn.Linear(TINY.width, 2)
    save_head(folder, head, HeadLabels(("lung opacity", NORMAL), (-1.386294, 0.0), ("frontal", "PA", "AP"), "negative"))
    return folder


def test_truth_comes_from_findings_then_report_then_tables() -> None:
    finding = Finding("nodule", Presence.PRESENT)
    report = Report(findings="No nodule. Mild cardiomegaly.")
    table = {"Cardiomegaly": 0, "Lung Lesion": 1, "No Finding": 0}
    study = Study("s", "p", findings=(finding,), sections=report, labels=table)
    exact = study_labels(study)
    assert exact is not None and exact.complete and exact.values == {"nodule": True, NORMAL: False}
    read = study_labels(replace(study, findings=None))
    assert read is not None and read.source == "report"
    assert read.values == {"nodule": False, "cardiomegaly": True, NORMAL: False}
    stated = study_labels(study, "labels")
    # Lung Lesion is wider than any one observation: which of them is present is not known.
    assert stated is not None and stated.values == {"cardiomegaly": False, NORMAL: False}
    assert study_labels(Study("s", "p")) is None


def test_labels_of_nih_are_read_in_words_of_the_vocabulary() -> None:
    own = dict.fromkeys(
        ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema", "Fibrosis", "Hernia"), 0
    )
    normal = study_labels(Study("s", "p", own_labels=own, labels={"No Finding": 1}))
    assert normal is not None and normal.values[NORMAL] and not normal.values["hiatal hernia"]
    ill = study_labels(Study("s", "p", own_labels={**own, "Effusion": 1, "Hernia": 1}, labels={}))
    assert ill is not None and ill.values["pleural effusion"] and ill.values["hiatal hernia"]
    assert not ill.values[NORMAL] and not ill.values["cardiomegaly"]


def test_a_model_is_measured_and_its_file_gives_the_same(corpus: Path, encoder: Path, tmp_path: Path) -> None:
    wanted = ClassifyConfig(
        corpus, f"hf:{encoder}", split="train", min_positives=3, calibrate="val", trials=50, loading=CPU, batch_size=4
    )
    found = classify(wanted, tmp_path / "run")
    assert set(found.labels) == {"lung opacity", NORMAL} and found.truth == {"findings": found.studies}
    one = found.labels[NORMAL]
    assert one.low <= one.value <= one.high and one.positives + one.negatives == found.studies
    assert found.temperature is not None and found.calibrated is not None
    rows = [row for _, row in read_jsonl(tmp_path / "run" / "probabilities.jsonl")]
    assert len(rows) == found.studies and set(rows[0]) == {"id", "patient", "probabilities"}
    stored = Classified.from_json(json.loads((tmp_path / "run" / "classification.json").read_text()))
    assert stored == found == classify(wanted, tmp_path / "run")
    files = ClassifyConfig(corpus, probabilities=(tmp_path / "run",), min_positives=3, trials=50)
    again = classify(files, tmp_path / "again")
    assert again.labels == found.labels and again.calibration == found.calibration and again.model is None
    with pytest.raises(DataError, match="twice"):
        classify(replace(files, probabilities=(tmp_path / "run", tmp_path / "run")), tmp_path / "twice")


def test_what_cannot_be_measured_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="label_head"):
        plain = tmp_path / "plain"
        build_vision_encoder(TINY, 0).save_pretrained(plain)
        classify(ClassifyConfig(corpus, f"hf:{plain}", loading=CPU), tmp_path / "run")
    file = tmp_path / "own.jsonl"
    for row in ('{"id": "x", "probabilities": {"heart": 0.5}}', '{"id": "x", "probabilities": {"nodule": 2}}'):
        file.write_text(row + "\n")
        with pytest.raises(DataError, match="heart|'x'"):
            classify(ClassifyConfig(corpus, probabilities=(file,)), tmp_path / "own")
    with pytest.raises(ConfigError, match="probabilities"):
        ClassifyConfig(corpus)
    with pytest.raises(ConfigError, match="calibrate"):
        ClassifyConfig(corpus, "hf:x", calibrate="test")


def test_folds_are_drawn_by_patient_and_every_patient_is_tested_once() -> None:
    folds = [assign_fold(f"p{number}", 7, 5) for number in range(500)]
    assert set(folds) == set(range(5)) and min(map(folds.count, range(5))) > 70
    members = {"a": {"corpus": "somewhere", "folds": 5}, "b": {"corpus": "elsewhere"}}
    chosen = ComposeConfig(members, fold=3).chosen()
    assert chosen["a"].fold == 3 and chosen["b"].folds is None
    for wrong in ({"folds": 5, "fold": 5}, {"folds": 2}, {"folds": 5, "as_split": "test"}):
        with pytest.raises(ConfigError, match="folds"):
            ComposeConfig({"a": {"corpus": "somewhere", **wrong}})
