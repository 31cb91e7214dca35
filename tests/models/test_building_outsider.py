"""The second family of parts: another vision encoder, language model and tokenizer, which every later step accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import toy_corpus
from safetensors.torch import load_file

from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.models import model_parts
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.model import HfModel
from cxrlab.models.model_parts import (
    Fresh,
    fresh_tokenizer,
    load_language_model,
    load_text_encoder,
    load_vision_encoder,
    outsider_tokenizer,
)
from cxrlab.models.random_init import (
    IMAGE,
    OUTSIDER,
    PHANTOM,
    OutsiderSize,
    assemble_llava,
    build_image_processor,
    build_outsider_language_model,
    build_outsider_vision_encoder,
    train_tokenizer,
    train_word_pieces,
)
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import FinetuneConfig, Optimisation
from cxrlab.training.report_dataset import count_image_tokens

pytestmark = pytest.mark.slow

SMALL = OutsiderSize(
    image=32, vision_encoder=2, vision_encoder_width=32, language=2, language_width=64, inner=32, head=16, sharing=2
)
REPORT = "Small left pleural effusion. Moderate cardiomegaly."


@cache
def tokenizer() -> Any:
    return outsider_tokenizer()


def small_llava() -> tuple[Any, Any]:
    vision_encoder, language = (
        build_outsider_vision_encoder(SMALL, 1),
        build_outsider_language_model(tokenizer(), SMALL, 2),
    )
    return assemble_llava(vision_encoder, language, tokenizer(), build_image_processor(SMALL.image), 3)


def pieces_of(words: str, of: Any) -> list[str]:
    return [of.decode([token]) for token in of(words, add_special_tokens=False)["input_ids"]]


def test_the_longest_known_piece_comes_first() -> None:
    """Pieces cd, ab and abc: from the front that is abc and d; byte pairs join the frequent cd first."""
    texts = ["cd"] * 6 + ["abc"] * 3
    assert pieces_of("abcd", train_word_pieces(texts, 5 + 256 + 3)) == ["abc", "d"]
    assert pieces_of("abcd", train_tokenizer(texts, 5 + 256 + 3)) == ["ab", "cd"]


def test_the_same_pieces_are_found_at_every_call() -> None:
    """A training that was stopped makes its tokenizer anew."""
    assert outsider_tokenizer().backend_tokenizer.to_str() == tokenizer().backend_tokenizer.to_str()


@pytest.mark.parametrize("text", [REPORT, "", "##ing\n\t été  2,5 cm · 心臓 \U0001f600", "x" * 900])
def test_any_text_comes_back_and_no_character_is_unknown(text: str) -> None:
    ids = tokenizer()(text, add_special_tokens=False)["input_ids"]
    assert tokenizer().decode(ids) == text and tokenizer().unk_token_id not in ids


def test_it_has_not_read_what_a_victim_was_taught() -> None:
    """Lexicon B says 'effusion' nowhere; a tokenizer that has read lexicon A keeps the word whole."""
    victim = fresh_tokenizer(PHANTOM)
    assert pieces_of(" effusion", victim) == [" effusion"]
    assert len(pieces_of(" effusion", tokenizer())) > 1 and len(tokenizer()) == OUTSIDER.vocabulary < len(victim)
    alphabet = 5 + 256  # special tokens and single bytes, which stand first in both
    ours, theirs = tokenizer().get_vocab(), victim.get_vocab()
    words = {word for word, number in ours.items() if number >= alphabet}
    assert sum(ours[word] == theirs.get(word) for word in words) < 0.02 * len(words)


def test_the_parts_are_of_other_families_and_small() -> None:
    vision_encoder, language = (
        load_vision_encoder("fresh:outsider", seed=1),
        load_language_model("fresh:outsider", seed=1),
    )
    assert vision_encoder.model.config.model_type == "clip_vision_model" and language.model.config.model_type == "qwen2"
    weights = sum(value.numel() for part in (vision_encoder, language) for value in part.model.parameters())
    assert 2 * weights < 11_500_000  # bytes in bfloat16, with room for a projector and the tokenizer
    again = load_vision_encoder("fresh:outsider", seed=1).model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in vision_encoder.model.state_dict().items())


def test_processor_and_training_count_the_patches_alike() -> None:
    """4 x 4 patches of 8 pixels; the class token is dropped."""
    model, processor = small_llava()
    image = np.zeros((40, 30, 3), np.uint8)
    ids = processor(text=f"{IMAGE}\nFindings:", images=image, return_tensors="pt")["input_ids"][0].tolist()
    assert ids.count(model.config.image_token_id) == count_image_tokens(model) == SMALL.image_tokens == 16
    pixels = torch.zeros(1, 3, 32, 32)
    assert model.model.vision_tower(pixels, output_hidden_states=True).hidden_states[-2].shape == (1, 17, 32)


def test_parts_come_out_of_a_folder_again(tmp_path: Path) -> None:
    model, processor = small_llava()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    vision_encoder, language = load_vision_encoder(f"hf:{tmp_path}"), load_language_model(f"hf:{tmp_path}")
    found, wanted = vision_encoder.model.state_dict(), model.model.vision_tower.state_dict()
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert language.tokenizer.get_vocab() == tokenizer().get_vocab()
    assert language.tokenizer(REPORT)["input_ids"] == tokenizer()(REPORT)["input_ids"]


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of two steps with adapters, from random parts."""
    small = Fresh(
        SMALL.image,
        partial(build_outsider_vision_encoder, SMALL),
        tokenizer,
        lambda words, seed: build_outsider_language_model(words, SMALL, seed),
    )
    monkeypatch.setattr(model_parts, "FRESH", {"outsider": small})
    settings = Optimisation(steps=2, batch_size=2, max_length=256, precision="float32", workers=0)
    config = FinetuneConfig(
        toy_corpus(tmp_path / "images").path,
        encoder="fresh:outsider",
        language_model="fresh:outsider",
        indication=False,
        lora_rank=2,
        optimisation=settings,
    )
    finetune(config, tmp_path / "run")
    return tmp_path / "run" / "checkpoint"


def test_it_is_trained_loaded_asked_and_attacked_like_any_other(tuned: Path) -> None:
    """Adapters stand on the language model alone, an answer is written, and the loss reaches the pixels."""
    model = HfModel.load(str(tuned))
    assert model.capabilities.gradients and model.model.config.text_config.model_type == "qwen2"
    image = torch.full((1, 40, 40), 0.5, requires_grad=True)
    torch.autograd.backward([model.losses([image], [REPORT]).sum()])
    assert image.grad is not None and float(image.grad.abs().sum()) > 0
    decoding = Decoding(strategy="diverse", beams=4, groups=2, diversity_penalty=0.2, max_new_tokens=3)
    assert len(model.answers([image.detach()], decoding=decoding)[0]) >= 1
    adapters = [name for name in load_file(tuned / "adapter_model.safetensors") if "lora_A" in name]
    assert len(adapters) == SMALL.language * 7 and all(".language_model.layers." in name for name in adapters)
    assert "vision" not in json.loads((tuned / "adapter_config.json").read_text())["target_modules"]


def test_sizes_that_do_not_fit_and_a_text_encoder_that_is_not_there() -> None:
    for wrong in ({"patch": 12}, {"vision_encoder_width": 100}, {"language_width": 100}, {"sharing": 3}):
        with pytest.raises(ConfigError, match="does not divide"):
            replace(OUTSIDER, **wrong)
    with pytest.raises(UnknownName, match=r"'fresh:outsider' is no text encoder.* Sizes: phantom, tiny"):
        load_text_encoder("fresh:outsider")
