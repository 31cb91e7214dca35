"""The arithmetic of a step, against sums that a person can do and against torch's own counter."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from dataclasses import replace  # noqa: E402

from tiny_models import tiny_llava  # noqa: E402

from cxrlab.models.hf.operations import Shape, sample_flops, shape_of  # noqa: E402
from cxrlab.models.random_init import TINY  # noqa: E402

NOTHING = Shape(0, 0, 0, 0, 0, (0, 0), 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (replace(NOTHING, linear=100), 4 * 100 * 10),  # frozen: forward 2, backward 2
        (replace(NOTHING, adapters=100), 6 * 100 * 10),  # trained: forward 2, backward 4
        (replace(NOTHING, layers=2, width=8), 6 * 2 * 8 * 10**2),  # half the square, three times
        (replace(NOTHING, output=100), 4 * 100 * 3),  # at the three report tokens alone
        (replace(NOTHING, projector=(7, 5), image_tokens=4), (4 * 7 + 6 * 5) * 4),  # no gradient below the first layer
        (
            replace(NOTHING, vision_encoder=100, vision_encoder_layers=1, vision_encoder_width=8, image_tokens=4),
            2 * 100 * 5 + 4 * 8 * 25,
        ),
    ],
)
def test_each_term_by_hand(shape: Shape, expected: int) -> None:
    """Ten tokens, three of them of the report; the class token makes five of four patches."""
    assert sample_flops(shape, 10, 3) == expected


def adapted() -> object:
    from peft import LoraConfig, get_peft_model

    model, _ = tiny_llava()
    targets = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
    config = LoraConfig(r=4, target_modules=targets, modules_to_save=["multi_modal_projector"])
    return get_peft_model(model, config)


def test_the_shape_of_a_model_counts_its_own_weights() -> None:
    """Width 32: four square matrices and three of 32 x 85 in each of two layers; the encoder's last layer is not used."""
    shape = shape_of(adapted(), features_kept=False)
    assert shape.linear == 2 * (4 * 32 * 32 + 3 * 32 * 85)
    assert shape.adapters == 2 * 4 * (4 * (32 + 32) + 3 * (32 + 85))
    assert shape.projector == (32 * 32, 32 * 32)
    assert (shape.vision_encoder, shape.vision_encoder_layers) == (12 * 32 * 32, TINY.vision_encoder - 1)
    assert shape.image_tokens == TINY.image_tokens
    kept = shape_of(adapted(), features_kept=True)
    assert (kept.vision_encoder, kept.vision_encoder_layers) == (0, 0) and kept.linear == shape.linear


def test_the_forward_pass_is_what_torch_counts() -> None:
    """torch counts the matrix products of a forward pass of the linear layers, adapters and output layer as we do."""
    from torch.utils.flop_counter import FlopCounterMode

    model = adapted().eval()  # type: ignore[attr-defined]
    shape = shape_of(model, features_kept=True)
    length = 20
    embeddings = torch.randn(1, length, 32)
    language = model.base_model.model.model.language_model
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        hidden = language(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        model.base_model.model.lm_head(hidden[0, -3:])
    counted = counter.get_flop_counts()["Global"]
    products = sum(n for kind, n in counted.items() if "attention" not in str(kind) and "bmm" not in str(kind))
    # A third of the trained and half of the frozen arithmetic is the forward pass.
    assert products == 2 * (shape.linear + shape.adapters) * length + 2 * shape.output * 3
