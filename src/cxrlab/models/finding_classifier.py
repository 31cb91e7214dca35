"""A vision encoder with a label head: probabilities of observations from one or several images of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_parts import folder_of, load_vision_encoder

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.model_interfaces import Image

HEAD, LABELS = "label_head.safetensors", "label_head.json"


@dataclass(frozen=True)
class HeadLabels:
    """What a head was trained on.

    Args:
        names: Its labels, in the order of its outputs.
        log_odds: log(positives / negatives) of each in the training. A class-balanced loss removes it from the logits.
        views: Views of a study that were learnt; empty for one frontal image.
        unmentioned: negative or ignored.
    """

    names: tuple[str, ...]
    log_odds: tuple[float, ...]
    views: tuple[str, ...]
    unmentioned: str


def class_token(model: Any, pixels: Tensor) -> Tensor:
    """The feature vector of each image, [B, 3, H, W] → [B, D]; the mean of the grid of a convolutional network."""
    found: Tensor = model(pixels).last_hidden_state[:, 0]
    return found


def mean_by_study(vectors: Tensor, owner: Tensor, count: int) -> Tensor:
    """Mean vector of the images of each study: [M, D], study of each image [M] → [count, D]."""
    import torch

    sums = vectors.new_zeros(count, vectors.shape[1]).index_add(0, owner, vectors)
    images = torch.bincount(owner, minlength=count).clamp(min=1)
    return sums / images[:, None].to(vectors.dtype)


def save_head(folder: Path, head: Any, labels: HeadLabels) -> None:
    """Write the head beside the vision encoder."""
    from safetensors.torch import save_file

    save_file({name: value.detach().cpu().contiguous() for name, value in head.state_dict().items()}, folder / HEAD)
    write_json(folder / LABELS, vars(labels))


class FindingClassifier:
    """An encoder of `train encoder --objective findings` with its head, in evaluation mode."""

    def __init__(self, name: str, loading: LoadSettings, batch_size: int = 32) -> None:
        """Open a run or its checkpoint.

        Raises:
            DataError: When the folder has no label head.
        """
        import torch
        from safetensors.torch import load_file

        from cxrlab.models.hf.checkpoint import device_of
        from cxrlab.models.hf.pixels import pixel_path

        folder = folder_of(name)
        if not (folder / HEAD).is_file() or not (folder / LABELS).is_file():
            raise DataError(
                f"{folder} has no label head ({HEAD}); name a result of `cxrlab train encoder --objective findings`."
            )
        found: dict[str, Any] = read_json(folder / LABELS)
        self.labels = HeadLabels(**{**found, **{key: tuple(found[key]) for key in ("names", "log_odds", "views")}})
        opened = load_vision_encoder(name)
        self.device = device_of(loading)
        self.model = opened.model.requires_grad_(False).to(self.device).eval()
        stored = load_file(folder / HEAD)
        if stored["weight"].shape != (len(self.labels.names), opened.model.config.hidden_size):
            raise DataError(f"{folder / HEAD} does not fit {LABELS} and the encoder beside it; copy the folder again.")
        self.weight, self.bias = (stored[key].to(self.device) for key in ("weight", "bias"))
        self.prior = torch.tensor(self.labels.log_odds, device=self.device)
        self.pixels = pixel_path(str(opened.model.config.model_type), opened.image_processor)
        self._batch = BatchSize(batch_size)

    def logits(self, studies: Sequence[Sequence[Any]]) -> Tensor:
        """Logits [N, L] with the training's share of positives, for the images of each study; differentiable."""
        import torch

        from cxrlab.models.hf.inputs import as_images

        images = as_images([image for study in studies for image in study], self.device)
        owner = torch.tensor([place for place, study in enumerate(studies) for _ in study], device=self.device)
        vectors = class_token(self.model, self.pixels.inputs(images)["pixel_values"])
        found: Tensor = mean_by_study(vectors, owner, len(studies)) @ self.weight.T + self.bias + self.prior
        return found

    def probabilities(self, studies: Sequence[Sequence[Image]]) -> NDArray[np.float64]:
        """Probabilities [N, L] of the labels; every study has at least one image."""
        import torch

        with torch.inference_mode():
            rows = self._batch.map(studies, lambda some: list(self.logits(some).double().sigmoid().cpu().numpy()))
        return np.stack(rows) if rows else np.zeros((0, len(self.labels.names)))
