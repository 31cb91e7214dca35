"""The text side of a contrastive encoder by name: a BERT or that of a dual encoder, built in, or random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, UnknownName, nearest
from cxrlab.core.files import read_json
from cxrlab.core.install import require
from cxrlab.models.building import build_text_encoder
from cxrlab.models.hf.adapters import resolve
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import first_line, load_tokenizer, quiet_loading
from cxrlab.models.parts import SIZES, fresh_tokenizer

_KINDS = ("hf", "builtin", "fresh")
_DUAL = ("vision-text-dual-encoder", "projected-dual-encoder")


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
    kind, colon, argument = name.partition(":")
    if not colon or not argument:
        raise ConfigError(f"'{name}' does not name a text encoder; write KIND:ARGUMENT, for example fresh:phantom.")
    if kind not in _KINDS:
        raise UnknownName(f"'{kind}' (in '{name}') is no kind of text encoder.{nearest(kind, _KINDS)} There are: "
                          "hf:FOLDER, builtin:NAME, fresh:phantom, fresh:tiny.")  # fmt: skip
    if kind == "fresh":
        if argument not in SIZES:
            raise UnknownName(f"'{name}' has no size.{nearest(argument, SIZES)} Sizes: {', '.join(SIZES)}.")
        tokenizer = fresh_tokenizer(SIZES[argument])
        return TextEncoder(build_text_encoder(tokenizer, SIZES[argument], seed), tokenizer, name)
    return _from_folder(name)


def _from_folder(name: str) -> TextEncoder:
    from cxrlab.models.hf.source import locate

    require("models")
    folder = locate(resolve(name, Path()), Loading())
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
    if isinstance(config, dict) and config.get("model_type") in _DUAL:
        from cxrlab.models.projected_encoder import dual_encoder_class

        return dual_encoder_class(folder).from_pretrained(folder, local_files_only=True).text_model
    return AutoModel.from_pretrained(folder, local_files_only=True)
