from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_llava

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.adapters import base_of, is_adapter, resolve
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_parts import load_language_model, load_vision_encoder

pytestmark = pytest.mark.slow

WORDS = Decoding(strategy="sample", answers=3, max_new_tokens=8)
IMAGE = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))


def adapt(folder: Path, base: Path | None, card_base: str | None = None, seed: int = 5) -> Path:
    """An adapter with random weights on the language model's attention, and a projector of its own."""
    from peft import LoraConfig, get_peft_model

    model, _ = tiny_llava()
    torch.manual_seed(seed)
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=r"model\.language_model\..*\.(q_proj|v_proj)",
        modules_to_save=["multi_modal_projector"],
        init_lora_weights=False,
    )
    peft: Any = get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in peft.named_parameters():
            if "modules_to_save" in name:
                weight.add_(torch.randn_like(weight) * 0.1)
    peft.save_pretrained(folder)
    file = folder / "adapter_config.json"
    named = {"base_model_name_or_path": None if base is None else str(base)}
    file.write_text(json.dumps({**json.loads(file.read_text()), **named}))
    if card_base is not None:
        write_model_card(ModelCard("finetune", "chexagent/1", ("phantom",), card_base), folder)
    return folder


@pytest.fixture
def home(llava_folder: Path, tmp_path: Path) -> Path:
    """A folder with `base/` in it, for an adapter beside it."""
    shutil.copytree(llava_folder, tmp_path / "base")
    return tmp_path


def loss(path: Path, loading: LoadSettings | None = None) -> float:
    settings = (loading or LoadSettings()).but(prompts="llava-rad/1")
    return float(HfModel.load(str(path), loading=settings).losses(IMAGE, ["No effusion."])[0])


def test_an_adapter_is_found_by_any_of_three_ways_and_changes_the_model(home: Path) -> None:
    base = home / "base"
    by_config = adapt(home / "one", base)
    by_card = adapt(home / "two", Path("nowhere/at/all"), "hf:../base")
    by_hand = adapt(home / "three", None)
    losses = [loss(by_config), loss(by_card), loss(by_hand, LoadSettings(base=str(base)))]
    assert losses == [losses[0]] * 3 and abs(losses[0] - loss(base)) > 1e-3
    model = HfModel.load(str(by_card))
    assert model.prompts.name == "chexagent/1" and model.collections == ("phantom",)
    assert model.processor.image_processor is not None and type(model.model).__name__ == "LlavaForConditionalGeneration"


def test_the_layers_of_an_adapter_are_there_and_frozen(home: Path) -> None:
    found = open_checkpoint(adapt(home / "adapter", home / "base"))
    names = [name for name, _ in found.model.named_parameters() if "lora_" in name]
    assert len(names) == 2 * 2 * 2 and all("language_model" in name for name in names)  # A and B, q and v, two layers
    assert not found.model.training


def test_an_adapter_is_merged_where_a_model_is_only_used(home: Path) -> None:
    """The same values and words in float32; `adapter="apart"` keeps its layers."""
    adapter = adapt(home / "adapter", home / "base")
    merged, apart = (HfModel.load(str(adapter), loading=LoadSettings(adapter=kind)) for kind in (None, "apart"))
    layers = [sum("lora_" in name for name, _ in model.model.named_parameters()) for model in (merged, apart)]
    assert layers == [0, 2 * 2 * 2]
    losses = [model.losses(IMAGE, ["No effusion."]) for model in (merged, apart)]
    torch.testing.assert_close(losses[0], losses[1], atol=1e-5, rtol=0)
    words = [[one.text for one in model.answers(IMAGE, [None], WORDS)[0]] for model in (merged, apart)]
    assert words[0] == words[1]


def test_an_adapter_without_its_base_is_one_sentence(home: Path) -> None:
    with pytest.raises(ConfigError, match="does not name its base"):
        open_checkpoint(adapt(home / "one", None))
    with pytest.raises(DataError, match="is an adapter of .*gone, which does not exist.*--loading.base"):
        open_checkpoint(adapt(home / "two", None, "hf:../gone"))
    with pytest.raises(DataError, match="neither a folder nor among the checkpoints kept on this machine"):
        open_checkpoint(adapt(home / "three", Path("org/gone")))


