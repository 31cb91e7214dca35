"""Any local transformers encoder as a `TokenEncoder`: the vectors of its tokens at one layer, for BERTScore."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.install import require
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import TokenVectors
from cxrlab.models.local_files import first_line, load_tokenizer, quiet_loading, refused_code
from cxrlab.models.text_batches import TextBatch, in_batches
from cxrlab.models.user_text import user_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A tokenizer that does not know its limit says 10^30; no encoder reads this much.
_NO_LIMIT = 1_000_000


class LocalTokenEncoder:
    """A transformers encoder from a folder, cut after one layer.

    Tokens are those of the `bert-score` package: the tokenizer's own special tokens stay, byte-level
    tokenizers (RoBERTa's) read the text as if a space stood before it, and what exceeds the model's
    length is cut off.

    Args:
        folder: Weights, config and tokenizer, as `save_pretrained` writes them.
        layer: Which layer's output, from 1; BERTScore's choice for distilroberta-base is 5.
        name: For signatures; the folder's name by default.
        batch_size: Texts at a time.
        device: A torch device.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        layer: int,
        *,
        name: str | None = None,
        batch_size: int = 64,
        device: str = "cpu",
    ) -> None:
        require("models")
        self.folder, self.layer, self.device = Path(folder), layer, device
        self.batch_size = BatchSize(batch_size)
        self._name = name or self.folder.resolve().name
        self.tokenizer = load_tokenizer(self.folder)
        self.model = _load(self.folder, layer).to(device)
        self.max_length = _max_length(self.tokenizer, self.model.config)
        self._spaced = _byte_level(self.tokenizer)

    @property
    def name(self) -> str:
        """`NAME/LAYER`."""
        return f"{self._name}/{self.layer}"

    def encode_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Tokens and vectors of each text, in order."""
        import torch

        ids = [self._ids(text) for text in texts]
        nothing = np.zeros((0, self.model.config.hidden_size), np.float32)
        vectors: list[NDArray[np.float32]] = [nothing] * len(ids)
        pad = self.tokenizer.pad_token_id or 0

        def look(batch: TextBatch) -> None:
            out = self.model(input_ids=batch.ids.to(self.device), attention_mask=batch.mask.to(self.device))
            hidden = out.last_hidden_state.float().cpu().numpy()
            for place, row in enumerate(batch.rows):
                vectors[row] = hidden[place, : len(ids[row])].copy()

        with torch.inference_mode():
            in_batches(ids, pad, self.batch_size, look)
        return [self._tokens(row, array) for row, array in zip(ids, vectors, strict=True)]

    def _ids(self, text: str) -> list[int]:
        text = text.strip()
        if self._spaced and text:
            text = f" {text}"
        return user_ids(self.tokenizer, [text], truncation=True, max_length=self.max_length)[0]

    def _tokens(self, ids: list[int], vectors: NDArray[np.float32]) -> TokenVectors:
        tokens = tuple(self.tokenizer.convert_ids_to_tokens(ids))
        # Of the special tokens only these two weigh nothing in BERTScore; an unknown word counts like any other.
        edges = {self.tokenizer.cls_token_id, self.tokenizer.sep_token_id}
        return TokenVectors(tokens, vectors, np.array([i in edges for i in ids], dtype=np.bool_))


def _load(folder: Path, layer: int) -> Any:
    """The encoder with its first `layer` layers; the rest is not built."""
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if not 1 <= layer <= config.num_hidden_layers:
            raise ConfigError(
                f"layer {layer} of {folder} does not exist; it has layers 1 to {config.num_hidden_layers}."
            )
        if config.is_encoder_decoder:
            raise ConfigError(
                f"{folder} holds a {config.model_type}, which also decodes; name an encoder such as BERT."
            )
        config.num_hidden_layers = layer
        with quiet_loading(), refused_code(folder):
            return AutoModel.from_pretrained(
                folder, config=config, local_files_only=True, trust_remote_code=False
            ).eval()
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder} holds no encoder that transformers can load ({first_line(error)}); "
            "it needs config.json and model.safetensors."
        ) from error


def _max_length(tokenizer: Any, config: Any) -> int:
    """Tokens that the model can read: the smaller of what tokenizer and position table allow."""
    positions = getattr(config, "max_position_embeddings", None) or _NO_LIMIT
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= config.pad_token_id + 1  # their positions start after the padding's
    return int(min(tokenizer.model_max_length, positions))


def _byte_level(tokenizer: Any) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    splitter = json.loads(backend.to_str())["pre_tokenizer"] if backend is not None else None
    return "ByteLevel" in json.dumps(splitter)
