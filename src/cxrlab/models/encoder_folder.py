"""The folder of a contrastive encoder: weights, tokenizer and image processor, each there and of the right kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.memory import raise_if_memory_ran_out
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import (
    DUAL_ENCODERS,
    first_line,
    load_image_processor,
    load_tokenizer,
    quiet_loading,
    refused_code,
)
from cxrlab.models.model_card import ModelCard, read_model_card

# A tokenizer that was never told how long a text may be says a number of thirty digits.
_NO_LIMIT = 1 << 20


@dataclass(frozen=True, eq=False)
class EncoderFolder:
    """One opened folder.

    Args:
        model: With `get_image_features`, `get_text_features` and `logit_scale`; in evaluation mode, on its device.
        tokenizer: Of its text encoder.
        image_processor: Of its vision encoder.
        longest: Most tokens of a text.
        card: What made it; None for a folder from elsewhere.
    """

    model: Any
    tokenizer: Any
    image_processor: Any
    longest: int
    card: ModelCard | None = None


def open_encoder(argument: str | Path, loading: Loading) -> EncoderFolder:
    """Open the folder of a contrastive encoder; whatever it lacks is one `DataError`.

    Args:
        argument: A folder, the run folder of a training, or a hub id.
        loading: Device and precision.
    """
    from cxrlab.models.hf.placement import device_of, dtype_of, refuse_too_large
    from cxrlab.models.hf.source import locate, refuse_foreign_code

    folder = locate(argument, loading)
    refuse_foreign_code(folder, loading)
    device = device_of(loading)
    with quiet_loading():
        kind = encoder_class(folder)
        tokenizer = load_tokenizer(folder)
        image_processor = load_image_processor(folder)
        refuse_too_large(folder, loading, device)
        model = _weights(kind, folder, dtype_of(loading, device)).to(device).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return EncoderFolder(model, tokenizer, image_processor, longest_text(model, tokenizer), read_model_card(folder))


def encoder_class(folder: Path) -> Any:
    """The class that opens this folder, known from its config alone: no weights are read for a wrong kind."""
    from transformers import AutoConfig, AutoModel

    from cxrlab.models.projected_encoder import dual_encoder_class

    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; name the folder of a contrastive encoder.")
    found = read_json(folder / "config.json")
    kind = found.get("model_type") if isinstance(found, dict) else None
    if kind in DUAL_ENCODERS:
        return dual_encoder_class(folder)
    try:
        plain = AutoModel._model_mapping.get(
            type(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)), None
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: its config.json cannot be used ({first_line(error)}).") from error
    if not all(hasattr(plain, name) for name in ("get_image_features", "get_text_features")):
        raise DataError(
            f"{folder} holds a model of the type '{kind}', which does not turn both images and texts into "
            "vectors; name a contrastive encoder: what `cxrlab train encoder` writes, or a folder of CLIP."
        )
    return plain


def longest_text(model: Any, tokenizer: Any) -> int:
    """Most tokens of a text: what the tokenizer was told, and no more than the text encoder has places for."""
    config = getattr(model.config, "text_config", model.config)
    places = int(getattr(config, "max_position_embeddings", _NO_LIMIT))
    # RoBERTa counts its places from the padding token on, so the first ones are never used.
    if str(config.model_type) in ("roberta", "xlm-roberta", "camembert"):
        places -= int(config.pad_token_id) + 1
    told = int(tokenizer.model_max_length)
    return min(places, told if told < _NO_LIMIT else places)


def _weights(kind: Any, folder: Path, dtype: Any) -> Any:
    """The model, every one of its weights from the folder."""
    try:
        with refused_code(folder):
            model, report = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True, dtype=dtype)
    except DataError:
        raise
    except Exception as error:  # safetensors and transformers each have errors of their own
        raise_if_memory_ran_out(error, folder)
        raise DataError(f"{folder}: its weights cannot be read ({first_line(error)}); copy the folder anew.") from error
    wrong = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if wrong:
        raise DataError(
            f"{folder} lacks {len(wrong)} of the encoder's weights or has them in another shape (for example "
            f"{wrong[0]}); they would be random numbers. Copy or convert the folder anew."
        )
    return model
