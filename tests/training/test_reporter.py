"""The loss of a report: equal to the model's own, with features in place of pixels, with adapters and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny_llava, tiny_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

from cxrlab.core.errors import ConfigError
from cxrlab.core.image_codec import encode_png
from cxrlab.models.model_parts import load_vision_encoder
from cxrlab.models.random_init import assemble_llava
from cxrlab.training.image_cache import ImageFile, Images, open_images
from cxrlab.training.image_features import open_features, to_pixels, vision_encoder_key
from cxrlab.training.report_dataset import ReportDataset, tokenise
from cxrlab.training.report_model import ReportLoss, add_adapters, language_linears

CPU = torch.device("cpu")
PROMPTS = ["Findings:", "Provide a description of the findings.", None, "Findings:"]
REPORTS = ("The lungs are clear.", "Small left pleural effusion.", "Moderate cardiomegaly. No edema.", "Normal.")


@pytest.fixture
def parts() -> tuple[Any, Any]:
    return tiny_llava()


@pytest.fixture
def images(tmp_path: Path, parts: tuple[Any, Any]) -> Images:
    files = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        path.write_bytes(encode_png(np.random.default_rng(number).integers(0, 256, (40, 40), dtype=np.uint8)))
        files.append(ImageFile(path))
    return open_images(files, parts[1].image_processor, tmp_path / "cache")


def rows_of(parts: tuple[Any, Any], images: Images, features: Any = None) -> ReportDataset:
    model, processor = parts
    tokens = tokenise(processor, model.config.image_token_id, PROMPTS, REPORTS)
    image_of = np.array([0, 1, -1, 2])
    return ReportDataset(tokens, image_of, images, features, 4, model.config.image_token_id, 0, 200)


def loss_of(module: ReportLoss, rows: ReportDataset, numbers: list[int]) -> torch.Tensor:
    batch = rows.__getitems__(numbers)
    batch.pop("items")
    found: torch.Tensor = module(**batch)
    return found


def own_loss(parts: tuple[Any, Any], images: Images, rows: ReportDataset, number: int) -> torch.Tensor:
    """Sum of -log p over the report by the model's own forward pass, pixels, mask and all."""
    model, processor = parts
    batch = rows.__getitems__([number])
    labels = torch.full(batch["input_ids"].numel() and batch["input_ids"].shape, -100)
    labels.view(-1)[batch["places"] + 1] = batch["targets"]
    inputs: dict[str, Any] = {"input_ids": batch["input_ids"], "attention_mask": torch.ones_like(batch["input_ids"])}
    if rows.image_of[number] >= 0:
        inputs["pixel_values"] = to_pixels(
            torch.from_numpy(images[[int(rows.image_of[number])]]), processor.image_processor
        )
    found: torch.Tensor = model(**inputs, labels=labels).loss * int(batch["items"])
    return found


def test_it_is_the_models_own_loss(parts: tuple[Any, Any], images: Images) -> None:
    """One by one through transformers' own forward pass with pixels and mask; in one padded batch through ours."""
    rows = rows_of(parts, images)
    module = ReportLoss(parts[0], parts[1].image_processor).eval()
    with torch.no_grad():
        expected = sum(own_loss(parts, images, rows, number) for number in range(4))
        given = loss_of(module, rows, [0, 1, 2, 3])
    assert float(given) == pytest.approx(float(expected), rel=1e-5)


def test_features_stand_in_for_pixels(parts: tuple[Any, Any], images: Images, tmp_path: Path) -> None:
    features = open_features(parts[0], images, tmp_path / "f", cache="on", most_gb=1, dtype=torch.float32, device=CPU)
    module = ReportLoss(parts[0], parts[1].image_processor).eval()
    with torch.no_grad():
        pixels = loss_of(module, rows_of(parts, images), [3, 1, 0])
        stored = loss_of(module, rows_of(parts, images, features), [3, 1, 0])
    assert torch.allclose(pixels, stored, atol=1e-5)


def test_stored_features_are_used_again_and_only_for_the_same_vision_encoder(
    parts: tuple[Any, Any], images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"cache": "on", "most_gb": 1, "dtype": torch.bfloat16, "device": CPU}
    first = open_features(parts[0], images, tmp_path / "f", **settings)
    again = open_features(parts[0], images, tmp_path / "f", **settings)
    assert first is not None and again is not None and first[np.array([2])].dtype is torch.bfloat16
    assert torch.equal(first[np.array([0, 2])], again[np.array([0, 2])])
    before = vision_encoder_key(parts[0])
    with torch.no_grad():
        next(parts[0].model.vision_tower.parameters()).add_(1e-3)
    assert vision_encoder_key(parts[0]) != before
    open_features(parts[0], images, tmp_path / "f", **settings)
    assert len(list((tmp_path / "f").iterdir())) == 2
    assert open_features(parts[0], images, tmp_path / "g", **{**settings, "cache": "off"}) is None
    assert open_features(parts[0], images, tmp_path / "g", **{**settings, "cache": "auto", "most_gb": 0}) is None


def test_image_tokens_without_images_are_an_error(parts: tuple[Any, Any], images: Images) -> None:
    """A model must never learn a report without its image."""
    batch = rows_of(parts, images).__getitems__([0, 1])
    batch.pop("items")
    batch.pop("images")
    with pytest.raises(ValueError, match="8 image tokens do not match"):
        ReportLoss(parts[0], parts[1].image_processor)(**batch)


