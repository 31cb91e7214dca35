"""Reports from several images of a study and its prior: what a model receives, what is missing, and control images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.model_interfaces import Capabilities, Generated, StudyContext
from cxrlab.data.config import ContextConfig, PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import SUMMARY, caution_context, generate
from cxrlab.models.model_card import ModelCard
from cxrlab.models.prompts import load_prompts
from cxrlab.preference.config import SampleConfig

WHOLE: dict[str, Any] = {"views": ("frontal", "lateral"), "prior": ("image", "report")}


class Recorder:
    """Keeps what it is given."""

    name = "recorder"

    def __init__(self, several_images: bool = True) -> None:
        self.capabilities = Capabilities(several_images=several_images)
        self.given: list[tuple[Any, Any]] = []

    def generate(self, images: Any, indications: Any = None) -> list[Generated]:
        self.given += zip(images, indications, strict=True)
        return [Generated("The lungs are clear.") for _ in images]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    config = PhantomConfig(n=60, size=32, seed=3, workers=1, masks=False, lateral=True)
    return make_phantom(config, tmp_path_factory.mktemp("context") / "corpus")


def run(corpus: Corpus, out: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Recorder, dict[str, Any]]:
    model = Recorder()
    monkeypatch.setattr("cxrlab.evaluation.generate.open_model", lambda *_: model)
    given = {"split": "train", "batch_size": 64, "control_studies": 0, "examples": 2, **changes}
    generate(GenerateConfig(model="stub:normal", data=corpus.path, **given), out)
    return model, json.loads((out / SUMMARY).read_text())


def test_a_model_receives_the_images_in_their_order_and_the_prior_of_the_same_patient(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, summary = run(corpus, tmp_path / "run", monkeypatch, **WHOLE)
    studies = list(corpus.studies("train"))
    assert len(model.given) == len(studies) == summary["predictions"]
    by_image = {image.tobytes(): (image, context) for image, context in model.given}
    first = 0
    for study in studies:
        image, context = by_image[corpus.image(study, 0).tobytes()]
        assert study.sections is not None and context.indication == study.sections.indication
        further = [corpus.image(study, 1)]
        if study.prior is None:
            first += 1
            assert context.image_names == ("frontal", "lateral") and context.prior_report == ""
        else:
            prior = corpus[study.prior]
            assert prior.patient == study.patient and prior.sections is not None
            assert context.image_names == ("frontal", "lateral", "prior frontal")
            assert context.prior_report == prior.sections.findings
            further.append(corpus.image(prior, 0))
        assert len(further) == len(context.further_images)
        assert all(np.array_equal(one, two) for one, two in zip(further, context.further_images, strict=True))
    assert 0 < first < len(studies)
    assert f"On {first} of {len(studies)} studies" in " ".join(summary["cautions"])
    assert f"no prior study: {first}" in " ".join(summary["cautions"])


def test_dropped_studies_are_listed_with_the_reason(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [study.id for study in corpus.studies("train") if study.prior is None]
    with pytest.raises(DataError, match=f"^{len(first)} of "):
        run(corpus, tmp_path / "run", monkeypatch, prior=("report",), missing="drop")
    model, summary = run(
        corpus, tmp_path / "allowed", monkeypatch, prior=("report",), missing="drop", allow_missing=True
    )
    assert [one["id"] for one in summary["missing"]] == first
    assert all("no prior study" in one["reason"] for one in summary["missing"])
    assert all(context.prior_report and not context.further_images for _, context in model.given)


def test_control_images_replace_every_image_and_no_text(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, summary = run(corpus, tmp_path / "run", monkeypatch, control_studies=8, **WHOLE)
    assert summary["controls"] == {"noise": 8, "blank": 8, "swapped": 8}
    controls = model.given[-24:]
    texts = [[(one.indication, one.prior_report) for _, one in controls[at : at + 8]] for at in (0, 8, 16)]
    assert sorted(texts[0], key=str) == sorted(texts[1], key=str) == sorted(texts[2], key=str)
    true = {image.tobytes() for study in corpus.studies("train") for image in (corpus.image(study, k) for k in (0, 1))}
    shown = [[image.tobytes() in true for image in (first, *one.further_images)] for first, one in controls]
    assert not any(map(any, shown[:16])) and all(map(all, shown[16:]))
    assert all(isinstance(one, StudyContext) and float(first.std()) == 0.0 for first, one in controls[8:16])


def test_models_and_settings_that_take_one_image_are_refused(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="'stub:normal' takes one image"):
        generate(GenerateConfig(model="stub:normal", data=corpus.path, **WHOLE), tmp_path / "run")
    with pytest.raises(ConfigError, match="unit=image"):
        GenerateConfig(model="stub:normal", data=corpus.path, unit="image", **WHOLE)
    assert not (tmp_path / "run").exists()
    model = Recorder()
    model.prompts = replace(load_prompts("llava-rad/2"), prior_report="")  # type: ignore[attr-defined]
    monkeypatch.setattr("cxrlab.evaluation.generate.open_model", lambda *_: model)
    with pytest.raises(ConfigError, match="no text 'prior_report'"):
        generate(GenerateConfig(model="stub:normal", data=corpus.path, **WHOLE), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("config", [GenerateConfig, SampleConfig])
def test_a_single_view_that_is_not_the_frontal_one_is_refused(config: Any) -> None:
    """The frontal image would be taken in its place; beside another image of the study or its prior it is used."""
    for view in ("lateral", "PA"):
        with pytest.raises(ConfigError, match=f"--views frontal,{view}"):
            config(model="stub:normal", data=Path("corpus"), views=(view,))
        config(model="stub:normal", data=Path("corpus"), views=(view,), prior=("image",))
    config(model="stub:normal", data=Path("corpus"), views=("frontal",))


@pytest.mark.parametrize(
    ("trained", "used", "cautioned"),
    [
        ({"views": ("frontal",), "prior": ("report",)}, {"prior": ("report",)}, False),
        ({"prior": ("report",)}, {"views": ("frontal",), "prior": ("report",)}, False),
        ({"views": ("lateral",), "prior": ("report",)}, {"prior": ("report",)}, True),
        ({"prior": ("report",)}, {"views": ("lateral",), "prior": ("report",)}, True),
        ({"views": ("frontal", "lateral")}, {"views": ("lateral", "frontal")}, True),
        ({"views": ("frontal", "lateral")}, {"views": ("frontal", "lateral")}, False),
        ({}, {"views": ("frontal",)}, False),
        ({}, {"prior": ("report",)}, True),
    ],
)
def test_another_context_than_in_training_is_cautioned(trained: Any, used: Any, cautioned: bool) -> None:
    card = ModelCard("finetune", extra=ContextConfig(**trained).recorded)
    assert (caution_context("hf:m", card, ContextConfig(**used)) is not None) == cautioned


def test_one_view_is_what_a_model_of_one_image_receives(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = run(corpus, tmp_path / "plain", monkeypatch)
    named, _ = run(corpus, tmp_path / "named", monkeypatch, views=("frontal",))
    assert [text for _, text in plain.given] == [text for _, text in named.given]
    assert all(text is None or isinstance(text, str) for _, text in plain.given)
