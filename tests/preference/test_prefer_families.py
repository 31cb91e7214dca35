"""Preference training of every family: the margin of judged pairs moves, and the checkpoint holds what was trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from preference_runs import history, pair_lines, single_thread, write_lines
from tiny_families import FAMILIES, save_tiny
from training_fixtures import phantoms

from cxrlab.core.errors import ConfigError
from cxrlab.data.config import PhantomConfig
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.preference import dataset
from cxrlab.preference.config import LOSSES, LossSettings, Measure, PreferConfig, SampleConfig, Validation
from cxrlab.preference.dataset import read_preferences
from cxrlab.preference.sample_candidates import sample
from cxrlab.preference.train import prefer
from cxrlab.training.config import Optimisation
from cxrlab.training.report_model import find_parts

pytestmark = [pytest.mark.slow, pytest.mark.full]

STEPS = Optimisation(
    batch_size=2, accumulate=2, steps=8, max_length=1500, log_every=1, save_every=4, seed=5, learning_rate=1e-2,
    warmup=0.0, schedule="constant",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("prefer_families") / "corpus")


def config_of(family: str, data: Path, top: Path) -> PreferConfig:
    pairs = write_lines(top / "pairs.jsonl", pair_lines(data)[:8])
    return PreferConfig(
        data=data, pairs=pairs, start=f"hf:{save_tiny(family, top / 'start')}", lora_rank=4, lora_alpha=8.0,
        lora_dropout=0.0, validation=Validation(n=0), measure=Measure(n=0), cache=top / "cache", optimisation=STEPS,
    )  # fmt: skip


def margins(folder: str, config: PreferConfig, *, paired: bool = True) -> torch.Tensor:
    """Log-probability of the chosen report minus that of the rejected one, per pair, as the wrapper scores them."""
    samples = read_preferences(config.pairs, config.data, paired=paired).source.samples
    model = HfModel.load(folder)
    images = [load_image(sample.images[0].path) for sample in samples]
    with torch.no_grad():
        sums = model.log_probabilities(images, [one.report for one in samples], [one.indication for one in samples])
    return sums.sums[::2] - sums.sums[1::2]


@pytest.mark.parametrize("family", FAMILIES)
def test_dpo_moves_the_margin(family: str, data: Path, tmp_path: Path) -> None:
    """Before the first step the loss is log 2: the reference is the start itself, scored through the same inputs."""
    config = config_of(family, data, tmp_path)
    prefer(config, tmp_path / "run")
    lines = [line for line in history(tmp_path / "run") if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(0.6931, abs=2e-3)
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    before = margins(config.start.removeprefix("hf:"), config)
    after = margins(str(tmp_path / "run" / "checkpoint"), config)
    assert bool((after > before).all()) and float((after - before).mean()) > 1.0


WHOLE, VISION, ADAPTERS = {"lora_rank": 0}, {"train_vision_encoder": True}, {"train_projector": True}
SPREAD = {
    "dpo": ("idefics3", ADAPTERS), "ipo": ("idefics", WHOLE), "kto": ("smolvlm", VISION), "orpo": ("qwen2_5_vl", WHOLE),
    "simpo": ("internvl", VISION), "rdpo": ("llava", VISION), "robust": ("gemma3", {**WHOLE, **VISION}),
}  # fmt: skip


def trains_what_is_named(config: PreferConfig, changes: Any, top: Path) -> None:
    """Margins change, and so does the vision encoder where it is trained, and nowhere else."""
    config = replace(config, **changes, optimisation=replace(STEPS, gradient_checkpointing=True, steps=4))
    prefer(config, top / "run")
    found = [line["loss"] for line in history(top / "run") if "loss" in line]
    assert len(found) == 4 and all(abs(value) < 1e4 for value in found)
    start = config.start.removeprefix("hf:")
    before, after = (margins(folder, config) for folder in (start, str(top / "run" / "checkpoint")))
    assert float((after - before).abs().mean()) > 1e-2
    models = [HfModel.load(folder).model for folder in (start, str(top / "run" / "checkpoint"))]
    old, new = (find_parts(model).vision_parameters() for model in models)
    moved = [not torch.equal(one, two) for one, two in zip(old, new, strict=True)]
    assert any(moved) == config.train_vision_encoder


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_adapters_whole_models_and_vision_encoders(loss: str, data: Path, tmp_path: Path) -> None:
    family, changes = SPREAD[loss]
    trains_what_is_named(replace(config_of(family, data, tmp_path), loss=LossSettings(loss)), changes, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_aligns_whole_and_with_its_vision_encoder(family: str, data: Path, tmp_path: Path) -> None:
    """The first loss is log 2: the reference is the start in the precision and with the weights of the training."""
    for name, changes in (("whole", WHOLE), ("vision", VISION)):
        (tmp_path / name).mkdir()
        config = config_of(family, data, tmp_path / name)
        trains_what_is_named(config, changes, tmp_path / name)
        lines = [line for line in history(tmp_path / name / "run") if "loss" in line]
        assert lines[0]["loss"] == pytest.approx(0.6931, abs=2e-3)


@pytest.mark.parametrize(
    ("family", "precision", "changes"), [("internvl", "float32", {}), ("idefics", "bfloat16", VISION)]
)
def test_checkpoints_are_selected_and_measured_by_generated_reports(
    family: str, precision: Any, changes: Any, data: Path, tmp_path: Path
) -> None:
    """Generation in between disturbs no number of the training."""
    settings = replace(STEPS, steps=4, precision=precision, gradient_checkpointing=True)
    short = replace(config_of(family, data, tmp_path), optimisation=settings, **changes)
    prefer(short, tmp_path / "plain")
    watched = replace(
        short,
        validation=Validation(n=2, every=2, max_new_tokens=4),
        measure=Measure(n=3, max_new_tokens=4, control_studies=0, metrics=("rougeL:google",)),
    )
    _, found = prefer(watched, tmp_path / "watched")
    assert found["n"] == 3 and [line["step"] for line in found["watched"]] == [0, 2, 4]
    both = [[line["loss"] for line in history(tmp_path / name) if "loss" in line] for name in ("plain", "watched")]
    assert both[0] == both[1]


@pytest.mark.parametrize("family", ["llava", "idefics3"])
def test_several_images_and_the_prior_are_sampled_from_and_aligned_with(family: str, tmp_path: Path) -> None:
    """Candidates, reference, margin and evaluation all use the images and prior that the settings name."""
    data = tmp_path / "corpus"
    make_phantom(PhantomConfig(n=40, size=32, seed=3, workers=1, masks=False, lateral=True), data)
    whole: dict[str, Any] = {"views": ("frontal", "lateral"), "prior": ("image",)}
    config = config_of(family, data, tmp_path)
    settings = replace(STEPS, max_length=512 if family == "llava" else 1500)
    measured = {
        "validation": Validation(n=2, every=4, max_new_tokens=4),
        "measure": Measure(n=2, max_new_tokens=4, control_studies=0, metrics=("rougeL:google",), questions=False),
    }
    config = replace(config, prompts="llava-rad/2", optimisation=settings, **whole)

    loading = LoadSettings(prompts="llava-rad/2")
    wanted = SampleConfig(config.start, data, n=4, answers=2, max_new_tokens=4, loading=loading, **whole)
    assert sample(wanted, tmp_path / "candidates").candidates == 8

    def score(folder: str) -> torch.Tensor:
        samples = read_preferences(config.pairs, data, paired=True, context=config.context).source.samples
        assert {len(one.images) for one in samples} == {2, 3}
        shown = [[load_image(image.path) for image in one.images] for one in samples]
        contexts = [
            replace(one.context, further_images=tuple(images[1:]))  # type: ignore[type-var]
            for one, images in zip(samples, shown, strict=True)
        ]
        model = HfModel.load(folder, loading=loading)
        with torch.no_grad():
            sums = model.log_probabilities([one[0] for one in shown], [one.report for one in samples], contexts).sums
        return sums[::2] - sums[1::2]

    prefer(config, tmp_path / "run")
    lines = [line for line in history(tmp_path / "run") if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(0.6931, abs=2e-3) and lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    moved = score(str(tmp_path / "run" / "checkpoint")) - score(config.start.removeprefix("hf:"))
    assert bool((moved > 0).all())
    # Its card names the prompts, by which both models are measured.
    short = replace(settings, steps=1)
    again = replace(config, start=str(tmp_path / "run"), prompts=None, optimisation=short, **measured)  # type: ignore[arg-type]
    _, found = prefer(again, tmp_path / "again")
    assert found is not None and found["n"] == 2 and [line["step"] for line in found["watched"]] == [0, 1]
    with pytest.raises(ConfigError, match="missing=drop"):
        replace(config, missing="drop", **measured)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def two_views(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Phantoms of which every other study has a frontal image alone."""
    data = tmp_path_factory.mktemp("two_views") / "corpus"
    make_phantom(PhantomConfig(n=24, size=32, seed=3, workers=1, masks=False, lateral=True), data)
    records = [json.loads(line) for line in (data / "studies.jsonl").read_text().splitlines()]
    for record in records[::2]:
        record["images"] = [image for image in record["images"] if image["view"] != "lateral"]
    write_lines(data / "studies.jsonl", records)
    return data