def test_a_batch_of_words_alone_still_gives_the_projector_a_gradient(parts: tuple[Any, Any], images: Images) -> None:
    """Processes that train together wait for the gradient of every trained parameter; here it is zero."""
    module = ReportLoss(parts[0], parts[1].image_processor)
    loss_of(module, rows_of(parts, images), [2]).backward()
    gradients = [value.grad for value in parts[0].model.multi_modal_projector.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_a_frozen_vision_encoder_stays_in_evaluation_mode(parts: tuple[Any, Any]) -> None:
    module = ReportLoss(parts[0], parts[1].image_processor)
    parts[0].model.vision_tower.requires_grad_(False)
    module.train()
    assert not parts[0].model.vision_tower.training and parts[0].model.language_model.training
    parts[0].model.vision_tower.requires_grad_(True)
    assert module.train().model.model.vision_tower.training


def test_a_trained_vision_encoder_gets_a_gradient_and_a_frozen_one_none(parts: tuple[Any, Any], images: Images) -> None:
    for trained in (True, False):
        parts[0].zero_grad()
        parts[0].model.vision_tower.requires_grad_(trained)
        loss_of(ReportLoss(parts[0], parts[1].image_processor), rows_of(parts, images), [0]).backward()
        weight = parts[0].model.vision_tower.embeddings.patch_embeddings.projection.weight
        assert (weight.grad is not None and bool(weight.grad.any())) is trained


def test_adapters_stand_on_the_language_model_alone(parts: tuple[Any, Any]) -> None:
    """The vision encoder has linear layers of its own, two of the projector, and one head: none may be wrapped."""
    from peft.tuners.lora import LoraLayer

    model = parts[0]
    linears = set(language_linears(model))
    vision_encoders = [
        n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "language_model" not in n
    ]
    assert len(vision_encoders) > 3
    peft = add_adapters(model, 4, 8.0, 0.0, train_projector=True)
    wrapped = {name for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    assert wrapped == linears and len(linears) == 2 * 7
    trained = {name for name, value in peft.named_parameters() if value.requires_grad}
    assert all("lora_" in name or "multi_modal_projector.modules_to_save" in name for name in trained)
    assert not any("vision_tower" in name or "lm_head" in name for name in trained)


@pytest.mark.parametrize(
    ("kind", "inner", "layers"),
    [("phi", {"intermediate_size": 64}, {"q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"}), ("gpt2", {}, None)],
)
def test_language_models_with_other_names(kind: str, inner: dict[str, int], layers: set[str] | None) -> None:
    """Phi's layers are called otherwise and are all found; GPT-2 is laid out otherwise, which is reported."""
    small = {"vocab_size": len(tiny_tokenizer()), "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(kind, **small, **inner, bos_token_id=1, eos_token_id=2)
    vision_encoder, language = load_vision_encoder("fresh:tiny"), AutoModelForCausalLM.from_config(config)
    whole = (vision_encoder.model, language, tiny_tokenizer(), vision_encoder.image_processor, 0)
    if layers is None:
        with pytest.raises(ConfigError, match="type 'gpt2' cannot be part of a LLaVA"):
            assemble_llava(*whole)
        return
    peft = add_adapters(assemble_llava(*whole)[0], 2, 4, 0.0, train_projector=True)
    adapted = {name for name, _ in peft.named_modules() if name.endswith("lora_A")}
    assert {name.split(".")[-2] for name in adapted} == layers
    assert all(".language_model." in name for name in adapted)


def test_new_adapters_change_nothing_and_merged_ones_equal_trained_ones(parts: tuple[Any, Any], images: Images) -> None:
    """B starts at zero; after training, weights with the adapters added in give the same loss."""
    rows = rows_of(parts, images)
    module = ReportLoss(parts[0], parts[1].image_processor)
    with torch.no_grad():
        before = loss_of(module.eval(), rows, [0, 1, 2])
    peft = add_adapters(parts[0], 4, 8.0, 0.0, train_projector=True)
    with torch.no_grad():
        assert torch.allclose(loss_of(module.eval(), rows, [0, 1, 2]), before, rtol=1e-6)
    trained = [value for value in peft.parameters() if value.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=0.01)
    for _ in range(12):
        loss_of(module.train(), rows, [0, 1, 2]).backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        after = loss_of(module.eval(), rows, [0, 1, 2])
        merged = ReportLoss(peft.merge_and_unload(), parts[1].image_processor).eval()
        assert float(after) < 0.95 * float(before)
        assert torch.allclose(loss_of(merged, rows, [0, 1, 2]), after, rtol=1e-5)


def test_checkpointed_activations_give_the_same_gradient(parts: tuple[Any, Any], images: Images) -> None:
    rows = rows_of(parts, images)
    module = ReportLoss(parts[0], parts[1].image_processor).train()
    projector = parts[0].model.multi_modal_projector.linear_1.weight
    gradients = []
    for checkpointed in (False, True):
        if checkpointed:
            parts[0].model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
        projector.grad = None
        loss_of(module, rows, [0, 1, 3]).backward()
        gradients.append(projector.grad.clone())
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-5, atol=1e-7)
