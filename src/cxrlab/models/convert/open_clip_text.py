"""The text encoder of open_clip encoders that read with a BERT: its config, tokenizer, pooling and projection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, shown
from cxrlab.core.files import read_json
from cxrlab.models.convert.tensors import check_names, filled, without
from cxrlab.models.local_files import load_tokenizer

_WHERE = "the text encoder (text.transformer)"
# BERT models whose config is that of BERT but for the sizes, which the tensors tell; others need their config.json.
_PLAIN_BERT = re.compile(r"(microsoft/BiomedNLP-(PubMedBERT|BiomedBERT)-|(google-bert/)?bert-(base|large)-)\S+")
_HEAD = 64  # numbers an attention head, in all of them
_POOLINGS = {"cls_pooler": "pooler", "cls_last_hidden_state_pooler": "first"}
_BUFFERS = {
    r"embeddings\.position_ids": "whole numbers from 0 on, which are not learnt",
    r"embeddings\.token_type_ids": "zeros, which are not learnt",
}
_POOLER = {r"pooler\.dense\.(weight|bias)": "BERT's own pooler, which this encoder passes by"}


@dataclass(frozen=True)
class TextEncoder:
    """A converted text encoder.

    Args:
        model: A `BertModel`, with its pooler where that is used.
        tokenizer: Cuts texts at the length that the encoder was trained with.
        pooling: `pooler` or `first`; see `ProjectedDualEncoderConfig`.
        projection: Matrices of the projection, one or two.
    """

    model: Any
    tokenizer: Any
    pooling: str
    projection: tuple[Any, ...]


def convert_text(
    tensors: Mapping[str, Any], settings: Mapping[str, Any], folder: Path, dtype: Any, unused: dict[str, str]
) -> TextEncoder:
    """The text encoder of an open_clip encoder.

    Args:
        tensors: Name → tensor, without the `text.` in front.
        settings: `text_cfg` of the published config.
        folder: Holds the tokenizer, and config.json of the text model where it is not a plain BERT.
        dtype: Number format of the vision encoder.
        unused: Name → reason of tensors that are not needed, added to.
    """
    from transformers import BertModel

    pooling = _pooling(settings)
    needless: dict[str, str] = {}
    reasons = _BUFFERS | (_POOLER if pooling == "first" else {})
    bert = {name.removeprefix("transformer."): t for name, t in tensors.items() if name.startswith("transformer.")}
    bert = without(bert, reasons, needless)
    unused |= {f"text.transformer.{name}": reason for name, reason in needless.items()}
    config = _config(bert, settings, folder)
    projection = _projection({name: t for name, t in tensors.items() if not name.startswith("transformer.")}, settings)
    model = filled(BertModel, config, bert, _WHERE, dtype, add_pooling_layer=pooling == "pooler")
    return TextEncoder(model, _tokenizer(folder, config, settings), pooling, projection)


def _pooling(settings: Mapping[str, Any]) -> str:
    """How a text is read off its tokens; the older spelling of the setting meant two things and is asked about."""
    if "hf_pooler_type" not in settings and settings.get("pooler_type") == "cls_pooler":
        raise ConfigError(
            'text_cfg says "pooler_type": "cls_pooler", which meant BERT\'s pooler to some versions of open_clip and '
            'the first token to others; write "hf_pooler_type": "cls_pooler" for the former or '
            '"hf_pooler_type": "cls_last_hidden_state_pooler" for the latter (BiomedCLIP).'
        )
    name = settings.get("hf_pooler_type") or settings.get("pooler_type") or "cls_pooler"  # open_clip's own for BERT
    if name not in _POOLINGS:
        raise DataError(f"the text encoder pools by {shown(name)}; {' and '.join(_POOLINGS)} can be converted.")
    return _POOLINGS[name]


def _projection(tensors: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, ...]:
    kind = settings.get("hf_proj_type", settings.get("proj"))
    names = {"mlp": ("proj.0.weight", "proj.2.weight"), "linear": ("proj.weight",)}.get(kind or "")
    if names is None:
        raise DataError(f"the text encoder projects by {shown(kind)}; mlp and linear can be converted.")
    check_names(set(names) - set(tensors), set(tensors) - set(names), f"the text projection ({kind})")
    return tuple(tensors[name] for name in names)


def _config(bert: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> Any:
    from transformers import BertConfig

    path, name = folder / "config.json", str(settings.get("hf_model_name"))
    if path.is_file():
        found = read_json(path)
        kind = found.get("model_type") if isinstance(found, dict) else None
        if kind == "bert":
            return BertConfig.from_dict(found)
        raise DataError(f"{path} describes a {shown(kind)}; text vision encoders that are a BERT can be converted.")
    if not _PLAIN_BERT.fullmatch(name):
        raise ConfigError(
            f"the text encoder is {shown(name)}, whose settings the weights do not tell; name a folder with its "
            "config.json and tokenizer with --text."
        )
    words, places = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
    kinds, inner = "embeddings.token_type_embeddings.weight", "encoder.layer.0.intermediate.dense.weight"
    check_names({words, places, kinds, inner} - set(bert), [], _WHERE)
    layers = 1 + max(int(found[1]) for key in bert if (found := re.match(r"encoder\.layer\.(\d+)\.", key)))
    width = int(bert[words].shape[1])
    if width % _HEAD:
        raise DataError(f"{_WHERE}: width {width} is not a whole number of heads of {_HEAD}.")
    return BertConfig(
        vocab_size=int(bert[words].shape[0]),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // _HEAD,
        intermediate_size=int(bert[inner].shape[0]),
        max_position_embeddings=int(bert[places].shape[0]),
        type_vocab_size=int(bert[kinds].shape[0]),
    )


def _tokenizer(folder: Path, config: Any, settings: Mapping[str, Any]) -> Any:
    tokenizer = load_tokenizer(folder)
    if len(tokenizer) > config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {len(tokenizer):,} words and the text encoder {config.vocab_size:,}; "
            "it is that of another model."
        )
    if tokenizer.pad_token_id != config.pad_token_id:
        raise DataError(
            f"the tokenizer in {folder} pads with {shown(tokenizer.pad_token)}, number {tokenizer.pad_token_id}, and "
            f"the text encoder with number {config.pad_token_id}; it is that of another model."
        )
    tokenizer.model_max_length = min(int(settings.get("context_length", 77)), config.max_position_embeddings)
    return tokenizer
