"""Contrastive encoders (CLIP, SigLIP, BiomedCLIP, stage 1): image and text embeddings, differentiable to the pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.out_of_memory import BatchSize, raise_if_out_of_memory
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import (
    DUAL_ENCODERS,
    first_line,
    load_image_processor,
    load_tokenizer,
    pickled_code_refused,
    quiet_loading,
)
from cxrlab.models.model_card import ModelCard, read_model_card
from cxrlab.models.tokenization import TextBatch, in_batches, user_ids

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.model_interfaces import Image

_BATCH = 32


class DualEncoder:
    """An `Embedder` around an opened encoder."""

    USAGES = MappingProxyType({"hf:FOLDER": "a contrastive encoder in the layout of transformers"})

    def __init__(self, name: str, parts: EncoderFolder) -> None:
        from cxrlab.models.hf.pixels import pixel_path

        self._name = name
        self.model, self.tokenizer, self.image_processor = parts.model, parts.tokenizer, parts.image_processor
        self.card = parts.card
        self.longest = parts.longest
        self.pixels = pixel_path(str(parts.model.config.model_type), parts.image_processor)
        self._batch = BatchSize(_BATCH)

    @classmethod
    def load(cls, argument: str, loading: LoadSettings) -> DualEncoder:
        """Open a folder."""
        return cls(f"hf:{argument}", open_encoder(argument, loading))

    @property
    def name(self) -> str:
        """`hf:FOLDER`, `builtin:encoder`."""
        return self._name

    @property
    def collections(self) -> tuple[str, ...]:
        """Image collections that it was trained on; empty if unknown."""
        return self.card.collections if self.card else ()

    @property
    def device(self) -> Any:
        """Device of the weights."""
        return self.model.logit_scale.device

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return int(self.text_vectors([""]).shape[1])

    @property
    def logit_scale(self) -> float:
        """Natural logarithm of `scale`, as stored by transformers."""
        return float(self.model.logit_scale.detach().float())

    @property
    def scale(self) -> float:
        """Factor of a cosine: 1 / temperature."""
        return math.exp(self.logit_scale)

    def image_vectors(self, images: Any) -> Tensor:
        """Vectors [B, D] float32 of length 1; differentiable if `pixels.differentiable`. For images see `as_images`."""
        from cxrlab.models.hf.inputs import as_images

        inputs = self.pixels.inputs(as_images(images, self.device))
        dtype = self.model.logit_scale.dtype
        found = self.model.get_image_features(pixel_values=inputs["pixel_values"].to(dtype))
        return _unit(getattr(found, "pooler_output", found))

    def text_vectors(self, texts: Sequence[str]) -> Tensor:
        """Vectors [N, D] float32 of length 1, independent of batching; texts are truncated to `longest` tokens."""
        import torch

        if not texts:
            raise DataError("no text to embed; give at least one.")
        ids = self.token_ids(texts)
        rows: list[Tensor | None] = [None] * len(texts)

        def encode(batch: TextBatch) -> None:
            found = self.model.get_text_features(
                input_ids=batch.ids.to(self.device), attention_mask=batch.mask.to(self.device)
            )
            for row, vector in zip(batch.rows, _unit(getattr(found, "pooler_output", found)), strict=True):
                rows[row] = vector

        in_batches(ids, self.padding, self._batch, encode)
        return torch.stack([vector for vector in rows if vector is not None])

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, truncated to `longest`, special tokens included."""
        # SigLIP was trained on texts padded to a fixed length, without a mask.
        fill = "max_length" if str(self.model.config.model_type).startswith("siglip") else False
        return user_ids(self.tokenizer, texts, truncation=True, max_length=self.longest, padding=fill)

    @property
    def padding(self) -> int:
        """Id of the padding token."""
        return int(self.tokenizer.pad_token_id or 0)

    def embed_images(self, images: Sequence[Image]) -> Image:
        """Vectors [N, D] float32 of length 1 for images [H, W] or [H, W, 3] in [0, 1], of any sizes."""
        import torch

        with torch.inference_mode():
            return self._stacked(self._batch.map(images, lambda some: [self.image_vectors(some)]))

    def embed_texts(self, texts: Sequence[str]) -> Image:
        """Vectors [N, D] float32 of length 1 for texts."""
        import torch

        with torch.inference_mode():
            return self._stacked([self.text_vectors(texts)] if texts else [])

    def _stacked(self, blocks: list[Tensor]) -> Image:
        if not blocks:
            return np.zeros((0, self.dimensions), np.float32)
        return np.concatenate([np.asarray(block.cpu(), np.float32) for block in blocks])


def _unit(vectors: Any) -> Tensor:
    from torch.nn.functional import normalize

    return normalize(vectors.float(), dim=-1)


_NO_LIMIT = 1 << 20  # transformers gives a number of thirty digits for a tokenizer without a limit


@dataclass(frozen=True, eq=False)
class EncoderFolder:
    """An opened folder."""

    model: Any  # with `get_image_features`, `get_text_features` and `logit_scale`; in evaluation mode, on its device
    tokenizer: Any
    image_processor: Any
    longest: int  # most tokens of a text
    card: ModelCard | None = None


def open_encoder(argument: str | Path, loading: LoadSettings) -> EncoderFolder:
    """Open a contrastive encoder: a folder, the run folder of a training, or a hub id."""
    from cxrlab.models.hf.checkpoint import check_memory, device_of, dtype_of
    from cxrlab.models.local_files import check_remote_code, locate

    folder = locate(argument, loading)
    check_remote_code(folder, loading)
    device = device_of(loading)
    with quiet_loading():
        kind = encoder_class(folder)
        tokenizer = load_tokenizer(folder)
        image_processor = load_image_processor(folder)
        check_memory(folder, loading, device)
        try:
            with pickled_code_refused(folder):
                model, report = kind.from_pretrained(
                    folder, local_files_only=True, output_loading_info=True, dtype=dtype_of(loading, device)
                )
        except DataError:
            raise
        except Exception as error:  # safetensors and transformers each have errors of their own
            raise_if_out_of_memory(error, folder)
            raise DataError(
                f"{folder}: its weights cannot be read ({first_line(error)}); copy the folder again."
            ) from error
        wrong = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
        if wrong:
            raise DataError(
                f"{folder} lacks {len(wrong)} of the encoder's weights or has them in another shape (for example "
                f"{wrong[0]}); they would be random. Copy or convert the folder again."
            )
        model = model.to(device).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return EncoderFolder(model, tokenizer, image_processor, longest_text(model, tokenizer), read_model_card(folder))


def encoder_class(folder: Path) -> Any:
    """The class of a folder by its config, checked before any weights are read."""
    from transformers import AutoConfig, AutoModel

    from cxrlab.models.biomedclip import dual_encoder_class

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
            f"{folder} holds a model of the type '{kind}', which does not embed both images and texts; name a "
            "contrastive encoder: a result of `cxrlab train encoder`, or a folder of CLIP."
        )
    return plain


def longest_text(model: Any, tokenizer: Any) -> int:
    """Most tokens of a text, by the tokenizer's limit and the text encoder's positions."""
    config = getattr(model.config, "text_config", model.config)
    places = int(getattr(config, "max_position_embeddings", _NO_LIMIT))
    # RoBERTa counts positions from the padding token on, so the first ones are never used.
    if str(config.model_type) in ("roberta", "xlm-roberta", "camembert"):
        places -= int(config.pad_token_id) + 1
    limit = int(tokenizer.model_max_length)
    return min(places, limit if limit < _NO_LIMIT else places)
