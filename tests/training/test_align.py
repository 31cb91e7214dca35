"""Stage 2 end to end on tiny models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_fixtures import FAST, killed_after, losses, phantoms

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.runs import state
from cxrlab.models.hf.model import HfModel
from cxrlab.models.model_card import read_model_card
from cxrlab.models.model_parts import load_language_model, load_vision_encoder
from cxrlab.models.random_init import TINY, build_image_processor, build_vision_encoder
from cxrlab.training.align_finetune import align
from cxrlab.training.config import AlignConfig

pytestmark = pytest.mark.slow

PARTS = {"encoder": "fresh:tiny", "language_model": "fresh:tiny"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("align") / "corpus")


@pytest.fixture(scope="module")
def config(corpus: Path) -> AlignConfig:
    return AlignConfig(data=corpus, **PARTS, optimisation=FAST, cache=corpus.parent / "cache")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def aligned(config: AlignConfig) -> Path:
    out = config.data.parent / "aligned"
    align(config, out)
    return out


def tensors(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoint" / "model.safetensors")


def test_only_the_projector_moves(config: AlignConfig, aligned: Path) -> None:
    """VisionEncoder and language model are those of the seed, bit by bit; the summary counts what was trained."""
    model = HfModel.load(str(aligned / "checkpoint")).model.model
    vision_encoder, language = (
        load_vision_encoder("fresh:tiny", seed=5).model,
        load_language_model("fresh:tiny", seed=6).model,
    )
    for found, part in ((model.vision_tower, vision_encoder), (model.language_model, language.model)):
        stored = found.state_dict()
        assert all(torch.equal(stored[name], value) for name, value in part.state_dict().items())
    done = align(config, aligned)
    assert done.steps == 6 and done.trained_parameters == 2 * (32 * 32 + 32)
    assert state(aligned) == "finished" and not (aligned / "steps").exists()


def test_an_encoder_whose_processor_gives_another_size_needs_image_size(config: AlignConfig, tmp_path: Path) -> None:
    """DINOv2 is published for 518 px with a processor that crops to 224."""
    for part in (build_vision_encoder(TINY, 0), build_image_processor(48)):
        part.save_pretrained(tmp_path / "dinov2")
    published = dataclasses.replace(config, encoder=f"hf:{tmp_path / 'dinov2'}")
    with pytest.raises(ConfigError, match="48 x 48 .*32 x 32; set image_size=32"):
        align(published, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    align(dataclasses.replace(published, image_size=32), tmp_path / "run")
    assert HfModel.load(str(tmp_path / "run" / "checkpoint")).input_side == 32
    with pytest.raises(ConfigError, match="image_size=32 needs encoder"):
        AlignConfig(config.data, start="hf:x", image_size=32)


def test_only_the_owner_may_read_the_result(aligned: Path) -> None:
    """The libraries that write its files follow the umask; one chmod -R then shares all of it alike."""
    assert (aligned / "checkpoint").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (aligned / "checkpoint").iterdir()} == {0o600}


def test_the_result_opens_and_writes(aligned: Path) -> None:
    model = HfModel.load(str(aligned / "checkpoint"))
    card = read_model_card(aligned / "checkpoint")
    assert card is not None and card.stage == "align" and card.collections == ("phantom",)
    assert card.trained_on == model.trained_on == "synthetic" and model.input_side == 32
    assert len(model.generate([np.zeros((32, 32), np.float32)])) == 1


def test_the_loss_is_that_of_the_wrapper(config: AlignConfig, tmp_path: Path) -> None:
    """A step that moves nothing: the mean loss of its samples, asked of the finished model without a prompt."""
    still = dataclasses.replace(config.optimisation, steps=1, learning_rate=1e-12, batch_size=20, log_every=1)
    align(dataclasses.replace(config, optimisation=still, n=20), tmp_path / "run")
    from cxrlab.data.images import load_image
    from cxrlab.training.config import ExtraCorpus
    from cxrlab.training.samples import read_source

    model = HfModel.load(str(tmp_path / "run" / "checkpoint"))
    samples = read_source(ExtraCorpus(config.data), 20, 5).samples
    images = [load_image(image.path) for sample in samples for image in sample.images]
    encoded = model.encode(images, [""] * 20, [sample.report for sample in samples])
    from cxrlab.models.hf.scoring import report_log_probs

    with torch.no_grad():
        scores = report_log_probs(model.model, encoded)
    assert losses(tmp_path / "run")[0] == pytest.approx(float(-scores.values.sum() / scores.mask.sum()), rel=1e-4)


def test_same_seed_same_bytes_with_features_or_images(config: AlignConfig, aligned: Path, tmp_path: Path) -> None:
    """A second run has the same bytes; one that runs the vision encoder at every step differs by rounding alone."""
    align(config, tmp_path / "again")
    assert (tmp_path / "again/checkpoint/model.safetensors").read_bytes() == (
        aligned / "checkpoint/model.safetensors"
    ).read_bytes()
    align(dataclasses.replace(config, cache_features="off", cache_images="off"), tmp_path / "pixels")
    one, other = tensors(aligned), tensors(tmp_path / "pixels")
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def test_a_stopped_run_goes_on_to_the_same_bytes(config: AlignConfig, aligned: Path, tmp_path: Path) -> None:
    with killed_after(5):
        align(config, tmp_path / "run")
    assert state(tmp_path / "run") == "interrupted" and not (tmp_path / "run/checkpoint").exists()
    align(config, tmp_path / "run")
    assert (tmp_path / "run/checkpoint/model.safetensors").read_bytes() == (
        aligned / "checkpoint/model.safetensors"
    ).read_bytes()
    with pytest.raises(RunError, match="optimisation.learning_rate was"):
        other = dataclasses.replace(config.optimisation, learning_rate=1.0)
        align(dataclasses.replace(config, optimisation=other), tmp_path / "run")


def test_a_whole_model_may_be_the_start(config: AlignConfig, aligned: Path, tmp_path: Path) -> None:
    settings = {"encoder": None, "language_model": None, "start": f"hf:{aligned / 'checkpoint'}"}
    align(dataclasses.replace(config, **settings), tmp_path / "run")  # type: ignore[arg-type]
    name = next(name for name in tensors(aligned) if "projector.linear_1.weight" in name)
    assert not torch.equal(tensors(aligned)[name], tensors(tmp_path / "run")[name])


def test_words_without_images_teach_a_projector_nothing(config: AlignConfig) -> None:
    for words in ({"images": False}, {"images": False, "findings_in_prompt": True}):
        with pytest.raises(ConfigError, match="extra_corpora, 'words': a projector alone learns nothing from text"):
            dataclasses.replace(config, extra_corpora={"words": {"data": str(config.data), **words}})


def test_images_that_are_scenes_are_learnt_beside(config: AlignConfig, tmp_path: Path) -> None:
    """Captioned pictures in colour beside grey images."""
    from cxrlab.data.config import ScenesConfig
    from cxrlab.data.synthetic_scenes import make_scenes

    make_scenes(ScenesConfig(n=20, size=32, seed=1, workers=1), tmp_path / "scenes")
    also = {"scenes": {"data": str(tmp_path / "scenes"), "weight": 0.5, "prompts": "caption/1"}}
    done = align(dataclasses.replace(config, extra_corpora=also, cache=tmp_path / "cache"), tmp_path / "run")
    card = read_model_card(tmp_path / "run" / "checkpoint")
    assert done.rows > 40 and card is not None and set(card.collections) == {"phantom", "scenes"}


def test_bfloat16_stores_half_the_bytes_and_learns(config: AlignConfig, tmp_path: Path) -> None:
    half = dataclasses.replace(FAST, precision="bfloat16", gradient_checkpointing=True)
    align(dataclasses.replace(config, optimisation=half), tmp_path / "run")
    assert {value.dtype for value in tensors(tmp_path / "run").values()} == {torch.bfloat16}
    assert all(np.isfinite(losses(tmp_path / "run")))


@pytest.mark.parametrize(
    ("changes", "optimisation", "kind", "said"),
    [
        ({}, {"batch_size": 4000}, ConfigError, "a step takes 4,000 samples"),
        ({}, {"max_length": 5}, ConfigError, "cuts into the 4 image tokens"),
        ({"text": "gpt4"}, {}, DataError, "no text 'gpt4'"),
        ({"encoder": "hf:nowhere"}, {}, DataError, "nowhere"),
        ({"data": Path("nowhere")}, {}, DataError, "nowhere does not exist"),
    ],
)
def test_what_cannot_work_leaves_no_run_behind(
    config: AlignConfig, tmp_path: Path, changes: Any, optimisation: Any, kind: type[Exception], said: str
) -> None:
    wrong = dataclasses.replace(config, **changes, optimisation=dataclasses.replace(FAST, **optimisation))
    with pytest.raises(kind, match=said):
        align(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()
