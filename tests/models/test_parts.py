"""VisionEncoders and language models by name, out of folders of several kinds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import tiny_dual_encoder, tiny_llava, tiny_tokenizer

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, UnknownName
from cxrlab.models import model_parts
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_parts import fresh_tokenizer, load_language_model, load_text_encoder, load_vision_encoder
from cxrlab.models.model_registry import load_encoder
from cxrlab.models.random_init import (
    IMAGE,
    PHANTOM,
    TINY,
    build_image_processor,
    build_language_model,
    build_vision_encoder,
)

pytestmark = pytest.mark.slow


def same(one: Any, other: Any) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("parts")
    model, processor = tiny_llava(3)
    model.save_pretrained(top / "llava")
    processor.save_pretrained(top / "llava")
    dual, tokenizer, image_processor = tiny_dual_encoder(3)
    for part in (dual, tokenizer, image_processor):
        part.save_pretrained(top / "dual")
    write_model_card(ModelCard("encoder", collections=("phantom",)), top / "dual")
    build_vision_encoder(TINY, 3).save_pretrained(top / "vision_encoder")
    build_image_processor(32).save_pretrained(top / "vision_encoder")
    build_language_model(tiny_tokenizer(), TINY, 4).save_pretrained(top / "language")
    tiny_tokenizer().save_pretrained(top / "language")
    return top


@pytest.mark.parametrize("kind", ["llava", "dual", "vision_encoder"])
def test_a_vision_encoder_comes_out_of_every_kind_of_folder(folders: Path, kind: str) -> None:
    """All three hold the vision encoder of seed 3."""
    vision_encoder = load_vision_encoder(f"hf:{folders / kind}")
    assert same(vision_encoder.model, build_vision_encoder(TINY, 3)) and not vision_encoder.model.training
    assert vision_encoder.image_processor.size["height"] == 32
    assert vision_encoder.collections == (("phantom",) if kind == "dual" else ())


@pytest.mark.parametrize("kind", ["llava", "language"])
def test_a_language_model_comes_out_of_a_llava_and_of_its_own_folder(folders: Path, kind: str) -> None:
    language = load_language_model(f"hf:{folders / kind}")
    expected = build_language_model(tiny_tokenizer(), TINY, 4)
    assert same(language.model, expected)
    ids = torch.tensor([[1, 9, 17, 33]])
    with torch.no_grad():
        assert torch.allclose(language.model(ids).logits, expected.eval()(ids).logits, atol=1e-6)


def test_the_run_folder_of_a_training_is_as_good_as_the_checkpoint_in_it(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint").symlink_to(folders / "llava")
    assert same(load_vision_encoder(f"hf:{tmp_path / 'run'}").model, build_vision_encoder(TINY, 3))


def test_fresh_parts_are_decided_by_the_seed() -> None:
    one, again, other = (load_vision_encoder("fresh:tiny", seed=seed).model for seed in (1, 1, 2))
    assert same(one, again) and not same(one, other)
    first, second = (load_language_model("fresh:tiny", seed=5) for _ in range(2))
    assert same(first.model, second.model) and first.tokenizer.get_vocab() == second.tokenizer.get_vocab()
    assert first.tokenizer.convert_tokens_to_ids(IMAGE) != first.tokenizer.unk_token_id


def test_tokens_that_a_llava_needs_are_added(tmp_path: Path) -> None:
    """A plain language model knows neither <image> nor padding; as in LLaVA-Rad, <unk> pads, and <image> copies its row."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<unk>": 0, "</s>": 1, **{f"w{number}": number + 2 for number in range(60)}}
    plain = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "<unk>")), unk_token="<unk>", eos_token="</s>"
    )
    plain.save_pretrained(tmp_path)
    build_language_model(plain, TINY, 4).save_pretrained(tmp_path)
    language = load_language_model(f"hf:{tmp_path}")
    assert len(language.tokenizer) == 63
    assert language.tokenizer.pad_token_id == language.tokenizer.unk_token_id == 0
    assert language.tokenizer.convert_tokens_to_ids(IMAGE) == 62
    rows = language.model.get_input_embeddings().weight
    assert rows.shape[0] == 63 and torch.equal(rows[62], rows[0])