def test_an_adapter_that_stands_on_itself_is_refused(home: Path) -> None:
    """At once, or by way of another; asked for as a model or for one of its parts."""
    alone, one, two = (
        adapt(home / name, None, base) for name, base in (("a", "hf:."), ("b", "hf:../c"), ("c", "hf:../b"))
    )
    for folder in (alone, one, two):
        for ask in (
            open_checkpoint,
            lambda name: load_language_model(f"hf:{name}"),
            lambda name: load_vision_encoder(f"hf:{name}"),
        ):
            with pytest.raises(DataError, match="adapter of itself.*--loading.base"):
                ask(folder)
    assert loss(alone, LoadSettings(base=str(home / "base"))) > 0  # what is given goes before what it says


def test_an_adapter_may_stand_on_an_adapter(home: Path) -> None:
    """As if the lower one had been merged first."""
    from cxrlab.models.hf.adapters import merge

    lower = adapt(home / "lower", home / "base")
    merge(lower, home / "merged")
    upper = adapt(home / "upper", lower, seed=6)
    flat = adapt(home / "flat", home / "merged", seed=6)
    assert loss(upper) == pytest.approx(loss(flat), abs=1e-5) and abs(loss(upper) - loss(lower)) > 1e-4
    merge(upper, home / "all")
    assert loss(home / "all") == pytest.approx(loss(flat), abs=1e-5)


def test_an_adapter_of_another_model_is_refused(home: Path) -> None:
    """Another width; other layers; and weights that are not there."""
    from cxrlab.models.random_init import TINY, Size

    model, processor = tiny_llava(size=Size(**{**vars(TINY), "width": 64, "head": 16}))
    wide = home / "wide"
    model.save_pretrained(wide)
    processor.save_pretrained(wide)
    adapter = adapt(home / "adapter", wide)
    with pytest.raises(DataError, match="does not fit the LlavaForConditionalGeneration"):
        open_checkpoint(adapter)
    model, processor = tiny_llava(size=Size(**{**vars(TINY), "language": 3}))
    deep = home / "deep"
    model.save_pretrained(deep)
    processor.save_pretrained(deep)
    with pytest.raises(DataError, match=r"does not fit .*: 4 tensors"):
        open_checkpoint(adapter, LoadSettings(base=str(deep)))
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(DataError, match="cut short"):
        open_checkpoint(adapter, LoadSettings(base=str(home / "base")))
    weights.unlink()
    with pytest.raises(DataError, match="no adapter_model.safetensors"):
        open_checkpoint(adapter, LoadSettings(base=str(home / "base")))


def test_an_adapter_may_bring_its_own_processor(home: Path) -> None:
    adapter = adapt(home / "adapter", home / "base")
    processor = open_checkpoint(home / "base").processor  # not the tokenizer that tests share
    processor.tokenizer.add_tokens(["<new>"])
    processor.save_pretrained(adapter)
    assert "<new>" in open_checkpoint(adapter).tokenizer.get_vocab()
    assert "<new>" not in open_checkpoint(home / "base").tokenizer.get_vocab()


def test_names_of_bases(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("hf:../base", home / "x") == (home / "base").resolve()
    assert resolve(str(home), Path("x")) == home
    assert resolve("hf:org/name", home) == resolve("org/name", home) == "org/name"
    monkeypatch.setattr("cxrlab.models.hf.adapters.load_reference", lambda reference: lambda name: home / name)
    assert resolve("builtin:base", Path("x")) == home / "base"
    assert not is_adapter(home / "base") and base_of(home, LoadSettings(base="org/name")) == "org/name"


def test_an_adapter_runs_in_half_precision(home: Path) -> None:
    """Layers of the adapter may be kept finer than the base; what comes out is the same within bfloat16."""
    adapter = adapt(home / "adapter", home / "base")
    assert loss(adapter, LoadSettings(dtype="bfloat16")) == pytest.approx(loss(adapter), abs=0.05)