@pytest.mark.parametrize(
    ("family", "loss"),
    [*((family, "dpo") for family in FAMILIES if family != "idefics"), ("llava", "kto"), ("qwen2_5_vl", "kto")],
)
def test_studies_with_one_and_with_two_images_are_sampled_from_and_aligned_with(
    family: str, loss: str, two_views: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CheXalign's up to two images: every study has its candidates, and its reference is that of its own images."""
    views: Any = {"views": ("frontal", "lateral")}
    settings = replace(STEPS, steps=2)
    config = replace(config_of(family, two_views, tmp_path), prompts="llava-rad/2", optimisation=settings, **views)
    config = replace(config, loss=LossSettings(loss))
    wanted = SampleConfig(
        config.start, two_views, n=4, answers=2, max_new_tokens=4, loading=LoadSettings(prompts="llava-rad/2"), **views
    )
    assert sample(wanted, tmp_path / "candidates").candidates == 8

    references = []
    compute = dataset.reference_log_probabilities

    def kept(*arguments: Any, **more: Any) -> Any:
        references.append(compute(*arguments, **more))
        return references[-1]

    monkeypatch.setattr(dataset, "reference_log_probabilities", kept)
    prefer(config, tmp_path / "run")
    samples = read_preferences(
        config.pairs, two_views, paired=loss == "dpo", context=config.context, seed=settings.seed
    ).source.samples
    shown = [[load_image(image.path) for image in one.images] for one in samples]
    assert {len(images) for images in shown} == {1, 2}
    contexts = [
        replace(one.context, further_images=tuple(images[1:]))  # type: ignore[type-var]
        for one, images in zip(samples, shown, strict=True)
    ]
    model = HfModel.load(config.start.removeprefix("hf:"), loading=LoadSettings(prompts="llava-rad/2"))
    with torch.no_grad():
        sums = model.log_probabilities([one[0] for one in shown], [one.report for one in samples], contexts).sums
        blind = model.log_probabilities([one[0] for one in shown], [one.report for one in samples],
                                        [one.indication for one in samples]).sums  # fmt: skip
    (reference,) = references
    assert reference.flatten() == pytest.approx(sums.numpy(), rel=1e-3, abs=1e-2)
    assert float((sums - blind).abs().max()) > 0.05, "the second image and its name in the prompt count"


def test_a_family_of_one_image_per_prompt_refuses_two(two_views: Path, tmp_path: Path) -> None:
    config = replace(config_of("idefics", two_views, tmp_path), views=("frontal", "lateral"), prompts="llava-rad/2")
    with pytest.raises(ConfigError, match="image"):
        prefer(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
