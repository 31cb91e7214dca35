"""Stage 1 on findings, end to end: tiny encoders and phantoms of 32 and 64 pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training_fixtures import killed_after
from transformers import ResNetConfig, ResNetModel

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.observation_labels import NORMAL, labels_of_report
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.finding_classifier import FindingClassifier, mean_by_study
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_parts import load_vision_encoder
from cxrlab.models.random_init import build_image_processor
from cxrlab.training.config import NONE, EncoderConfig, LabelSettings, Optimisation, Validation
from cxrlab.training.encoder import train_encoder
from cxrlab.training.findings_encoder import LabelEncoder, LabelTable, label_areas

CPU = LoadSettings(device="cpu", dtype="float32")
SHORT = Optimisation(learning_rate=2e-3, steps=5, batch_size=8, group_by_length=False, log_every=1, save_every=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PhantomConfig(n=48, size=32, seed=7, masks=False, lateral=True, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture(scope="module")
def convolutional(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ResNet, whose batch norms have statistics."""
    folder = tmp_path_factory.mktemp("models") / "resnet"
    torch.manual_seed(3)
    ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])).save_pretrained(folder)
    build_image_processor(32).save_pretrained(folder)
    return folder


def config(corpus: Path, encoder: str, **changes: object) -> EncoderConfig:
    settings = {"views": ("frontal", "PA", "AP", "lateral"), "labels": LabelSettings(min_positives=4)}
    return EncoderConfig(
        corpus, objective="findings", vision_encoder=encoder, **{"optimisation": SHORT, **settings, **changes}
    )  # type: ignore[arg-type]


def test_what_a_report_states_is_present_absent_or_unmentioned() -> None:
    found = labels_of_report("Possible small left pleural effusion. No pneumothorax. The heart is enlarged.")
    assert found == {"pleural effusion": True, "pneumothorax": False, "cardiomegaly": True, NORMAL: False}
    assert labels_of_report("Lungs are clear. No pleural effusion.")[NORMAL] is True
    mixed = labels_of_report("Left pleural effusion. No right pleural effusion.")
    assert mixed["pleural effusion"] is True


def test_both_classes_of_a_label_weigh_the_same() -> None:
    studies = [{"nodule": True}, {"nodule": False}, {"nodule": False}, {"mass": True}, {}]
    wanted = EncoderConfig(Path(), objective="findings", vision_encoder="x", labels=LabelSettings(min_positives=1))
    negative = LabelTable.of(studies, wanted)
    assert negative.names == ("nodule", "mass")
    assert negative.targets(studies)[:, 0].tolist() == [1, 0, 0, 0, 0]
    assert np.allclose(negative.weights[:, 0], [5 / 8, 5 / 2]) and negative.log_odds[0] == np.log(1 / 4)
    ignored = LabelTable.of(studies, replace(wanted, labels=LabelSettings(1, "ignored")))
    assert ignored.names == ("nodule",)  # nobody denies a mass
    assert ignored.targets(studies)[:, 0].tolist() == [1, 0, 0, -1, -1]
    with pytest.raises(DataError, match="nodule"):
        LabelTable.of(studies, replace(wanted, labels=LabelSettings(min_positives=2)))


def test_a_label_without_a_value_costs_nothing() -> None:
    table = LabelTable(("nodule", "mass"), np.array([1, 1]), np.array([1, 3]), "ignored")
    encoder = load_vision_encoder("fresh:tiny")
    module = LabelEncoder(encoder.model, encoder.image_processor, table, EncoderConfig.augmentation, 0)
    logits = torch.tensor([[0.0, 0.0], [2.0, 5.0]])
    losses = module.losses(logits, torch.tensor([[1, 0], [1, -1]]))
    assert torch.allclose(losses[0], torch.tensor(np.log(2) * (1 + 4 / 6) / 2, dtype=torch.float32))
    assert torch.allclose(losses[1], torch.log1p(torch.exp(torch.tensor(-2.0))) / 2)


