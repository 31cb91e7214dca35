"""Gradients of words with respect to pixels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from tiny_families import save_tiny

from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import Capabilities
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.saliency import gradients, integrated, smoothed

REPORT = "Small left pleural effusion."
PARTS = [[(6, 10)], [(0, 5), (19, 27)]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> HfModel:
    return HfModel.load(str(save_tiny("llava", tmp_path_factory.mktemp("llava"))))


def image(*shape: int) -> Any:
    return np.random.default_rng(3).uniform(0.2, 0.8, shape).astype(np.float32)


def reported(model: HfModel, image: Any, tokens: tuple[int, ...]) -> float:
    with torch.no_grad():
        return float(model.log_probabilities([image], [REPORT], [None]).values[0, list(tokens)].sum())


@pytest.mark.parametrize("shape", [(48, 40), (24, 30, 3)])
def test_a_gradient_is_the_slope_along_a_change_of_the_image(model: HfModel, shape: tuple[int, ...]) -> None:
    """Central difference of the words' log-probability along a random change, at the image's own size."""
    one_image = image(*shape)
    found = list(gradients(model, one_image, REPORT, PARTS))
    from cxrlab.models.hf.prompting import report_ids, token_text

    written = token_text(model.tokenizer, report_ids(model.processor, REPORT))
    words = [written.tokens_of(part) for part in PARTS]
    change = np.random.default_rng(4).standard_normal(shape[:2]).astype(np.float32)
    step = 2e-3 * (change if len(shape) == 2 else change[..., None])
    for gradient, tokens in zip(found, words, strict=True):
        assert gradient.values.shape == shape
        slope = (reported(model, one_image + step, tokens) - reported(model, one_image - step, tokens)) / 4e-3
        assert slope == pytest.approx(float((gradient.values * step).sum()) / 2e-3, rel=0.03, abs=3e-3)
        assert gradient.log_probability == pytest.approx(reported(model, one_image, tokens), abs=1e-5)


@pytest.mark.parametrize("shape", [(40, 32), (24, 30, 3)])
def test_an_integrated_gradient_adds_up_to_what_the_image_tells(model: HfModel, shape: tuple[int, ...]) -> None:
    """log p on the image less log p on a flat one, up to the steps: 64 of them come within 2 %, as many as 8 near."""
    one_image = image(*shape)
    from cxrlab.models.hf.prompting import report_ids, token_text

    tokens = token_text(model.tokenizer, report_ids(model.processor, REPORT)).tokens_of(PARTS[0])
    told_by_image = reported(model, one_image, tokens) - reported(
        model, np.full_like(one_image, one_image.mean()), tokens
    )
    fine, coarse = (integrated(model, one_image, REPORT, PARTS[0], steps=steps) for steps in (64, 8))
    assert fine.shape == shape and abs(told_by_image) > 0.01
    assert float(fine.sum()) == pytest.approx(told_by_image, rel=0.02)
    assert np.corrcoef(fine.ravel(), coarse.ravel())[0, 1] > 0.95


def test_the_image_of_the_caller_stays_as_it_is(model: HfModel) -> None:
    one_image = image(32, 32)
    before = one_image.copy()
    list(gradients(model, one_image, REPORT, PARTS))
    assert np.array_equal(one_image, before)


def test_a_model_without_gradients_is_refused() -> None:
    blind = cast(HfModel, SimpleNamespace(capabilities=Capabilities(attention=True), name="hf:x"))
    with pytest.raises(ConfigError, match="attention maps instead"):
        next(gradients(blind, image(8, 8), REPORT, PARTS))


def test_smoothing_keeps_a_flat_map_and_spreads_a_point_evenly() -> None:
    """Also at the edges, where part of the weights would lie outside."""
    flat = np.full((9, 13), 2.0, np.float32)
    assert np.allclose(smoothed(flat, 2.0), flat)
    point = np.zeros((21, 21), np.float32)
    point[10, 10] = 1.0
    blurred = smoothed(point, 1.5)
    assert blurred.sum() == pytest.approx(1.0, abs=1e-3) and blurred.argmax() == 10 * 21 + 10
    assert np.allclose(blurred, blurred.T) and blurred[10, 13] / blurred[10, 10] == pytest.approx(
        np.exp(-2.0), rel=1e-4
    )
    assert smoothed(point, 0.0) is point
