"""Several images in one prompt, for every family: two of one study, one of another."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_families import FAMILIES, save_tiny, tiny
from tiny_models import tiny_llava
from torch import Tensor
from training_fixtures import losses

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.model_interfaces import StudyContext
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.inputs import make_encoder
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.pixels import difference, processed
from cxrlab.models.load_settings import LoadSettings
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import FinetuneConfig, Optimisation, Validation

TOLERANCE = 2e-4
REPORTS = ["No effusion.", "The heart is normal in size. The lungs are clear."]


def images() -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.randint(0, 256, size, generator=source) / 255 for size in ((48, 40), (30, 64), (70, 33))]


def contexts(second: Tensor) -> list[StudyContext]:
    prior = "Clear <image> lungs. </s>"  # special tokens of a report are text
    return [
        StudyContext("pain", ("frontal", "prior frontal"), prior, (second,)),  # type: ignore[arg-type]
        StudyContext(None, ("frontal",), ""),
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several") / "corpus"
    make_phantom(PhantomConfig(n=24, size=32, seed=3, workers=1, masks=False, lateral=True), folder)
    return folder


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_several_images_in_one_prompt(family: str, corpus: Path, tmp_path: Path) -> None:
    """Inputs, generation alone and in a batch, gradients to every image, the order of images, and training.

    A family that declares one image per prompt refuses them, in use and in training.
    """
    start = save_tiny(family, tmp_path / "start")
    model = HfModel.load(str(start), loading=LoadSettings(prompts="llava-rad/2"))
    first, second, other = images()
    context = model.model.config.get_text_config().max_position_embeddings
    steps = Optimisation(
        batch_size=4,
        steps=6,
        max_length=context,
        log_every=1,
        seed=5,
        learning_rate=1e-2,
        warmup=0.0,
        schedule="constant",
    )
    config = FinetuneConfig(
        data=corpus, start=f"hf:{start}", n=8, lora_rank=4, lora_dropout=0.0, prompts="llava-rad/2", optimisation=steps,
        validation=Validation(n=0), cache=corpus.parent / "cache", views=("frontal", "lateral"),
        prior=("image", "report"),
    )  # fmt: skip
    if not model.capabilities.several_images:
        with pytest.raises(ConfigError, match="one image"):
            model.losses([first, other], REPORTS, contexts(second))
        with pytest.raises(ConfigError, match=f"'{family}' takes one image"):
            finetune(config, tmp_path / "run")
        return
    path = model.path
    grouped = [(first[None], second[None]), (other[None],)]
    assert difference(path.inputs(grouped), processed(model.processor.image_processor, grouped, path)) <= path.tolerance  # type: ignore[arg-type]

    both = contexts(second)
    for how in (Decoding(max_new_tokens=6), Decoding(strategy="sample", max_new_tokens=6, answers=2)):
        together = model.answers([first, other], both, how)
        alone = [model.answers([image], [one], how)[0] for image, one in zip((first, other), both, strict=True)]
        assert [[one.text for one in row] for row in together] == [[one.text for one in row] for row in alone]
        for row, expected in zip(together, alone, strict=True):
            assert [one.mean_logprob for one in row] == pytest.approx(
                [one.mean_logprob for one in expected], abs=TOLERANCE
            )

    shown = [image.clone().requires_grad_() for image in (first, second)]
    told = model.losses([shown[0], other], REPORTS, contexts(shown[1]))
    for gradient in torch.autograd.grad(told[0], shown):
        assert float(gradient.abs().max()) > 1e-6
    one, reverse = model.losses_of_each([first, other], [REPORTS, REPORTS[::-1]], both)
    torch.testing.assert_close(one, told.detach(), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(reverse, model.losses([first, other], REPORTS[::-1], both), atol=TOLERANCE, rtol=0)
    (moved, kept) = (model.losses([second, other], REPORTS, contexts(first)) - told).tolist()
    assert abs(moved) > 1e-5 and abs(kept) < TOLERANCE

    finetune(config, tmp_path / "run")
    found = losses(tmp_path / "run")
    assert min(found[-2:]) < 0.95 * found[0]
    card = HfModel.load(str(tmp_path / "run" / "checkpoint")).card
    assert card is not None and card.prompts == "llava-rad/2" and card.extra["prior"] == ["image", "report"]


def test_image_tokens_are_those_of_the_processor_and_words_stay_words() -> None:
    """Two images of four tokens each stand before the prompt; a prior report that says <image> adds none."""
    model, processor = tiny_llava()
    encoder = make_encoder(model, processor)
    first, second, other = (image[None] for image in images())
    encoded = encoder.encode([(first, second), other], ["Findings? <image>", "Findings?"])
    assert encoded.image_mask.sum(dim=1).tolist() == [8, 4]
    plain = processor.tokenizer.decode(encoded.ids[0][: int(encoded.inputs["attention_mask"][0].sum())])
    assert plain.replace("<image>" * 4, "<image>") == "<s><image>\n<image>\nFindings? <image>"


def test_what_does_not_belong_together_is_refused() -> None:
    model, processor = tiny("llava")

    class Checkpoint:
        tokenizer, card, folder = processor.tokenizer, None, None

        def __init__(self) -> None:
            self.model, self.processor = model, processor

    from cxrlab.models.prompts import load_prompts

    opened: Any = HfModel(Checkpoint(), "hf:x", load_prompts("llava-rad/2"))  # type: ignore[arg-type]
    first, second, _ = images()
    named = contexts(second)[0]
    with pytest.raises(DataError, match="has 2 images, and 1 are named"):
        opened.losses([first], REPORTS[:1], [dataclasses.replace(named, image_names=("frontal",))])
    old: Any = HfModel(Checkpoint(), "hf:x", load_prompts("llava-rad/1"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'llava-rad/1' .* 'images'.* llava-rad/2"):
        old.losses([first], REPORTS[:1], [named])
    # With one image and no context the two versions are the same prompt.
    same = [float(one.losses([first], REPORTS[:1], ["pain"])) for one in (old, opened)]
    assert same[0] == same[1]
