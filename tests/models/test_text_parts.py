"""Text encoders by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import save_tiny_llava, tiny_dual_encoder, tiny_tokenizer

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.models.model_parts import load_text_encoder
from cxrlab.models.random_init import TINY, build_text_encoder


def save_bert(folder: Path) -> Path:
    build_text_encoder(tiny_tokenizer(), TINY, 3).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_a_bert_folder(tmp_path: Path) -> None:
    found = load_text_encoder(f"hf:{save_bert(tmp_path / 'bert')}")
    wanted = build_text_encoder(tiny_tokenizer(), TINY, 3)
    assert torch.equal(found.model.embeddings.word_embeddings.weight, wanted.embeddings.word_embeddings.weight)
    assert found.tokenizer("clear")["input_ids"] == tiny_tokenizer()("clear")["input_ids"]


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = save_bert(tmp_path / "bert") / "model.safetensors"
    tensors = load_file(file)
    del tensors["encoder.layer.0.output.dense.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"lacks 1 of the model's tensors"):
        load_text_encoder(f"hf:{tmp_path / 'bert'}")


def test_the_text_side_of_a_dual_encoder(tmp_path: Path) -> None:
    model, tokenizer, _ = tiny_dual_encoder()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = load_text_encoder(f"hf:{tmp_path}").model
    assert torch.equal(found.pooler.dense.weight, model.text_model.pooler.dense.weight)


def test_fresh_weights_follow_the_seed() -> None:
    one, same, other = (load_text_encoder("fresh:tiny", seed=seed) for seed in (1, 1, 2))
    weights = [part.model.embeddings.word_embeddings.weight for part in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert len(one.tokenizer) == one.model.config.vocab_size


@pytest.mark.parametrize("name", ["bert", "hf:", "stub:normal", "fresh:giant", "hf:no/such/folder"])
def test_names_that_lead_nowhere(name: str) -> None:
    with pytest.raises(CxrlabError):
        load_text_encoder(name)


def test_folders_of_another_kind(tmp_path: Path) -> None:
    llava = save_tiny_llava(tmp_path / "llava")
    with pytest.raises(DataError, match="'llava', which is no text encoder"):
        load_text_encoder(f"hf:{llava}")
    bert = save_bert(tmp_path / "bert")
    for file in bert.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(DataError, match="no tokenizer"):
        load_text_encoder(f"hf:{bert}")
    (bert / "config.json").unlink()
    with pytest.raises(DataError, match="no config.json"):
        load_text_encoder(f"hf:{bert}")


def test_a_tokenizer_that_does_not_belong_to_the_model(tmp_path: Path) -> None:
    """More tokens than rows of the embedding would be an index error deep inside, on the first rare word."""
    folder = save_bert(tmp_path)
    tokenizer = load_text_encoder(f"hf:{folder}").tokenizer
    tokenizer.add_tokens([f"word{k}" for k in range(9)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(DataError, match="do not belong together"):
        load_text_encoder(f"hf:{folder}")
