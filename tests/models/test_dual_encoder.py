"""Contrastive encoders: any folder of transformers that has both encoders, and one sentence for every other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import save_tiny_llava, tiny_dual_encoder, tiny_tokenizer

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, UnknownName
from cxrlab.core.model_interfaces import Embedder
from cxrlab.models.dual_encoder import DualEncoder
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_registry import load_encoder
from cxrlab.models.random_init import TINY, build_image_processor

CPU = LoadSettings(device="cpu")
RNG = np.random.default_rng(1)
IMAGES = [RNG.random(shape, dtype=np.float32) for shape in ((40, 40), (25, 60), (32, 32, 3), (70, 20))]
TEXTS = ["The lungs are clear.", "", "Small left pleural effusion with adjacent atelectasis. " * 3, "no effusion"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder") / "dual"
    for part in tiny_dual_encoder():
        part.save_pretrained(path)
    write_model_card(ModelCard("encoder", collections=("phantom",)), path)
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> DualEncoder:
    return load_encoder(f"hf:{folder}", CPU)


def clip_folder(path: Path) -> Path:
    from transformers import CLIPConfig, CLIPModel

    tokenizer = tiny_tokenizer()
    text = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 24,
            "eos_token_id": tokenizer.eos_token_id}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 32, "patch_size": 16}  # fmt: skip
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    build_image_processor(32).save_pretrained(path)
    return path


def test_it_is_an_embedder_and_says_what_it_has_learnt_from(encoder: DualEncoder, folder: Path) -> None:
    assert isinstance(encoder, Embedder) and encoder.name == f"hf:{folder}" and encoder.collections == ("phantom",)
    assert encoder.scale == pytest.approx(1 / 0.07, rel=1e-3)  # CLIP's first temperature
    assert encoder.dimensions == TINY.shared and not any(p.requires_grad for p in encoder.model.parameters())


@pytest.mark.parametrize("kind", ["dual", "clip"])
def test_vectors_have_length_one_and_do_not_depend_on_company(kind: str, folder: Path, tmp_path: Path) -> None:
    one = load_encoder(f"hf:{folder if kind == 'dual' else clip_folder(tmp_path / 'clip')}", CPU)
    for embed, things in ((one.embed_images, IMAGES), (one.embed_texts, TEXTS)):
        together = embed(things)  # type: ignore[operator]
        assert together.dtype == np.float32 and together.shape == (4, one.dimensions)
        np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
        for row, thing in enumerate(things):
            np.testing.assert_allclose(embed([thing])[0], together[row], atol=1e-5)  # type: ignore[operator]
        assert embed([]).shape == (0, one.dimensions)  # type: ignore[operator]


def test_more_images_than_go_through_at_once_keep_their_order(encoder: DualEncoder) -> None:
    images = [np.full((32, 32), value, np.float32) for value in np.linspace(0, 1, 70)]
    np.testing.assert_allclose(encoder.embed_images(images)[69], encoder.embed_images(images[69:])[0], atol=1e-5)


def test_the_model_is_given_what_transformers_would_give_it(encoder: DualEncoder) -> None:
    """An 8-bit image through the image processor and the model's own forward pass."""
    levels = RNG.integers(0, 256, (32, 32), dtype=np.uint8)
    pixels = encoder.image_processor(images=np.repeat(levels[..., None], 3, 2), return_tensors="pt")["pixel_values"]
    inputs = encoder.tokenizer(TEXTS[:1], return_tensors="pt")
    with torch.no_grad():
        theirs = encoder.model(pixel_values=pixels, input_ids=inputs["input_ids"])
    ours = encoder.embed_images([levels.astype(np.float32) / 255.0])
    np.testing.assert_allclose(ours, theirs.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(encoder.embed_texts(TEXTS[:1]), theirs.text_embeds.numpy(), atol=1e-5)


def test_gradients_reach_the_pixels(encoder: DualEncoder) -> None:
    """The directional derivative against a finite difference of the same size that attacks use."""
    image = torch.rand(1, 48, 40, generator=torch.Generator().manual_seed(2)).mul(0.8).add(0.1).requires_grad_()
    text = encoder.text_vectors(["effusion"])
    similarity = (encoder.image_vectors(image) * text).sum()
    similarity.backward()  # type: ignore[no-untyped-call]
    assert image.grad is not None
    step = 1e-2 * image.grad / image.grad.norm()
    with torch.no_grad():
        ends = [(encoder.image_vectors(image + sign * step) * text).sum().item() for sign in (1, -1)]
    assert (ends[0] - ends[1]) / 2e-2 == pytest.approx(image.grad.norm().item(), rel=0.05)


def test_a_text_is_cut_where_the_vision_encoder_ends(tmp_path: Path) -> None:
    """24 places in the text encoder: what comes after them changes nothing, what comes before does."""
    one = load_encoder(f"hf:{clip_folder(tmp_path / 'clip')}", CPU)
    assert one.longest == 24
    long = "clear " * 40
    assert max(map(len, one.token_ids([long]))) == 24
    assert np.array_equal(one.embed_texts([long]), one.embed_texts([long + "effusion"]))
    assert not np.array_equal(one.embed_texts([long]), one.embed_texts(["effusion " + long]))


def _cut_weights(path: Path) -> None:
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _drop_weights(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path / "model.safetensors")
    del tensors["visual_projection.weight"]
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


def _bad_config(path: Path) -> None:
    (path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (lambda path: [file.unlink() for file in path.glob("tokenizer*")], "no tokenizer"),
        (lambda path: (path / "preprocessor_config.json").unlink(), "no image processor"),
        (lambda path: (path / "config.json").unlink(), "config.json"),
        (lambda path: (path / "model.safetensors").unlink(), "weights"),
        (_cut_weights, "cut short"),
        (_drop_weights, "lacks 1 of the encoder's weights"),
        (_bad_config, "config.json cannot be used"),
    ],
)
def test_what_a_folder_lacks_is_one_sentence(
    damage: Callable[[Path], object], reported: str, folder: Path, tmp_path: Path
) -> None:
    """A projection that is not there would be random numbers, and nobody would know."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    damage(copy)
    with pytest.raises(CxrlabError) as error:
        load_encoder(f"hf:{copy}", CPU)
    assert reported in str(error.value) and str(copy) in str(error.value) and "\n" not in str(error.value)


def test_a_report_model_is_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'llava', which does not embed both"):
        load_encoder(f"hf:{save_tiny_llava(tmp_path / 'llava')}", CPU)


def test_a_siglip_reads_texts_that_are_filled_up(tmp_path: Path) -> None:
    """It was trained on 16 tokens always, padding looked at like words: equal to what transformers does."""
    from transformers import SiglipConfig, SiglipModel

    tokenizer = tiny_tokenizer()
    text = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 16, "projection_size": 16}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 32, "patch_size": 16}  # fmt: skip
    torch.manual_seed(0)
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).eval()
    for part in (model, tokenizer, build_image_processor(32)):
        part.save_pretrained(tmp_path)
    one = load_encoder(f"hf:{tmp_path}", CPU)
    inputs = tokenizer(["no effusion"], padding="max_length", max_length=16, return_tensors="pt")
    with torch.no_grad():
        found = model.get_text_features(input_ids=inputs["input_ids"])
    theirs = torch.nn.functional.normalize(getattr(found, "pooler_output", found), dim=-1)
    np.testing.assert_allclose(one.embed_texts(["no effusion", "clear"])[:1], theirs.numpy(), atol=1e-5)


def test_the_run_folder_of_a_training_is_as_good_a_name(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run" / "checkpoint")
    assert load_encoder(f"hf:{tmp_path / 'run'}", CPU).collections == ("phantom",)


def test_names(folder: Path) -> None:
    with pytest.raises(ConfigError, match="builtin:encoder"):
        load_encoder("encoder")
    with pytest.raises(UnknownName, match="no encoders of the kind 'stub'"):
        load_encoder("stub:normal")
    with pytest.raises(CxrlabError, match="nowhere"):
        load_encoder("hf:nowhere/at-all/here", CPU)


def test_images_that_are_none_are_refused(encoder: DualEncoder) -> None:
    with pytest.raises(DataError, match="must be in"):
        encoder.embed_images([np.full((8, 8), 200.0, np.float32)])
    with pytest.raises(DataError, match="no text"):
        encoder.text_vectors([])


def test_half_precision_gives_nearly_the_same(folder: Path, encoder: DualEncoder) -> None:
    half = load_encoder(f"hf:{folder}", LoadSettings(device="cpu", dtype="bfloat16"))
    found = half.embed_images(IMAGES)
    assert found.dtype == np.float32 and (found * encoder.embed_images(IMAGES)).sum(1).min() > 0.99
