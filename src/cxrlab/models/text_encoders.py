"""Local text encoders for metrics: token vectors of any transformers encoder (BERTScore), and the CheXbert labeler."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.model_interfaces import TokenVectors
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.models.local_files import first_line, load_tokenizer, load_torch, pickled_code_refused, quiet_loading
from cxrlab.models.tokenization import TextBatch, in_batches, user_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_NO_LIMIT = 1_000_000  # tokens; for configs without max_position_embeddings


class LocalTokenEncoder:
    """A transformers encoder from a folder, cut after one layer, for BERTScore.

    Tokens are those of the `bert-score` package: the tokenizer's special tokens are kept, byte-level tokenizers
    (RoBERTa's) read the text with a leading space, and longer texts are truncated.

    Args:
        folder: Weights, config and tokenizer, as `save_pretrained` writes them.
        layer: The layer whose output is used, from 1; BERTScore uses 5 for distilroberta-base.
        name: For signatures; the folder's name by default.
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
        self.model = _load_layers(self.folder, layer).to(device)
        config = self.model.config
        positions = getattr(config, "max_position_embeddings", None) or _NO_LIMIT
        if config.model_type in ("roberta", "xlm-roberta", "camembert"):
            positions -= config.pad_token_id + 1  # their positions start after the padding's
        self.max_length = int(min(self.tokenizer.model_max_length, positions))
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        splitter = json.loads(backend.to_str())["pre_tokenizer"] if backend is not None else None
        self._byte_level = "ByteLevel" in json.dumps(splitter)

    @property
    def name(self) -> str:
        """`NAME/LAYER`."""
        return f"{self._name}/{self.layer}"

    def encode_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Tokens and vectors of each text, in order."""
        import torch

        texts = [text.strip() for text in texts]
        texts = [f" {text}" if self._byte_level and text else text for text in texts]
        ids = user_ids(self.tokenizer, texts, truncation=True, max_length=self.max_length)
        nothing = np.zeros((0, self.model.config.hidden_size), np.float32)
        vectors: list[NDArray[np.float32]] = [nothing] * len(ids)

        def encode(batch: TextBatch) -> None:
            out = self.model(input_ids=batch.ids.to(self.device), attention_mask=batch.mask.to(self.device))
            hidden = out.last_hidden_state.float().cpu().numpy()
            for place, row in enumerate(batch.rows):
                vectors[row] = hidden[place, : len(ids[row])].copy()

        with torch.inference_mode():
            in_batches(ids, self.tokenizer.pad_token_id or 0, self.batch_size, encode)
        # Of the special tokens only these two have no weight in BERTScore; an unknown token counts like any other.
        edges = {self.tokenizer.cls_token_id, self.tokenizer.sep_token_id}
        return [
            TokenVectors(
                tuple(self.tokenizer.convert_ids_to_tokens(row)),
                array,
                np.array([token in edges for token in row], dtype=np.bool_),
            )
            for row, array in zip(ids, vectors, strict=True)
        ]


def _load_layers(folder: Path, layer: int) -> Any:
    """The encoder with its first `layer` layers only."""
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if not 1 <= layer <= config.num_hidden_layers:
            raise ConfigError(
                f"layer {layer} of {folder} does not exist; it has layers 1 to {config.num_hidden_layers}."
            )
        if config.is_encoder_decoder:
            raise ConfigError(
                f"{folder} holds a {config.model_type}, which has a decoder; name an encoder such as BERT."
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


# CheXbert's heads in their published order, in which No Finding is last.
HEADS = (*(name for name in CHEXPERT_14 if name != "No Finding"), "No Finding")
_CLASSES = (*(4 for _ in HEADS[:-1]), 2)
_LABELS = {1: 1, 2: 0, 3: -1}  # class of a head → label; class 0 is blank
_MAX_LENGTH = 512


class CheXbert:
    """CheXbert as a `Labeler` and as the text embedding of RadCliQ.

    Args:
        checkpoint: `chexbert.pth`: a state dict under `model_state_dict`, keys with or without `module.`.
        folder: Local folder with the tokenizer of bert-base-uncased, and config.json if the encoder has another size.
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
        labels = []
        for classes in self._run(reports)[1]:
            found = {head: _LABELS[int(value)] for head, value in zip(HEADS, classes, strict=True) if value}
            labels.append({name: found[name] for name in CHEXPERT_14 if name in found})
        return labels

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """First-token vectors [N, D], scaled to length 1."""
        vectors = self._run(texts)[0]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each report on one line, truncated to the model's length with the closing token kept."""
        limit = min(_MAX_LENGTH, self.model.bert.config.max_position_embeddings)
        lines = [" ".join(text.split()) for text in texts]
        return user_ids(self.tokenizer, lines, truncation=True, max_length=limit)

    def _run(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """First-token vectors [N, D] and the chosen class of each head [N, 14], in the order of the texts."""
        import torch

        ids = self.token_ids(texts)
        vectors = np.zeros((len(ids), self.model.bert.config.hidden_size), np.float32)
        classes = np.zeros((len(ids), len(HEADS)), np.int64)

        def classify(batch: TextBatch) -> None:
            first, scores = self.model(batch.ids.to(self.device), batch.mask.to(self.device))
            rows = list(batch.rows)
            vectors[rows] = first.float().cpu().numpy()
            classes[rows] = torch.stack([score.argmax(dim=1) for score in scores], dim=1).cpu().numpy()

        with torch.inference_mode():
            in_batches(ids, self.tokenizer.pad_token_id or 0, self.batch_size, classify)
        return vectors, classes


def _load_chexbert(checkpoint: Path, folder: Path) -> Any:
    """A BERT with fourteen linear heads on its first token; the checkpoint must hold exactly its tensors."""
    import torch
    import transformers

    saved = load_torch(checkpoint)
    state = saved.get("model_state_dict") if isinstance(saved, Mapping) else None
    if not isinstance(state, Mapping):
        keys = ", ".join(map(str, list(saved)[:5])) if isinstance(saved, Mapping) else type(saved).__name__
        raise DataError(f"{checkpoint} has no 'model_state_dict' (found: {keys}); it is not in CheXbert's layout.")
    state = {str(key).removeprefix("module."): value for key, value in state.items()}
    state.pop("bert.embeddings.position_ids", None)  # a buffer that older versions of transformers saved
    config_class: Any = transformers.BertConfig
    try:
        config = config_class.from_pretrained(folder) if (folder / "config.json").is_file() else config_class()
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / 'config.json'} is not the config of a BERT ({first_line(error)}).") from error
    encoder: Any = transformers.BertModel

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = encoder(config)
            self.linear_heads = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, n) for n in _CLASSES)

        def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
            first = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
            return first, [head(first) for head in self.linear_heads]

    network = Network()
    wanted = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    given = {key: tuple(getattr(value, "shape", ())) for key, value in state.items()}
    if wrong := sorted(key for key in {*wanted, *given} if wanted.get(key) != given.get(key)):
        key = wrong[0]
        if key not in given:
            problem = f"lacks the weights '{key}'.{did_you_mean(key, given)} It is not CheXbert's checkpoint"
        elif key not in wanted:
            problem = f"holds '{key}', which CheXbert does not have.{did_you_mean(key, wanted)}"
        else:
            problem = (
                f"has '{key}' of shape {list(given[key])}, and the config in {folder} requires {list(wanted[key])}; "
                "give the folder of the encoder that the checkpoint was trained from"
            )
        raise DataError(f"{checkpoint} {problem} ({len(wrong)} such keys)")
    network.load_state_dict(state)
    return network.eval()
