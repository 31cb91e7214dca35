"""Any local transformers encoder as a `TokenEncoder`: the vectors of its tokens at one layer, for BERTScore."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import TokenVectors
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.models.local_files import first_line, load_tokenizer, load_torch, pickled_code_refused, quiet_loading
from cxrlab.models.tokenization import TextBatch, in_batches, user_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

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
        with quiet_loading(), pickled_code_refused(folder):
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


# The order of the published heads; No Finding is first in CheXpert's own order and last here.
HEADS = (*(name for name in CHEXPERT_14 if name != "No Finding"), "No Finding")
_CLASSES = (*(4 for _ in HEADS[:-1]), 2)
# Class of a head → label; class 0 is blank and gives none.
_LABELS = {1: 1, 2: 0, 3: -1}
_MAX_LENGTH = 512
# A buffer that older versions of transformers saved with the weights.
_IGNORED = {"bert.embeddings.position_ids"}


class CheXbert:
    """A `Labeler`, and the embedding whose cosine RadCliQ takes.

    Args:
        checkpoint: `chexbert.pth`: a state dict under `model_state_dict`, keys with or without `module.`.
        folder: Local folder with the tokenizer of bert-base-uncased, and its config.json where the
            encoder is of another size.
        batch_size: Reports at a time.
        device: A torch device.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        folder: str | os.PathLike[str],
        *,
        batch_size: int = 64,
        device: str = "cpu",
    ) -> None:
        require("models")
        self.batch_size, self.device = BatchSize(batch_size), device
        self.tokenizer = load_tokenizer(Path(folder))
        self.model = _load_chexbert(Path(checkpoint), Path(folder)).to(device)

    @property
    def name(self) -> str:
        """`chexbert`."""
        return "chexbert"

    def label(self, reports: Sequence[str]) -> list[dict[str, int]]:
        """CheXpert name → 1, 0 or -1 for each report, in CheXpert's order; blank has no key."""
        return [_labels(row) for row in self._run(reports)[1]]

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vector of the first token [N, D], scaled to length 1."""
        vectors = self._run(texts)[0]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)

    def _run(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """First-token vectors [N, D] and the chosen class of each head [N, 14], in the order of the texts."""
        import torch

        ids = [self._ids(text) for text in texts]
        vectors = np.zeros((len(ids), self.model.bert.config.hidden_size), np.float32)
        classes = np.zeros((len(ids), len(HEADS)), np.int64)

        def look(batch: TextBatch) -> None:
            first, scores = self.model(batch.ids.to(self.device), batch.mask.to(self.device))
            rows = list(batch.rows)
            vectors[rows] = first.float().cpu().numpy()
            classes[rows] = torch.stack([score.argmax(dim=1) for score in scores], dim=1).cpu().numpy()

        with torch.inference_mode():
            in_batches(ids, self.tokenizer.pad_token_id or 0, self.batch_size, look)
        return vectors, classes

    def _ids(self, text: str) -> list[int]:
        """Token ids of a report on one line, cut to 512 with its closing token kept."""
        limit = min(_MAX_LENGTH, self.model.bert.config.max_position_embeddings)
        return user_ids(self.tokenizer, [" ".join(text.split())], truncation=True, max_length=limit)[0]


def _labels(classes: NDArray[np.int64]) -> dict[str, int]:
    found = {head: _LABELS[int(value)] for head, value in zip(HEADS, classes, strict=True) if value}
    return {name: found[name] for name in CHEXPERT_14 if name in found}


def _network(config: Any) -> nn.Module:
    """An encoder and fourteen linear heads on its first token, under the published names."""
    import torch
    import transformers

    encoder: Any = transformers.BertModel

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = encoder(config)
            self.linear_heads = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, n) for n in _CLASSES)

        def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
            first = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
            return first, [head(first) for head in self.linear_heads]

    return Network()


def _load_chexbert(checkpoint: Path, folder: Path) -> Any:
    from transformers import BertConfig

    state = _state(checkpoint)
    try:
        config = BertConfig.from_pretrained(folder) if (folder / "config.json").is_file() else BertConfig()
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / 'config.json'} is not the config of a BERT ({first_line(error)}).") from error
    network = _network(config)
    wanted = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    given = {key: tuple(getattr(value, "shape", ())) for key, value in state.items()}
    wrong = sorted(key for key in {*wanted, *given} if wanted.get(key) != given.get(key))
    if wrong:
        raise DataError(_mismatch(checkpoint, folder, wrong[0], given, wanted) + f" ({len(wrong)} such keys)")
    network.load_state_dict(state)
    return network.eval()


def _state(checkpoint: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, keys without `module.`; only tensors are unpickled."""
    saved = load_torch(checkpoint)
    state = saved.get("model_state_dict") if isinstance(saved, Mapping) else None
    if not isinstance(state, Mapping):
        keys = ", ".join(map(str, list(saved)[:5])) if isinstance(saved, Mapping) else type(saved).__name__
        raise DataError(f"{checkpoint} has no 'model_state_dict' (found: {keys}); it is not in CheXbert's layout.")
    plain = {str(key).removeprefix("module."): value for key, value in state.items()}
    return {key: value for key, value in plain.items() if key not in _IGNORED}


def _mismatch(
    checkpoint: Path,
    folder: Path,
    key: str,
    given: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, tuple[int, ...]],
) -> str:
    if key not in given:
        return f"{checkpoint} lacks the weights '{key}'.{did_you_mean(key, given)} It is not CheXbert's checkpoint"
    if key not in wanted:
        return f"{checkpoint} holds '{key}', which CheXbert does not have.{did_you_mean(key, wanted)}"
    return (
        f"{checkpoint}: '{key}' has shape {list(given[key])}, and the config in {folder} asks for {list(wanted[key])}; "
        "give the folder of the encoder that the checkpoint was trained from"
    )
