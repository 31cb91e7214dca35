"""A report model that sees one pattern only, so that its answers under noise are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from planted_targets import ABSENT, GAIN, PRESENT, SIGN
from torch import Tensor

from cxrlab.core.model_interfaces import Capabilities, Generated


class PatternModel:
    """`planted_targets.Leaning` as a model, with the methods that an audit calls."""

    name, device = "planted:leaning", torch.device("cpu")
    capabilities = Capabilities(gradients=True, batch=True)

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def margin(self, images: Any) -> Tensor:
        radiographs = torch.stack(
            [torch.as_tensor(np.asarray(image) if not isinstance(image, Tensor) else image) for image in images]
        )
        flat = radiographs.reshape(len(radiographs), -1, *SIGN.shape).mean(dim=1)
        return GAIN * (flat * torch.tensor(SIGN, dtype=torch.float32)).mean(dim=(1, 2))

    def yes_margins(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        self.sizes.append(len(images))
        return self.margin(images)

    def yes_margins_of_each(self, images: Any, questions: Sequence[Sequence[str] | str]) -> Tensor:
        return torch.stack([self.yes_margins(images, question) for question in questions], dim=1)

    def probability_of_yes(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        return torch.sigmoid(self.yes_margins(images, questions))

    def losses(self, images: Any, reports: Sequence[str], indications: Sequence[str | None] | None = None) -> Tensor:
        signs = torch.tensor([1.0 if text == PRESENT else -1.0 for text in reports])
        return torch.nn.functional.softplus(-signs * self.margin(images))

    def generate(self, images: Any, indications: Sequence[str | None] | None = None) -> list[Generated]:
        with torch.no_grad():
            return [Generated(PRESENT if margin > 0 else ABSENT) for margin in self.margin(images).tolist()]
