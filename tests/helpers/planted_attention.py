"""A model with known attention: one head attends to the brightest patch, the other to all patches equally."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tiny_models import tiny_llava

from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.models.hf.inputs import Encoded
from cxrlab.models.hf.prompting import report_ids
from cxrlab.models.prompts import load_prompts

CELLS, PATCH = 4, 8


class LookingAttention(torch.nn.Module):
    """One layer with two heads: the first attends to the brightest patch, the second to all patches equally."""

    def forward(self, patches: Any, length: int) -> tuple[Any, Any]:
        weights = torch.zeros(1, 2, length, length)
        weights[0, 0, :, int(patches.argmax())] = 0.75
        weights[0, 1, :, : patches.numel()] = 0.5 / patches.numel()
        return patches, weights


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = LookingAttention()
        text = SimpleNamespace(num_hidden_layers=1)
        vision = SimpleNamespace(patch_size=PATCH)
        self.config = SimpleNamespace(model_type="llava", vision_config=vision, get_text_config=lambda: text)

    def get_decoder(self) -> Any:
        return self

    def forward(self, input_ids: Any, pixel_values: Any, use_cache: bool = False) -> Any:
        patches = torch.nn.functional.avg_pool2d(pixel_values[:, :1], PATCH).flatten()
        self.attention(patches, input_ids.shape[1])
        return SimpleNamespace(logits=torch.zeros(1, input_ids.shape[1], 2))


class PlantedModel:
    """The part of a model that saliency maps need; images of 32 x 32 pixels, 4 x 4 patches.

    Args:
        report: Report generated for every image.
        name: Name of the model.
    """

    def __init__(self, report: str, name: str = "planted:one") -> None:
        self.report, self.name = report, name
        self.capabilities = Capabilities(attention=True)
        self.prompts = load_prompts(None)
        whole = SimpleNamespace(size={"height": 32, "width": 32}, do_resize=True, do_center_crop=False)
        self.tokenizer = tiny_llava()[1].tokenizer
        self.processor = tiny_llava()[1]
        self.processor.image_processor = whole
        self.model = _Net()
        self.generated = 0

    def answers(self, images: Sequence[Any], indications: Any = None, decoding: Any = None) -> list[list[Generated]]:
        self.generated += len(images)
        return [[Generated(self.report)] for _ in images]

    def encode(self, images: Sequence[Any], prompts: Sequence[str], reports: Sequence[str] | None = None) -> Encoded:
        report_tokens = report_ids(self.processor, reports[0]) if reports else []
        ids = torch.tensor([[4] * CELLS**2 + [5, 6, 7] + report_tokens])
        image = torch.zeros(ids.shape, dtype=torch.bool)
        image[:, : CELLS**2] = True
        report = torch.zeros(ids.shape, dtype=torch.bool)
        report[:, CELLS**2 + 3 :] = True
        pixels = torch.from_numpy(np.asarray(images[0], np.float32))[None, None].repeat(1, 3, 1, 1)
        return Encoded({"input_ids": ids, "pixel_values": pixels}, report, image)
