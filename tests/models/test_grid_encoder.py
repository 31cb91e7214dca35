"""Convolutional networks as vision encoders: tokens, statistics, files, and the parts that they become."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_tokenizer
from transformers import ResNetConfig, ResNetModel, SwinConfig, SwinModel

from cxrlab.core.errors import ConfigError, DataError, UnknownName
from cxrlab.models import efficientnet_lite
from cxrlab.models.efficientnet_lite import VARIANTS, EfficientNetLite, EfficientNetLiteConfig
from cxrlab.models.grid_encoder import GridEncoder, around
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_parts import load_vision_encoder
from cxrlab.models.random_init import TINY, assemble_llava, build_image_processor, build_language_model


def tiny() -> GridEncoder:
    torch.manual_seed(0)
    return around(EfficientNetLite(EfficientNetLiteConfig(width=0.2, depth=0.3)), 64).eval()


def test_the_grid_becomes_tokens_row_by_row_behind_their_mean() -> None:
    encoder, pixels = tiny(), torch.rand(2, 3, 64, 64)
    grid = encoder.backbone(pixels).last_hidden_state
    found = encoder(pixels, output_hidden_states=True)
    assert grid.shape == (2, 1280, 2, 2) and found.last_hidden_state.shape == (2, 5, 1280)
    assert (encoder.config.patch_size, encoder.config.hidden_size) == (32, 1280)
    # First row, second column; another memory layout rounds differently.
    assert torch.allclose(found.last_hidden_state[:, 2], grid[:, :, 0, 1], atol=1e-5)
    assert torch.allclose(found.pooler_output, grid.mean((2, 3)), atol=1e-5) and torch.equal(
        found.pooler_output, found.last_hidden_state[:, 0]
    )
    assert torch.equal(found.hidden_states[-2], found.last_hidden_state)


def test_odd_padding_lies_at_the_right_and_at_the_bottom() -> None:
    stem = tiny().backbone.stem.conv
    pixels = torch.zeros(1, 3, 64, 64)
    pixels[..., 63, 63] = 1.0
    with torch.no_grad():
        found = efficientnet_lite._Convolution.forward(tiny().backbone.stem, pixels)[0, :, 31, 31]
        norm = tiny().backbone.stem.norm
    # The last output sees pixels 62, 63 and one of padding: pixel 63 meets the middle of the kernel.
    expected = stem.weight[:, :, 1, 1].sum(1) / (norm.running_var + norm.eps).sqrt()
    assert torch.allclose(found, expected, atol=1e-6)


def test_statistics_of_a_frozen_network_stay_in_training() -> None:
    encoder = tiny().requires_grad_(False)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    encoder(torch.rand(2, 3, 64, 64))
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    encoder.requires_grad_(True).train()
    encoder(torch.rand(2, 3, 64, 64))
    assert not torch.equal(encoder.backbone.stem.norm.running_mean, before["backbone.stem.norm.running_mean"])


@pytest.mark.parametrize("family", ["efficientnet", "resnet", "swin"])
def test_folders_open_as_vision_encoders_of_any_size(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    if family == "efficientnet":
        model, side = tiny(), 64
    elif family == "resnet":
        model, side = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])), 64
    else:
        model = SwinModel(SwinConfig(image_size=64, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4))
        side = 64
    model.save_pretrained(tmp_path)
    build_image_processor(side, (0.5,) * 3, (0.25,) * 3).save_pretrained(tmp_path)
    found = load_vision_encoder(f"hf:{tmp_path}", image_size=96 if family != "swin" else None)
    size, patch = found.model.config.image_size, found.model.config.patch_size
    assert found.any_size and size == (64 if family == "swin" else 96)
    assert list(found.image_processor.image_mean) == [0.5] * 3
    pixels = torch.rand(1, 3, size, size, requires_grad=True)
    tokens = found.model(pixels).last_hidden_state
    assert tokens.shape[1] == (size // patch) ** 2 + 1
    (gradient,) = torch.autograd.grad(tokens.sum(), pixels)
    assert gradient.abs().sum() > 0
    with pytest.raises(ConfigError, match="100"):
        load_vision_encoder(f"hf:{tmp_path}", image_size=100)


def test_a_llava_of_it_is_saved_and_opened_again(tmp_path: Path) -> None:
    encoder, tokenizer = tiny(), tiny_tokenizer()
    language = build_language_model(tokenizer, TINY, 1)
    model, processor = assemble_llava(encoder, language, tokenizer, build_image_processor(64), 2)
    model.eval().save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    opened = open_checkpoint(tmp_path, LoadSettings(device="cpu", dtype="float32")).model
    pixels = torch.rand(1, 3, 64, 64, requires_grad=True)
    ids = torch.tensor([[tokenizer.convert_tokens_to_ids("<image>")] * 4 + [5, 6]])
    with torch.no_grad():
        expected = model(input_ids=ids, pixel_values=pixels).logits
    found = opened(input_ids=ids, pixel_values=pixels).logits
    assert torch.equal(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), pixels)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_published_weights_fill_every_tensor(name: str) -> None:
    """`load_state_dict` is strict. Stem and head have one width; the size is that of the published network."""
    pytest.importorskip(VARIANTS[name].package, reason="needs the extra 'backbones'")
    found = load_vision_encoder(f"package:{name}", image_size=64)
    count = sum(value.numel() for value in found.model.parameters())
    assert count == {"efficientnet-lite0": 3_371_008, "efficientnet-lite1": 4_135_680}.get(name, 4_811_072)
    assert found.model.config.image_size == 64 and found.image_processor.image_mean[0] == 127 / 255
    with torch.no_grad():
        assert found.model(torch.rand(1, 3, 64, 64)).last_hidden_state.std() > 0.1


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VARIANTS["efficientnet-lite0"]
    package = tmp_path / variant.package
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('code of the package is not run')")
    (package / variant.file).write_bytes(b"other bytes")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, variant.package, raising=False)
    assert hashlib.sha256(b"other bytes").hexdigest() != variant.sha256
    with pytest.raises(DataError, match=variant.sha256):
        load_vision_encoder("package:efficientnet-lite0")
    with pytest.raises(UnknownName, match="efficientnet-lite0"):
        load_vision_encoder("package:efficientnet-lite9")
