"""A converted folder is one like any other: encoders embed, encoders are taken out of it, models are built on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from plain_forward import bert_states, vit_class_token
from published_checkpoints import PATCH, open_clip_folder, open_clip_tensors
from torch.nn.functional import gelu, normalize

from cxrlab.models.convert import ConvertConfig, convert, under
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_parts import load_vision_encoder
from cxrlab.models.model_registry import load_encoder

MEAN, STD = torch.tensor([0.48145466, 0.4578275, 0.40821073]), torch.tensor([0.26862954, 0.26130258, 0.27577711])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("biomedclip")
    convert("open-clip", open_clip_folder(root / "in"), ConvertConfig(), root / "out")
    return root / "out"


def test_vectors_of_images_and_texts(folder: Path) -> None:
    """From grey image and plain words to unit vectors, against the forward written out by hand."""
    encoder, tensors = load_encoder(f"hf:{folder}", LoadSettings()), open_clip_tensors()
    radiograph = np.random.default_rng(0).random((3 * PATCH, 3 * PATCH)).astype(np.float32)
    pixels = (torch.from_numpy(radiograph)[None, None] - MEAN[:, None, None]) / STD[:, None, None]
    image = vit_class_token(under(tensors, "visual.trunk."), pixels) @ tensors["visual.head.proj.weight"].T
    np.testing.assert_allclose(encoder.embed_images([radiograph]), normalize(image).numpy(), atol=1e-5)
    ids = torch.tensor([encoder.tokenizer("the lungs are clear .")["input_ids"]])
    first = bert_states(under(tensors, "text.transformer."), ids)[-1][:, 0]
    text = gelu(first @ tensors["text.proj.0.weight"].T) @ tensors["text.proj.2.weight"].T
    found = encoder.embed_texts(["the lungs are clear .", "no edema"])
    np.testing.assert_allclose(found[:1], normalize(text).numpy(), atol=1e-5)
    assert encoder.logit_scale == pytest.approx(4.25)


def test_long_texts_are_cut_where_the_encoder_was_trained(folder: Path) -> None:
    """Sixteen tokens, the two that every text gets included."""
    encoder = load_encoder(f"hf:{folder}", LoadSettings())
    same = encoder.embed_texts(["clear " * 14, "clear " * 30])
    np.testing.assert_allclose(same[0], same[1], atol=1e-6)


def test_its_vision_encoder_can_be_built_on(folder: Path) -> None:
    """Stages 2 and 3 take the vision encoder out of a converted encoder."""
    vision_encoder = load_vision_encoder(f"hf:{folder}")
    expected = open_clip_tensors()["visual.trunk.cls_token"]
    assert torch.equal(vision_encoder.model.embeddings.cls_token.detach(), expected)
    assert vision_encoder.image_processor.size["shortest_edge"] == 3 * PATCH
