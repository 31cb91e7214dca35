"""A contrastive encoder: images and texts as vectors of one space, differentiable to the pixels.

Opens what stage 1 writes, what `cxrlab models convert` makes of BiomedCLIP, and any folder of
transformers that turns both images and texts into vectors (CLIP, SigLIP, a vision-text dual encoder).
"""

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
from cxrlab.core.memory import BatchSize, raise_if_out_of_memory
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

    from cxrlab.core.protocols import Image

_BATCH = 32  # images or texts that go through at once where the caller gives a list


class DualEncoder:
    """An `Embedder` around an opened encoder.

    Args:
        name: As a user writes it.
        parts: Model, tokenizer and image processor of one folder.
    """

    USAGES = MappingProxyType({"hf:FOLDER": "a contrastive encoder in the layout of transformers"})

    def __init__(self, name: str, parts: EncoderFolder) -> None:
        from cxrlab.models.hf.pixels import pixel_path

        self._name = name
        self.model, self.tokenizer, self.image_processor = parts.model, parts.tokenizer, parts.image_processor
        self.card = parts.card
        self.longest = parts.longest
        self.pixels = pixel_path(str(parts.model.config.model_type), parts.image_processor)
        self._at_once = BatchSize(_BATCH)

    @classmethod
    def load(cls, argument: str, loading: LoadSettings) -> DualEncoder:
        """The encoder in this folder, ready to embed."""
        return cls(f"hf:{argument}", open_encoder(argument, loading))

    @property
    def name(self) -> str:
        """`hf:FOLDER`, `builtin:encoder`."""
        return self._name

    @property
    def collections(self) -> tuple[str, ...]:
        """Collections of images that it has learnt from; empty where its folder does not tell."""
        return self.card.collections if self.card else ()

    @property
    def device(self) -> Any:
        """Where its weights are."""
        return self.model.logit_scale.device

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return int(self.text_vectors([""]).shape[1])

    @property
    def logit_scale(self) -> float:
        """Natural logarithm of what a cosine is multiplied by, as transformers keeps it."""
        return float(self.model.logit_scale.detach().float())

    @property
    def scale(self) -> float:
        """What a cosine is multiplied by: 1 / temperature."""
        return math.exp(self.logit_scale)

    def image_vectors(self, images: Any) -> Tensor:
        """Vectors [B, D] float32 of length 1, differentiable to the pixels where `pixels.differentiable`.

        Args:
            images: Tensor [B, H, W] or [B, 3, H, W] in [0, 1]; or a list of images of any sizes (see `hf.images`).
        """
        from cxrlab.models.hf.inputs import as_images

        inputs = self.pixels.inputs(as_images(images, self.device))
        dtype = self.model.logit_scale.dtype
        found = self.model.get_image_features(pixel_values=inputs["pixel_values"].to(dtype))
        return _unit(getattr(found, "pooler_output", found))

    def text_vectors(self, texts: Sequence[str]) -> Tensor:
        """Vectors [N, D] float32 of length 1; a text is cut after `longest` tokens.

        The result does not depend on which texts are asked for together.
        """
        import torch

        if not texts:
            raise DataError("no text to embed; give at least one.")
        ids = self.token_ids(texts)
        rows: list[Tensor | None] = [None] * len(texts)

        def look(batch: TextBatch) -> None:
            found = self.model.get_text_features(
                input_ids=batch.ids.to(self.device), attention_mask=batch.mask.to(self.device)
            )
            for row, vector in zip(batch.rows, _unit(getattr(found, "pooler_output", found)), strict=True):
                rows[row] = vector

        in_batches(ids, self.padding, self._at_once, look)
        return torch.stack([vector for vector in rows if vector is not None])

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, cut after `longest`, the tokens that the tokenizer adds included."""
        # SigLIP was trained on texts filled up to a fixed length, without a mask.
        fill = "max_length" if str(self.model.config.model_type).startswith("siglip") else False
        return user_ids(self.tokenizer, texts, truncation=True, max_length=self.longest, padding=fill)

    @property
    def padding(self) -> int:
        """The token that fills up the shorter texts of a batch."""
        return int(self.tokenizer.pad_token_id or 0)

    def embed_images(self, images: Sequence[Image]) -> Image:
        """Vectors [N, D] float32 of length 1 for images [H, W] or [H, W, 3] in [0, 1], of any sizes."""
        import torch

        with torch.inference_mode():
            return _stacked(self._at_once.map(images, lambda some: [self.image_vectors(some)]), self)

    def embed_texts(self, texts: Sequence[str]) -> Image:
        """Vectors [N, D] float32 of length 1 for texts."""
        import torch

        with torch.inference_mode():
            return _stacked([self.text_vectors(texts)] if texts else [], self)


def _unit(vectors: Any) -> Tensor:
    from torch.nn.functional import normalize

    return normalize(vectors.float(), dim=-1)


def _stacked(blocks: list[Tensor], encoder: DualEncoder) -> Image:
    """Blocks of rows as one array; [0, D] when there is none."""
    if not blocks:
        return np.zeros((0, encoder.dimensions), np.float32)
    return np.concatenate([np.asarray(block.cpu(), np.float32) for block in blocks])


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


def open_encoder(argument: str | Path, loading: LoadSettings) -> EncoderFolder:
    """Open the folder of a contrastive encoder; whatever it lacks is one `DataError`.

    Args:
        argument: A folder, the run folder of a training, or a hub id.
        loading: Device and precision.
    """
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
        with pickled_code_refused(folder):
            model, report = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True, dtype=dtype)
    except DataError:
        raise
    except Exception as error:  # safetensors and transformers each have errors of their own
        raise_if_out_of_memory(error, folder)
        raise DataError(f"{folder}: its weights cannot be read ({first_line(error)}); copy the folder anew.") from error
    wrong = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if wrong:
        raise DataError(
            f"{folder} lacks {len(wrong)} of the encoder's weights or has them in another shape (for example "
            f"{wrong[0]}); they would be random numbers. Copy or convert the folder anew."
        )
    return model
