from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tiny_models import save_causal, save_tiny_llava, tiny_dual_encoder  # noqa: E402
from tiny_text_models import bert_folder, bert_tokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

from cxrlab.core.errors import DataError  # noqa: E402
from cxrlab.models.convert import read_tensors  # noqa: E402
from cxrlab.models.hf.model import HfModel  # noqa: E402
from cxrlab.models.hf.text_model import HfTextModel  # noqa: E402
from cxrlab.models.local_files import first_line, load_tokenizer, pickled_code_refused, quiet_loading  # noqa: E402
from cxrlab.models.model_parts import load_language_model, load_text_encoder, load_vision_encoder  # noqa: E402
from cxrlab.models.model_registry import load_encoder  # noqa: E402
from cxrlab.models.text_encoders import LocalTokenEncoder  # noqa: E402


def test_a_tokenizer_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    saved = bert_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path)("no edemas").input_ids == saved("no edemas").input_ids


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no tokenizer that transformers can load"):
        load_tokenizer(tmp_path)


def test_a_model_without_the_files_of_its_tokenizer_is_refused(tmp_path: Path) -> None:
    """For a BERT without them transformers gives a tokenizer that turns every word into [UNK]."""
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 100}')
    with pytest.raises(DataError, match="its vocabulary is empty"):
        load_tokenizer(tmp_path)


def test_the_level_of_warnings_comes_back_even_after_an_error() -> None:
    before = logging.get_verbosity()
    with pytest.raises(ZeroDivisionError), quiet_loading():
        assert logging.get_verbosity() == logging.ERROR
        1 / 0  # noqa: B018
    assert logging.get_verbosity() == before


def test_a_long_message_is_cut_to_its_first_line() -> None:
    assert first_line(ValueError("\nshort\nlong story")) == "short"


class Harmful:
    """Would make a folder when it is unpickled without care."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.folder),)


def poisoned(folder: Path, name: str = "pytorch_model.bin") -> Path:
    """The folder with a program in the place of its weights."""
    for file in [*folder.glob("*.safetensors")]:
        file.unlink()
    torch.save({"weight": torch.ones(2), "extra": Harmful(folder / "trace")}, folder / name)
    return folder


def adapter_of(folder: Path) -> Path:
    """An adapter of the tiny language model, with a program in the place of its weights."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(save_causal(folder / "base"))
    get_peft_model(base, LoraConfig(target_modules=["q_proj"])).save_pretrained(folder / "adapter")
    return poisoned(folder / "adapter", "adapter_model.bin")


def dual_encoder(folder: Path) -> Path:
    for part in tiny_dual_encoder():
        part.save_pretrained(folder)
    return poisoned(folder)


LOADERS: dict[str, Callable[[Path], object]] = {
    "report model": lambda folder: HfModel.load(str(poisoned(save_tiny_llava(folder)))),
    "language model": lambda folder: HfTextModel.load(str(poisoned(save_causal(folder)))),
    "adapter": lambda folder: HfTextModel.load(str(adapter_of(folder))),
    "token encoder": lambda folder: LocalTokenEncoder(poisoned(bert_folder(folder)), 2),
    "text encoder": lambda folder: load_text_encoder(f"hf:{poisoned(bert_folder(folder))}"),
    "dual encoder": lambda folder: load_encoder(f"hf:{dual_encoder(folder)}"),
    "vision encoder of a dual encoder": lambda folder: load_vision_encoder(f"hf:{dual_encoder(folder)}"),
    "language model of a LLaVA": lambda folder: load_language_model(f"hf:{poisoned(save_tiny_llava(folder))}"),
    "tensors": lambda folder: read_tensors(poisoned(save_causal(folder)) / "pytorch_model.bin"),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_pickle_with_code_is_called_what_it_is(kind: str, tmp_path: Path) -> None:
    """One sentence with the file and what it would have called, without torch's advice to open it all the same."""
    with pytest.raises(DataError, match=r"model\.bin contains pickled code \(posix\.mkdir\); refused") as caught:
        LOADERS[kind](tmp_path / "folder")
    assert "weights_only" not in str(caught.value) and "\n" not in str(caught.value)
    assert not [*tmp_path.rglob("trace")]


def test_the_file_with_the_code_is_named_among_several(tmp_path: Path) -> None:
    torch.save({"a": object()}, tmp_path / "a.bin")  # refused too, for something else
    torch.save({"a": torch.ones(1)}, tmp_path / "b.pt")
    poisoned(tmp_path, "c.pt")
    with (
        pytest.raises(DataError, match=r"c\.pt contains pickled code \(posix\.mkdir\)"),
        pickled_code_refused(tmp_path),
    ):
        torch.load(tmp_path / "c.pt", weights_only=True)
