"""The estimate of a gradient's memory beside what autograd keeps, and what is chosen from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from saved_bytes import saved_bytes
from tiny_models import save_tiny_llava, tiny_tokenizer

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf import gradient_memory, saliency
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.gradient_memory import GradientMemory, checkpoint_layers, estimate_gradient, plan_gradients
from cxrlab.models.hf.model import HfModel
from cxrlab.models.prompts import load_prompts
from cxrlab.models.random_init import (
    TINY,
    Size,
    assemble_llava,
    build_image_processor,
    build_language_model,
    build_vision_encoder,
)

SIDE, REPORT = 64, "The heart is normal in size. The lungs are clear."
QUESTIONS = ["Is there a pleural effusion?", "Edema?", "Is the heart enlarged?"]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> HfModel:
    """Layers enough that they outweigh what else is kept."""
    size = replace(TINY, language=12, image=SIDE, patch=4)
    return HfModel.load(str(save_tiny_llava(tmp_path_factory.mktemp("deep") / "llava", size=size)))


@pytest.fixture
def plain_layers(deep: HfModel) -> Iterator[None]:
    yield
    checkpoint_layers(deep.model, False)


def image() -> torch.Tensor:
    return torch.rand(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(3)).requires_grad_()


@pytest.mark.usefixtures("plain_layers")
def test_the_estimate_holds_what_autograd_keeps(deep: HfModel) -> None:
    """For one report and for several questions; at most 2.5 times as much, which covers families that keep more."""
    length, answer = deep.prompt_length(None, (SIDE, SIDE)) + deep.report_length(REPORT), deep.report_length(REPORT)
    asked = deep.question_lengths(QUESTIONS, (SIDE, SIDE))
    for estimate, compute in (
        (estimate_gradient(deep, (SIDE, SIDE), [length], answer), lambda: deep.losses(image(), [REPORT])),
        (
            estimate_gradient(deep, (SIDE, SIDE), asked, 2 * len(asked)),
            lambda: deep.yes_margins_of_each(image(), QUESTIONS),
        ),
    ):
        _, plain = saved_bytes(deep.model, compute)
        checkpoint_layers(deep.model)
        _, checkpointed = saved_bytes(deep.model, compute)
        checkpoint_layers(deep.model, False)
        assert plain < estimate.plain < 2.5 * plain
        assert checkpointed < estimate.checkpointed < estimate.plain / 2 and checkpointed < plain / 4


def test_the_estimate_for_seven_billion_weights_is_near_what_an_h200_took() -> None:
    """20 and 43 GiB with 1 and 4 images per pass; 20 and 30 GiB with 4 and 16 and checkpointing (bfloat16, 518 px)."""
    size = Size(image=518, patch=14, vision_encoder=12, language=32, width=768, head=64, context=4096)
    language = replace(size, width=4096, head=128)
    tokenizer, before = tiny_tokenizer(), torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            parts = build_vision_encoder(size, 0), build_language_model(tokenizer, language, 1)
            model, processor = assemble_llava(*parts, tokenizer, build_image_processor(518), 2)
    finally:
        torch.set_default_dtype(before)
    large = HfModel(Checkpoint(model.eval(), processor, tokenizer, None, Path()), "large", load_prompts())
    found = estimate_gradient(large, (518, 518), [large.prompt_length(None, (518, 518)) + 100], 100)
    plain, checkpointed = (43 - 20) / 3, (30 - 20) / 12  # GiB per image
    assert plain < found.plain / 2**30 < 1.5 * plain and checkpointed < found.checkpointed / 2**30 < 1.5 * checkpointed
    plan = plan_gradients(found, 16, int(126e9))
    assert (plan.images, plan.checkpointing) == (3, False)  # 14 GB of weights and 3 · 8.2 GB as measured


@pytest.mark.parametrize(
    ("free", "operations", "asked", "images", "checkpointing"),
    [
        (None, 1.0, None, 16, False),  # unknown memory
        (100, 1.0, None, 10, False),
        (100, 1.0, True, 16, True),
        (100, 2e13, None, 3, False),  # three images keep the GPU busy
        (9, 1.0, None, 9, True),  # 10 bytes do not fit
        (10, 9e13, None, 1, False),
    ],
)
def test_the_plan_fits_and_keeps_the_gpu_busy(
    free: int | None, operations: float, asked: bool | None, images: int, checkpointing: bool
) -> None:
    plan = plan_gradients(GradientMemory(10, 1, operations), 16, free, asked)
    assert (plan.images, plan.checkpointing) == (images, checkpointing)


def test_an_image_that_does_not_fit_is_refused_with_the_sizes() -> None:
    with pytest.raises(ConfigError, match=r"about 3\.0 GB .* 2\.0 GB are free"):
        plan_gradients(GradientMemory(int(9e9), int(3e9), 1.0), 16, int(2e9))
    with pytest.raises(ConfigError, match="--gradient-checkpointing auto"):
        plan_gradients(GradientMemory(int(9e9), int(1e9), 1.0), 16, int(2e9), False)


@pytest.mark.usefixtures("plain_layers")
def test_gradient_maps_use_checkpointing_where_the_plain_graph_does_not_fit(
    deep: HfModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same values; too little memory for that is refused before the pass."""
    array = np.asarray(image().detach()[0, 0])
    parts = [[(0, 9)], [(10, len(REPORT))]]
    expected = list(saliency.gradients(deep, array, REPORT, parts))
    length, answer = deep.prompt_length(None, (SIDE, SIDE)) + deep.report_length(REPORT), deep.report_length(REPORT)
    needed = estimate_gradient(deep, (SIDE, SIDE), [length], answer)
    assert needed.checkpointed < needed.plain - 1
    monkeypatch.setattr(gradient_memory, "free_memory", lambda device: needed.plain - 1)
    found = list(saliency.gradients(deep, array, REPORT, parts))
    assert "forward" in vars(deep.model.get_decoder().layers[0])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-4, atol=1e-6 * float(np.abs(other.values).max()))
    monkeypatch.setattr(gradient_memory, "free_memory", lambda device: needed.checkpointed - 1)
    with pytest.raises(ConfigError, match="are free"):
        next(saliency.gradients(deep, array, REPORT, parts))