def test_a_study_is_the_mean_of_its_images() -> None:
    vectors = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    assert mean_by_study(vectors, torch.tensor([0, 0, 1]), 2).tolist() == [[2.0, 1.0], [5.0, 5.0]]


def test_areas_leave_out_what_has_no_label() -> None:
    targets = np.array([[1, 1], [0, -1], [1, -1], [0, 1]], np.int8)
    found = label_areas(np.array([[3.0, 1], [2.0, 1], [1.0, 1], [0.0, 1]]), targets, ("nodule", "mass"))
    assert found["nodule"] == 0.75 and np.isnan(found["mass"])


@pytest.mark.slow
def test_it_learns_findings_and_the_best_step_is_kept(corpus: Path, tmp_path: Path) -> None:
    """On its own training studies the mean AUROC ends well above that of guessing, 0.5."""
    settings = replace(SHORT, steps=60, batch_size=16, weight_decay=0.0)
    wanted = config(corpus, "fresh:tiny", optimisation=settings, validation=Validation(every=30), augmentation=NONE)
    done = train_encoder(wanted, tmp_path / "run")
    history = [row for _, row in read_jsonl(tmp_path / "run" / "history.jsonl")]
    measured = [row["evaluation"] for row in history if "evaluation" in row]
    assert len(measured) == 2 and done.extra["best"]["auroc"] == max(one["auroc"] for one in measured)
    assert f"auroc {NORMAL}" in measured[0] and done.extra["images"] == 2 * done.rows
    opened = FindingClassifier(f"hf:{tmp_path / 'run' / 'checkpoint'}", CPU)
    assert opened.labels.names == tuple(done.extra["labels"]) and opened.labels.views == wanted.views
    data = load_corpus(corpus)
    studies = list(data.studies("train"))
    images = [[data.image(study, 0), data.image(study, 1)] for study in studies]
    found = opened.probabilities(images)
    truth = [labels_of_report(study.sections.findings) for study in studies if study.sections]
    targets = np.array([[int(one.get(name, False)) for name in opened.labels.names] for one in truth], np.int8)
    areas = label_areas(found, targets, opened.labels.names)
    assert np.mean(list(areas.values())) > 0.75
    # Probabilities keep the share of positives, although the loss balances the classes.
    assert abs(found.mean() - targets.mean()) < 0.15
    assert (tmp_path / "run" / "best" / "label_head.json").is_file()
    assert load_vision_encoder(f"hf:{tmp_path / 'run'}").trained_on == "synthetic"


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_same_bytes(corpus: Path, convolutional: Path, tmp_path: Path) -> None:
    """With batch norms, whose statistics are neither weights nor in the optimiser."""
    wanted = config(corpus, f"hf:{convolutional}", validation=Validation(every=1))
    train_encoder(wanted, tmp_path / "straight")
    with killed_after(3):
        train_encoder(wanted, tmp_path / "stopped")
    train_encoder(wanted, tmp_path / "stopped")
    for name in ("checkpoint/model.safetensors", "best/model.safetensors", "best/label_head.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    assert read_json(tmp_path / "stopped" / "summary.json") == read_json(tmp_path / "straight" / "summary.json")
    start, end = (load_vision_encoder(f"hf:{one}").model for one in (convolutional, tmp_path / "straight"))
    norms = [one.state_dict()["backbone.embedder.embedder.normalization.running_mean"] for one in (start, end)]
    assert not torch.equal(*norms)
    with pytest.raises(RunError, match="min_positives"):
        train_encoder(replace(wanted, labels=LabelSettings(min_positives=3)), tmp_path / "straight")


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="text encoder"):
        EncoderConfig(Path(), objective="findings", vision_encoder="fresh:tiny", text_encoder="fresh:tiny")
    with pytest.raises(ConfigError, match="text encoder"):
        EncoderConfig(Path(), objective="findings", start="builtin:encoder")