def test_an_unknown_token_that_ends_texts_is_neither_padding_nor_image(tmp_path: Path) -> None:
    """In GPT-2's vocabulary one token is all three; a copy of its row would be as probable as the end of a report."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<end>": 0, **{f"w{number}": number + 1 for number in range(60)}}
    plain = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "<end>")), unk_token="<end>", eos_token="<end>"
    )
    plain.pad_token = plain.unk_token
    build_language_model(plain, TINY, 4).save_pretrained(tmp_path)
    plain.pad_token = None
    plain.save_pretrained(tmp_path)
    language = load_language_model(f"hf:{tmp_path}", seed=5)
    rows, again = (
        one.model.get_input_embeddings().weight for one in (language, load_language_model(f"hf:{tmp_path}", seed=5))
    )
    assert language.tokenizer.convert_ids_to_tokens([61, 62]) == ["<pad>", IMAGE] and rows.shape[0] == 63
    assert not torch.equal(rows[62], rows[0]) and torch.equal(rows, again)


def test_a_language_model_without_its_head_is_refused(tmp_path: Path) -> None:
    """Untied, the words would be chosen by random numbers; a pooling head may be missing, this one may not."""
    model = build_language_model(tiny_tokenizer(), TINY, 4)
    model.config.tie_word_embeddings = False
    tensors = {name: value.clone() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    model.config.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"lacks 1 of the model's tensors \(for example lm_head.weight\)"):
        load_language_model(f"hf:{tmp_path}")


@pytest.mark.parametrize("load", [load_vision_encoder, load_language_model, load_text_encoder, load_encoder])
def test_code_that_comes_with_a_part_is_never_run_and_nobody_is_asked(
    load: Any, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to itself transformers asks at the terminal, and runs the files on a 'y'."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = shutil.copytree(folders / "dual", tmp_path / "dual")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    words = json.loads((folder / "tokenizer_config.json").read_text())
    words |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *words: asked.append("asked") or "y")
    with pytest.raises(CxrlabError):
        load(f"hf:{folder}")
    assert not asked and not (tmp_path / "ran").exists()


def test_precision_is_chosen(folders: Path) -> None:
    assert (
        next(load_vision_encoder(f"hf:{folders / 'vision_encoder'}", dtype="bfloat16").model.parameters()).dtype
        is torch.bfloat16
    )


@pytest.mark.parametrize(
    ("load", "name", "kind", "said"),
    [
        (load_vision_encoder, "tiny", ConfigError, "does not name a vision encoder"),
        (load_vision_encoder, "fersh:tiny", UnknownName, "Did you mean 'fresh'"),
        (load_vision_encoder, "fresh:huge", UnknownName, "There are: phantom, tiny, outsider"),
        (load_language_model, "hf:nowhere/at/all", CxrlabError, "nowhere/at/all"),
        (load_vision_encoder, "hf:{}/language", DataError, "'llama', from which a vision encoder"),
        (load_language_model, "hf:{}/dual", DataError, "from which a language model"),
        (load_language_model, "hf:{}/vision_encoder", DataError, "'dinov2', from which a language model"),
        (load_vision_encoder, "hf:{}", DataError, "has no config.json"),
    ],
)
def test_a_wrong_kind_is_one_sentence(folders: Path, load: Any, name: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        load(name.format(folders))


def test_a_vision_encoder_without_a_class_token_is_refused(tmp_path: Path) -> None:
    """The first patch would be dropped in its place, and every other shifted."""
    from transformers import SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=16
    )
    SiglipVisionModel(config).save_pretrained(tmp_path)
    build_image_processor(32).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="4 tokens for 4 patches"):
        load_vision_encoder(f"hf:{tmp_path}")


def test_a_vision_encoder_without_an_image_processor_is_refused(tmp_path: Path) -> None:
    build_vision_encoder(TINY, 3).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="no image processor"):
        load_vision_encoder(f"hf:{tmp_path}")


def test_a_fresh_tokenizer_is_the_same_when_made_anew_and_nobody_else_gets_what_one_adds() -> None:
    mine = fresh_tokenizer(TINY)
    mine.add_tokens(["pneumomediastinoscope"])
    kept = fresh_tokenizer(TINY)
    model_parts.trained_tokenizer.cache_clear()
    assert kept.get_vocab() == fresh_tokenizer(TINY).get_vocab() and len(kept) == len(mine) - 1


def test_a_fresh_tokenizer_keeps_the_answers_whole() -> None:
    """The probability of yes is then read off one position."""
    tokenizer = fresh_tokenizer(PHANTOM)
    for word in (" Yes", " No", " yes", " no"):
        assert len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1
