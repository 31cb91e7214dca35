"""A dual encoder with BiomedCLIP's text side: first token instead of BERT's pooler, and a two-layer projection.

Its own model type keeps other loaders from opening such a folder with a randomly initialised projection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import VisionTextDualEncoderConfig, VisionTextDualEncoderModel

from cxrlab.core.files import read_json

MODEL_TYPE = "projected-dual-encoder"


class ProjectedDualEncoderConfig(VisionTextDualEncoderConfig):
    """Config with two more settings of the text side.

    Args:
        text_hidden: Width between the two layers of the text projection; 0 for a single layer.
        text_pooling: `pooler` for BERT's own, `first` for the unchanged first token.
    """

    model_type = MODEL_TYPE
    text_hidden: int = 0
    text_pooling: str = "pooler"


class FirstToken(nn.Module):
    """Replaces BERT's pooler: the unchanged first token, [B, T, D] → [B, D]."""

    def forward(self, hidden: Tensor) -> Tensor:
        """The first token of every text."""
        return hidden[:, 0]


class ProjectedDualEncoder(VisionTextDualEncoderModel):
    """A `VisionTextDualEncoderModel` with the text side of its config."""

    config_class = ProjectedDualEncoderConfig

    def __init__(self, config: Any = None, vision_model: Any = None, text_model: Any = None) -> None:
        super().__init__(config=config, vision_model=vision_model, text_model=text_model)
        if self.config.text_pooling == "first":
            self.text_model.pooler = FirstToken()
        if self.config.text_hidden:
            self.text_projection: Any = nn.Sequential(
                nn.Linear(self.text_embed_dim, self.config.text_hidden, bias=False),
                nn.GELU(),
                nn.Linear(self.config.text_hidden, self.projection_dim, bias=False),
            )


def dual_encoder_class(folder: Path) -> Any:
    """The class that opens an encoder folder, by its config.json."""
    found = read_json(folder / "config.json")
    projected = isinstance(found, dict) and found.get("model_type") == MODEL_TYPE
    return ProjectedDualEncoder if projected else VisionTextDualEncoderModel
