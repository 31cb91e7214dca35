"""A dual encoder whose text side is BiomedCLIP's: another way to read a text off its tokens, and a deeper projection.

`VisionTextDualEncoderModel` takes BERT's own pooler and one matrix. Published encoders of the open_clip family
read the first token as it is and project it by two matrices with a GELU between them. Two modules differ, nothing
else: attributes, methods and outputs are those of the parent. A model type of its own keeps a plain loader from
opening such a folder with a projection that it made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import VisionTextDualEncoderConfig, VisionTextDualEncoderModel

from cxrlab.core.files import read_json

MODEL_TYPE = "projected-dual-encoder"


class ProjectedDualEncoderConfig(VisionTextDualEncoderConfig):
    """That of the parent, and what the text side does.

    Args:
        text_hidden: Numbers between the two matrices of the text projection; 0 for one matrix.
        text_pooling: `pooler` for BERT's own, `first` for the first token as it comes.
    """

    model_type = MODEL_TYPE
    text_hidden: int = 0
    text_pooling: str = "pooler"


class FirstToken(nn.Module):
    """Stands where BERT's pooler stands: [B, T, D] -> [B, D], the first token unchanged."""

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
    """The class that opens an encoder folder: `ProjectedDualEncoder` where its config.json says so, else the plain."""
    found = read_json(folder / "config.json")
    projected = isinstance(found, dict) and found.get("model_type") == MODEL_TYPE
    return ProjectedDualEncoder if projected else VisionTextDualEncoderModel
