"""A contrastive encoder: images and texts as vectors of one space, differentiable to the pixels.

Opens what stage 1 writes, what `cxrlab models convert` makes of BiomedCLIP, and any folder of
transformers that turns both images and texts into vectors (CLIP, SigLIP, a vision-text dual encoder).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.memory import BatchSize
from cxrlab.models.text_batches import TextBatch, in_batches
from cxrlab.models.user_text import user_ids

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.protocols import Image
    from cxrlab.models.encoder_folder import EncoderFolder
    from cxrlab.models.loading import Loading

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
    def load(cls, argument: str, loading: Loading) -> DualEncoder:
        """The encoder in this folder, ready to embed."""
        from cxrlab.models.encoder_folder import open_encoder

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
        from cxrlab.models.hf.images import as_images

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
