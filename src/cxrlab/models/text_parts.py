"""The text side of a contrastive encoder by name: a BERT or that of a dual encoder, built in, or random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.models.building import build_text_encoder
from cxrlab.models.local_files import DUAL_ENCODERS, first_line, load_tokenizer, quiet_loading
from cxrlab.models.part_folders import folder_of, loaded
from cxrlab.models.parts import fresh_tokenizer, parse_part, size_of


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A text encoder: a model of transformers that gives a vector a token, its tokenizer, and its name."""

    model: Any
    tokenizer: Any
    source: str


def load_text_encoder(name: str, *, seed: int = 0) -> TextEncoder:
    """The text encoder of this name, such as `hf:models/pubmedbert` or `fresh:phantom`.

    Args:
        name: KIND:ARGUMENT.
        seed: Decides the weights of a fresh one.
    """
    kind, argument = parse_part(name, "a text encoder")
    if kind == "fresh":
        size = size_of(argument, name)
        tokenizer = fresh_tokenizer(size)
        return TextEncoder(build_text_encoder(tokenizer, size, seed), tokenizer, name)
    return _from_folder(name)


def _from_folder(name: str) -> TextEncoder:
    folder = folder_of(name)
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; name the folder of a text encoder, such as a BERT.")
    tokenizer = load_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        raise DataError(f"the tokenizer in {folder} has no padding token, so reports of unlike length make no batch.")
    try:
        with quiet_loading():
            model = _text_model(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"a text encoder cannot be taken out of {folder} ({first_line(error)}).") from error
    if not hasattr(model.config, "vocab_size") or hasattr(model.config, "vision_config"):
        raise DataError(
            f"{folder} holds a model of the type '{model.config.model_type}', which does not read text alone; name a "
            "text encoder, such as a BERT."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {len(tokenizer):,} tokens and the model {model.config.vocab_size:,}; "
            "they do not belong together."
        )
    return TextEncoder(model, tokenizer, name)


def _text_model(folder: Path) -> Any:
    from transformers import AutoModel

    config = read_json(folder / "config.json")
    if isinstance(config, dict) and config.get("model_type") in DUAL_ENCODERS:
        from cxrlab.models.projected_encoder import dual_encoder_class

        return loaded(dual_encoder_class(folder), folder).text_model
    return loaded(AutoModel, folder)
