"""open_clip encoders: layer by layer the same numbers as a forward written out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from plain_forward import bert_states, vit_class_token, vit_states
from published_checkpoints import PATCH, SHARED, open_clip_folder, open_clip_tensors
from torch.nn.functional import gelu, normalize

from cxrlab.core.errors import CxrlabError
from cxrlab.models.biomedclip import dual_encoder_class
from cxrlab.models.convert import ConvertConfig, convert, under
from cxrlab.models.local_files import load_image_processor
from cxrlab.models.model_card import read_model_card

TEXTS = ["the lungs are clear .", "small left pleural effusion", "no edema"]


def opened(folder: Path) -> Any:
    return dual_encoder_class(folder).from_pretrained(folder, local_files_only=True).eval()


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BiomedCLIP's layout: first token, two matrices on the text side."""
    root = tmp_path_factory.mktemp("biomedclip")
    convert("open-clip", open_clip_folder(root / "published"), ConvertConfig(), root / "out")
    return root / "out"


@pytest.mark.parametrize("scaled", [True, False], ids=["dinov2", "vit"])
def test_every_layer_of_the_vision_encoder(tmp_path: Path, scaled: bool) -> None:
    """Also without LayerScale: a factor of one is no factor."""
    tensors = open_clip_tensors(scaled=scaled)
    convert("open-clip", open_clip_folder(tmp_path / "in", tensors), ConvertConfig(), tmp_path / "out")
    pixels = torch.randn(2, 3, 3 * PATCH, 3 * PATCH, generator=torch.Generator().manual_seed(0))
    expected = vit_states(under(tensors, "visual.trunk."), pixels)
    with torch.no_grad():
        found = opened(tmp_path / "out").vision_model(pixels, output_hidden_states=True)
    assert len(found.hidden_states) == len(expected) == 4
    for ours, theirs in zip(found.hidden_states, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert (expected[-1] - expected[0]).abs().mean() > 0.1  # the blocks do something


def test_image_and_text_vectors(converted: Path) -> None:
    """Class token after the last norm times one matrix; first token through two matrices with a GELU between."""
    from transformers import AutoTokenizer

    tensors, model = open_clip_tensors(), opened(converted)
    pixels = torch.randn(2, 3, 3 * PATCH, 3 * PATCH, generator=torch.Generator().manual_seed(1))
    tokens = AutoTokenizer.from_pretrained(converted)(TEXTS, padding=True, return_tensors="pt")
    states = bert_states(under(tensors, "text.transformer."), tokens["input_ids"])
    images = vit_class_token(under(tensors, "visual.trunk."), pixels) @ tensors["visual.head.proj.weight"].T
    texts = gelu(states[-1][:, 0] @ tensors["text.proj.0.weight"].T) @ tensors["text.proj.2.weight"].T
    with torch.no_grad():
        found = model(**tokens, pixel_values=pixels)
        layers = model.text_model(**tokens, output_hidden_states=True).hidden_states
        torch.testing.assert_close(model.get_image_features(pixels).pooler_output, images, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model.get_text_features(**tokens).pooler_output, texts, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(layers, states, strict=True):
        real = tokens["attention_mask"].bool()
        torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)
    expected = torch.tensor(4.25).exp() * normalize(images) @ normalize(texts).T
    torch.testing.assert_close(found.logits_per_image, expected, atol=1e-4, rtol=1e-5)
    assert images.shape == texts[:2].shape == (2, SHARED)


def test_a_linear_projection_and_berts_own_pooler_give_the_plain_class(tmp_path: Path) -> None:
    """Where transformers' own class computes the same, anyone can open the folder."""
    from transformers import AutoTokenizer

    tensors = open_clip_tensors(mlp=False, pooler=True)
    source = open_clip_folder(tmp_path / "in", tensors, hf_proj_type="linear", hf_pooler_type="cls_pooler")
    assert convert("open-clip", source, ConvertConfig(), tmp_path / "out").model == "VisionTextDualEncoderModel"
    tokens = AutoTokenizer.from_pretrained(tmp_path / "out")(TEXTS, padding=True, return_tensors="pt")
    bert = under(tensors, "text.transformer.")
    first = bert_states(bert, tokens["input_ids"])[-1][:, 0]
    pooled = torch.tanh(first @ bert["pooler.dense.weight"].T + bert["pooler.dense.bias"])
    with torch.no_grad():
        found = opened(tmp_path / "out").get_text_features(**tokens).pooler_output
    torch.testing.assert_close(found, pooled @ tensors["text.proj.weight"].T, atol=1e-5, rtol=1e-5)


def test_the_folder_says_what_it_is(converted: Path) -> None:
    """Images are prepared as open_clip does and texts cut where it cuts them; nobody says what it has learnt from."""
    from transformers import AutoTokenizer

    assert read_model_card(converted) is None
    assert AutoTokenizer.from_pretrained(converted).model_max_length == 16
    images = load_image_processor(converted)
    assert images.size["shortest_edge"] == 42 and images.resample == 3 and images.do_center_crop
    assert [round(value, 4) for value in images.image_mean] == [0.4815, 0.4578, 0.4082]


def test_training_checkpoints_open_at_their_state(tmp_path: Path) -> None:
    """BiomedCLIP-CXR is published as one: `module.` in front, epoch and optimiser beside, pooler that nobody uses."""
    import numpy as np

    tensors = open_clip_tensors(pooler=True)
    source = open_clip_folder(tmp_path / "in", {})
    (source / "open_clip_pytorch_model.bin").unlink()
    state = {f"module.{name}": tensor for name, tensor in tensors.items()}
    torch.save({"epoch": 3, "name": "run", "best": np.float64(0.5), "state_dict": state}, source / "checkpoint.pt")
    done = convert("open-clip", source, ConvertConfig(), tmp_path / "out")
    assert {name.rpartition(".")[0] for name in done.unused} >= {"text.transformer.pooler.dense"}
    model = opened(tmp_path / "out")
    assert torch.equal(model.visual_projection.weight, tensors["visual.head.proj.weight"])


def test_numbers_can_be_written_in_half_precision(tmp_path: Path) -> None:
    """The encoder's weights are then the source's, rounded; and a card says what the encoder has learnt from, where given."""
    config = ConvertConfig(dtype="bfloat16", collections=("pubmed-central",))
    done = convert("open-clip", open_clip_folder(tmp_path / "in"), config, tmp_path / "out")
    assert set(done.unused) == {"text.transformer.embeddings.position_ids"}
    card, model = read_model_card(tmp_path / "out"), opened(tmp_path / "out")
    assert card is not None and card.collections == ("pubmed-central",)
    assert model.dtype == torch.bfloat16
    expected = open_clip_tensors()["visual.trunk.norm.weight"].bfloat16()
    assert torch.equal(model.vision_model.layernorm.weight, expected)


def spoiled(change: Any) -> dict[str, torch.Tensor]:
    tensors = open_clip_tensors()
    change(tensors)
    return tensors


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop("visual.trunk.blocks.1.attn.qkv.bias"), "1 tensor missing (blocks.1.attn.qkv.bias)"),
        (
            lambda t: t.update({"visual.trunk.blocks.0.attn.q_norm.weight": torch.ones(64)}),
            "blocks.0.attn.q_norm.weight",
        ),
        (lambda t: t.update({"visual.trunk.reg_token": torch.ones(1, 4, 128)}), "register tokens"),
        (lambda t: t.update({"visual.trunk.norm.weight": torch.ones(7)}), "layernorm.weight (7, not 128)"),
        (lambda t: t.update({"visual.trunk.blocks.0.attn.qkv.weight": torch.ones(7, 128)}), "not 3 equal parts"),
        (lambda t: t.update({"visual.trunk.pos_embed": torch.ones(1, 12, 128)}), "12 position embeddings"),
        (lambda t: t.update({"visual.trunk.pos_embed": torch.ones(1, 17, 128)}), "positions are not resampled"),
        (lambda t: t.update({"visual.head.mlp.fc1.weight": torch.ones(2, 2)}), "head.mlp.fc1.weight"),
        (lambda t: t.pop("visual.head.proj.weight"), "head.proj.weight"),
        (lambda t: t.update({"visual.head.proj.weight": torch.ones(3, 128)}), "shape 3×128 where 24×128"),
        (lambda t: t.pop("logit_scale"), "logit_scale"),
        (lambda t: t.update({"logit_bias": torch.tensor(1.0)}), "logit_bias"),
        (lambda t: t.pop("text.proj.2.weight"), "proj.2.weight"),
        (lambda t: t.update({"text.proj.weight": torch.ones(24, 64)}), "proj.weight"),
        (lambda t: t.pop("text.transformer.encoder.layer.1.output.dense.bias"), "encoder.layer.1.output.dense.bias"),
        (lambda t: t.pop("text.transformer.embeddings.word_embeddings.weight"), "word_embeddings.weight"),
        (lambda t: [t.pop(name) for name in list(t) if name.startswith("visual.trunk.blocks")], "blocks.0"),
        (lambda t: [t.pop(name) for name in list(t) if name.startswith("visual.trunk.")], "visual.trunk.*"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path: Path, change: Any, named: str) -> None:
    """Nothing is dropped, made up or reshaped in silence, and nothing is written."""
    with pytest.raises(CxrlabError) as reported:
        convert("open-clip", open_clip_folder(tmp_path / "in", spoiled(change)), ConvertConfig(), tmp_path / "out")
    assert named in str(reported.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
