"""CheXbert: a BERT with fourteen heads that reads the CheXpert labels off a report.

The code is ours; the weights are those of the published `chexbert.pth`, which a user brings. Thirteen
heads tell blank, positive, negative and uncertain apart, the fourteenth says whether there is No Finding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import DataError, nearest
from cxrlab.core.install import require
from cxrlab.core.memory import BatchSize
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.models.local_files import first_line, load_tokenizer, load_torch
from cxrlab.models.text_batches import TextBatch, in_batches
from cxrlab.models.user_text import user_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

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
        self.model = _load(Path(checkpoint), Path(folder)).to(device)

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


def _load(checkpoint: Path, folder: Path) -> Any:
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
        return f"{checkpoint} lacks the weights '{key}'.{nearest(key, given)} It is not CheXbert's checkpoint"
    if key not in wanted:
        return f"{checkpoint} holds '{key}', which CheXbert does not have.{nearest(key, wanted)}"
    return (
        f"{checkpoint}: '{key}' has shape {list(given[key])}, and the config in {folder} asks for {list(wanted[key])}; "
        "give the folder of the encoder that the checkpoint was trained from"
    )
