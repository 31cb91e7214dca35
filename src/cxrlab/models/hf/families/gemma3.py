"""Gemma 3: one image size, its patches pooled into a square of fixed size."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cxrlab.models.hf.families import Family, FeatureSource
from cxrlab.models.hf.pixels import Plain


class WholeImage(Plain):
    """The image processor can add crops to the image; Gemma 3's processor does not use them by default."""

    call_settings = MappingProxyType({"do_pan_and_scan": False})


class Gemma3(Family):
    """Image tokens attend to each other in both directions."""

    model_types = ("gemma3",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    pixel_paths = MappingProxyType({"Gemma3ImageProcessor": WholeImage})
    has_grid = True

    def grid_shape(self, config: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """A square of pooled patches."""
        super().grid_shape(config, inputs)  # refuses several tiles
        side = round(float(config.mm_tokens_per_image) ** 0.5)
        return side, side
