"""Maps of parts of a report from one model."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch")
from planted_attention import PlantedModel
from tiny_families import save_tiny

from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.saliency_maps import check_maps_available, compute_part_maps, count_layers, parse_map
from cxrlab.models.baselines import Stub
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.saliency import gradients, integrated, smoothed
from cxrlab.models.load_settings import LoadSettings

REPORT = "Small left effusion."


def image() -> Any:
    """Black but for the patch in row 1, column 2 of 4 x 4."""
    found = np.zeros((32, 32), np.float32)
    found[8:16, 16:24] = 0.9
    return found


def test_planted_attention_comes_out_as_it_was_planted() -> None:
    """Head 1 puts 0.75 on the bright cell, head 2 half of itself on all 16: the mean is 3/8 + 1/64 there, 1/64 else."""
    model = cast(HfModel, PlantedModel(REPORT))
    names = [parse_map(name) for name in ("max-mean", "relative:layer:1", "sheet")]
    (found,) = compute_part_maps(model, image(), REPORT, [[(11, 19)]], names)
    flat = np.full((4, 4), 1 / 64, np.float32)
    flat[1, 2] += 0.375
    assert np.allclose(found.values["max-mean"], flat)
    assert np.allclose(found.values["relative:layer:1"], 0.0, atol=1e-7)  # every word looks alike
    assert found.values["sheet"].shape == (1, 2, 4, 4) and found.values["sheet"][0, 0, 1, 2] == 0.75
    assert found.image_share == pytest.approx((0.75 + 0.5) / 2) and found.log_probability is None
    painted = found.painted(names[0], 32, 32)
    assert painted.shape == (32, 32) and painted.argmax() in (11 * 32 + 19, 11 * 32 + 20, 12 * 32 + 19, 12 * 32 + 20)


def test_gradient_maps_are_sizes_smoothed_at_the_size_of_the_image(tmp_path: Any) -> None:
    model = HfModel.load(str(save_tiny("llava", tmp_path)), None, LoadSettings(attention="eager"))
    image = np.random.default_rng(0).random((40, 30)).astype(np.float32)
    names = [parse_map(name) for name in ("input-gradient", "max-mean", "gradient", "integrated-gradient")]
    parts = [[(0, 5)], [(6, 10)]]
    found = list(compute_part_maps(model, image, REPORT, parts, names, smooth=0.05))
    for maps, slope, part in zip(found, gradients(model, image, REPORT, parts), parts, strict=True):
        assert list(maps.values) == [name.text for name in names]
        assert np.allclose(maps.values["gradient"], smoothed(np.abs(slope.values), 2.0), atol=1e-6)
        assert np.allclose(maps.values["input-gradient"], smoothed(np.abs(slope.values * image), 2.0), atol=1e-6)
        whole = integrated(model, image, REPORT, part)
        assert np.allclose(maps.values["integrated-gradient"], smoothed(np.abs(whole), 2.0), atol=1e-6)
        assert maps.log_probability == pytest.approx(slope.log_probability)
        assert maps.painted(names[2], 40, 30) is maps.values["gradient"]
    alone = next(compute_part_maps(model, image, REPORT, parts, names[2:]))
    assert alone.grid == found[0].grid and alone.image_share is None


@pytest.mark.parametrize("name", ["max-mean", "gradient"])
def test_a_model_that_cannot_is_refused_at_the_door(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'stub:normal' gives no .* which the map '{name}' needs; name a checkpoint"):
        check_maps_available(Stub("normal"), [parse_map(name)])


def test_a_layer_beyond_the_last_is_refused_at_the_door() -> None:
    model = cast(Any, PlantedModel(REPORT))
    assert check_maps_available(model, [parse_map("layer:-1")]) is model and count_layers(model) == 1
    with pytest.raises(ConfigError, match="a model that has 1"):
        check_maps_available(model, [parse_map("layer:2")])
