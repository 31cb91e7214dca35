"""Any causal language model of the Hugging Face layout: what is wrong with its folder is said before it is loaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import sha256_of
from cxrlab.core.install import require
from cxrlab.models.hf import adapters
from cxrlab.models.hf.checkpoint import load_weights
from cxrlab.models.hf.placement import device_of, refuse_too_large
from cxrlab.models.hf.source import locate, refuse_foreign_code
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import first_line, load_tokenizer

# Files of a checkpoint that decide what it answers: weights, settings, tokenizer, chat template.
_DECIDING = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model")


@dataclass(frozen=True, eq=False)
class Causal:
    """A language model in evaluation mode with its tokenizer.

    Args:
        model: On its device; adapters are merged into it.
        tokenizer: With an end token and a padding token.
        folders: What it was made of: the folder itself, then what it stands on.
    """

    model: Any
    tokenizer: Any
    folders: tuple[Path, ...]


def open_causal(path_or_id: str | Path, loading: Loading | None = None) -> Causal:
    """Open a causal language model, or a PEFT adapter of one; every reason why it cannot be used is one sentence.

    Args:
        path_or_id: Folder or hub id; an id must be kept on this machine unless `loading` allows to fetch it.
        loading: Where and how.
    """
    require("models")
    from transformers import AutoModelForCausalLM

    settings = loading or Loading()
    *above, whole = adapters.lineage(locate(path_or_id, settings), settings)
    refuse_other_kinds(whole, settings)
    device = device_of(settings)
    refuse_too_large(whole, settings, device)
    with_words = next((each for each in above if (each / "tokenizer_config.json").is_file()), whole)
    tokenizer = load_tokenizer(with_words)
    model = load_weights(whole, settings, device, AutoModelForCausalLM)
    for adapter in reversed(above):
        model = adapters.merged(model, adapter).eval()
    if tokenizer.eos_token_id is None:
        raise DataError(f"the tokenizer in {with_words} has no end token, so an answer would never end; set eos_token.")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # masked wherever it pads
    return Causal(model, tokenizer, (*above, whole))


def refuse_other_kinds(folder: Path, loading: Loading) -> None:
    """Raise when the folder holds no language model that continues a text."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        AutoConfig,
    )

    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json, so it holds no model; name a folder that save_pretrained wrote.")
    refuse_foreign_code(folder, loading)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=loading.trust_remote_code)
    except Exception as error:  # of a config that others wrote, or of their code
        raise DataError(f"{folder}/config.json cannot be read by transformers ({first_line(error)}).") from error
    kind = type(config)
    what = None
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        what = "a model that reads images or other pictures"
    elif getattr(config, "is_encoder_decoder", False):
        what = "an encoder-decoder"
    elif kind in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        what = "an encoder, which fills gaps and continues nothing"
    elif kind not in MODEL_FOR_CAUSAL_LM_MAPPING:
        what = "another kind of model"
    if what is not None:
        raise DataError(
            f"{folder} holds {what} ('{config.model_type}'), not a language model that answers text with text; name a "
            "causal one such as a Llama or a Qwen."
        )


def fingerprint(folders: tuple[Path, ...]) -> str:
    """SHA-256 over every file of these folders that decides an answer, by name and content."""
    digest = hashlib.sha256()
    for number, folder in enumerate(folders):
        for file in sorted(folder.iterdir()):
            if file.suffix in _DECIDING and file.is_file():
                digest.update(f"{number} {file.name} {sha256_of(file)}\n".encode())
    return digest.hexdigest()
