"""Every family from pixel to loss: as their own processors have it, with a true gradient, for every odd image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_families import FAMILIES, save_tiny
from torch import Tensor
from transformers import AutoModelForImageTextToText

from cxrlab.core.errors import DataError
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.prompting import prompt_text, report_text

REPORT = "Small left pleural effusion."


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(request.param, tmp_path_factory.mktemp("family") / request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> HfModel:
    return HfModel.load(str(folder))


def noise(height: int, width: int) -> Tensor:
    """An 8-bit image in [0, 1]."""
    return torch.randint(0, 256, (height, width), generator=torch.Generator().manual_seed(height)).float() / 255.0


def test_the_folder_has_the_layout_of_its_family(folder: Path) -> None:
    """The Auto class finds the family from the files alone."""
    loaded = AutoModelForImageTextToText.from_pretrained(folder)
    assert loaded.config.model_type == folder.name
    assert {"config.json", "model.safetensors", "processor_config.json", "tokenizer.json"} <= {
        file.name for file in folder.iterdir()
    }


def test_the_parts_of_a_family_have_the_declared_names(model: HfModel) -> None:
    """Adapters go onto the language model, and stages freeze encoder and projector, by these names."""
    family = find_family(model.model.config.model_type)
    assert family.model_types
    language = model.model.get_submodule(family.language_model)
    assert any(isinstance(module, torch.nn.Linear) for module in language.modules())
    encoder, projector = model.model.get_submodule(family.vision_encoder), model.model.get_submodule(family.projector)
    assert sum(p.numel() for p in encoder.parameters()) and sum(p.numel() for p in projector.parameters())


@pytest.mark.parametrize("size", [(40, 30), (33, 90), (200, 180)])
def test_the_loss_is_that_of_the_familys_own_pipeline(model: HfModel, size: tuple[int, int]) -> None:
    """Processor on an 8-bit picture and the whole text, forward, cross-entropy: no line of the wrapper is in it."""
    image, prompt = noise(*size), model.prompts.ask("dyspnea")
    ours = float(model.losses([image], [REPORT], ["dyspnea"]))
    # Rounding to 8 bits moves a pixel by about a hundredth; through two random layers that is still little.
    assert ours == pytest.approx(_own_pipeline(model, image, prompt, {}), abs=0.05)
    # With the same pixels nothing but the order of sums is left: text, positions and token types are the family's.
    assert ours == pytest.approx(_own_pipeline(model, image, prompt, model.path.inputs([image[None]])), abs=1e-4)


def _own_pipeline(model: HfModel, image: Tensor, prompt: str, pixels: dict[str, Tensor]) -> float:
    picture = Image.fromarray(np.asarray(image * 255).round().astype(np.uint8)).convert("RGB")
    processor: Any = model.processor
    text, report = prompt_text(processor, prompt), report_text(processor, REPORT)
    if type(processor).__name__ == "PaliGemmaProcessor":  # it places the report, its end and the token types itself
        inputs = processor(text=text, images=picture, suffix=report, return_tensors="pt")
        labels = inputs.pop("labels")
    else:
        end = model.tokenizer.convert_ids_to_tokens(model.ends[0])
        begun = bool(model.tokenizer.bos_token) and text.startswith(model.tokenizer.bos_token)
        if type(processor).__name__ == "IdeficsProcessor":  # it places the image and the begin token itself
            text, begun = text.removeprefix("<fake_token_around_image><image><fake_token_around_image>"), True
        settings = {"images": [picture], "return_tensors": "pt", "add_special_tokens": not begun}
        before = processor(text=[text], **settings)["input_ids"].shape[1]
        inputs = processor(text=[text + report + end], **settings)
        labels = inputs["input_ids"].clone()
        labels[:, :before] = -100
    with torch.no_grad():
        logits = model.model(**{**inputs, **pixels}).logits
    return float(torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:]))


def test_the_gradient_of_a_loss_is_its_finite_difference(folder: Path) -> None:
    """Along the gradient itself, through resize, vision encoder and language model, in float64."""
    model = HfModel.load(str(folder))
    model.model.double()
    radiograph = (noise(40, 52).double() * 0.2 + 0.4).requires_grad_()

    def loss(image: Tensor) -> Tensor:
        asked = model.encode([radiograph.float()], [model.prompts.ask()], [REPORT])
        pixels = model.path.inputs([image[None]])
        logits = model.model(**{**asked.inputs, **pixels}).logits
        shifted = torch.where(asked.report_mask, asked.ids, -100)[0, 1:]
        return torch.nn.functional.cross_entropy(logits[0, :-1], shifted)

    (slope,) = torch.autograd.grad(loss(radiograph), radiograph)
    assert bool(torch.isfinite(slope).all())
    step = 1e-5 * slope / slope.norm()
    with torch.no_grad():
        measured = float(loss(radiograph + step) - loss(radiograph - step)) / 2e-5
    assert float(slope.norm()) > 1e-4
    # Some families keep rotary tables and norms in float32: the difference has two or three digits there.
    assert measured == pytest.approx(float(slope.norm()), rel=1e-2)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_an_even_image_has_a_loss_and_a_gradient(model: HfModel, level: float) -> None:
    """Controls blank an image; to Idefics one of mean grey would look like padding."""
    image = torch.full((40, 50), level, requires_grad=True)
    loss = model.losses([image], [REPORT])
    (slope,) = torch.autograd.grad(loss.sum(), image)
    assert bool(torch.isfinite(loss).all()) and bool(torch.isfinite(slope).all()) and bool((slope != 0).any())


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (3, 700), (900, 20)])
def test_a_image_of_any_shape_is_read_or_refused(model: HfModel, size: tuple[int, int]) -> None:
    """Qwen takes no image more than 200 times as long as wide, and says so; everybody else takes all of these."""
    image = noise(*size)
    if model.model.config.model_type in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl") and size == (3, 700):
        with pytest.raises(DataError, match="3 × 700"):
            model.losses([image], [REPORT])
    else:
        assert bool(torch.isfinite(model.losses([image], [REPORT])).all())


def test_colour_and_grey_images_share_a_batch(model: HfModel) -> None:
    grey, colour = noise(40, 40), torch.rand(3, 30, 50, generator=torch.Generator().manual_seed(1))
    together = model.losses([grey, colour], [REPORT] * 2)
    alone = torch.cat([model.losses([image], [REPORT]) for image in (grey, colour)])
    torch.testing.assert_close(together, alone, atol=2e-4, rtol=0)
    torch.testing.assert_close(model.losses([grey.expand(3, -1, -1)], [REPORT]), alone[:1], atol=2e-4, rtol=0)


def test_a_pass_without_a_image_is_refused(model: HfModel) -> None:
    with pytest.raises(DataError, match="image"):
        model.path.inputs([])
    with pytest.raises(DataError, match="image"):
        model.encode([], [model.prompts.ask()], [REPORT])
