"""Times from sizes alone: the speeds that were measured on one H200, and what scales with what."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from transformers import Dinov2Config, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration  # noqa: E402

from cxrlab.core.errors import ConfigError  # noqa: E402
from cxrlab.models.hf import operations  # noqa: E402
from cxrlab.models.hf.operations import Gpus, open_sizes, sample_flops, shape_of, with_adapters  # noqa: E402

H200 = Gpus("h200-141gb")
TOKENS, PROMPT, REPORT = 1571, 1431, 140  # of the longest measured sample


@pytest.fixture(scope="module")
def model() -> Any:
    """LLaVA-Rad's sizes."""
    config = LlavaConfig(vision_config=Dinov2Config(image_size=518, patch_size=14), text_config=LlamaConfig())
    with torch.device("meta"):
        return LlavaForConditionalGeneration(config)


def test_the_shares_give_the_measured_speeds(model: Any) -> None:
    """5.1 samples per second, 134 ms per gradient, and 9.9 s for 35 reports of 256 tokens; see docs/scale.md."""
    shape = shape_of(model, features_kept=False)
    adapted = with_adapters(shape, model, 64)
    assert adapted.adapters == 159_907_840  # rank 64 on seven linear layers of 32 blocks
    speed = 1 / H200.seconds(sample_flops(adapted, TOKENS, REPORT), operations.TRAINING)
    assert speed == pytest.approx(5.1, rel=0.1)
    assert H200.seconds(shape.gradient(TOKENS, REPORT), operations.GRADIENT) == pytest.approx(0.134, rel=0.1)
    assert shape.report_seconds(H200, PROMPT, 256, 35) == pytest.approx(9.9 / 35, rel=0.1)


def test_a_larger_batch_reads_the_weights_less_often_per_report(model: Any) -> None:
    shape = shape_of(model, features_kept=False)
    one, many = (shape.report_seconds(H200, PROMPT, 256, batch) for batch in (1, 64))
    assert one > 2 * many
    assert shape.report_seconds(Gpus("h200-141gb", 8), PROMPT, 256, 1) == pytest.approx(one / 8)


def test_hardware_is_named_with_a_count() -> None:
    assert Gpus.parse("8xh100-80gb") == Gpus("h100-80gb", 8) and str(Gpus.parse("h100-80gb")) == "h100-80gb"
    for wrong in ("h100", "0xh100-80gb", "xh100-80gb"):
        with pytest.raises(ConfigError, match="h100-80gb"):
            Gpus.parse(wrong)


def test_a_config_without_weights_has_the_sizes(model: Any, tmp_path: Any) -> None:
    model.config.save_pretrained(tmp_path / "whole")
    assert shape_of(open_sizes(f"hf:{tmp_path / 'whole'}"), features_kept=False) == shape_of(model, features_kept=False)
    model.config.vision_config.save_pretrained(tmp_path / "vision")
    model.config.text_config.save_pretrained(tmp_path / "text")
    parts = open_sizes(None, f"hf:{tmp_path / 'vision'}", f"hf:{tmp_path / 'text'}")
    assert shape_of(parts, features_kept=False).linear == shape_of(model, features_kept=False).linear
    with pytest.raises(ConfigError, match="dinov2"):
        open_sizes(f"hf:{tmp_path / 'vision'}")
