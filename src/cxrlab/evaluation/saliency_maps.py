"""Attention and gradient maps of parts of a report, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import Span
from cxrlab.models.hf.families import Grid

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image, ImageToText
    from cxrlab.models.hf.model import HfModel
    from cxrlab.models.hf.saliency import Gradient

Array = NDArray[np.float32]
Part = Sequence[Span]


@dataclass(frozen=True, eq=False)
class PartMaps:
    """One part of a report."""

    # Name of a map → its values, at least 0: [rows, columns] of the grid for attention, [H, W] of the image for
    # gradients, [layers, heads, rows, columns] for the sheet.
    values: Mapping[str, Array]
    grid: Grid | None = None  # where the image tokens lie on the image; None when they form no grid
    image_share: float | None = None  # share of the attention on the image, mean over layers, heads and tokens, 0 to 1
    log_probability: float | None = None  # of the part's tokens; None without gradient maps

    def painted(self, name: MapName, height: int, width: int) -> Array:
        """A map over the image, [H, W]."""
        values = self.values[name.text]
        return self.grid.paint(values, height, width) if name.of_attention and self.grid is not None else values


def check_maps_available(model: ImageToText, names: Sequence[MapName]) -> HfModel:
    """The model, if it can compute these maps; `ConfigError` otherwise, also for a layer that it does not have."""
    capabilities = model.capabilities
    for name in names:
        if not (capabilities.attention if name.of_attention else capabilities.gradients):
            what = "attention on one grid of the image" if name.of_attention else "gradients"
            raise ConfigError(
                f"'{model.name}' gives no {what}, which the map '{name.text}' needs; "
                + ("ask for --maps gradient." if capabilities.gradients else "name a checkpoint, such as hf:FOLDER.")
            )
    hf_model = cast("HfModel", model)
    if any(name.layer is not None for name in names):
        count = count_layers(hf_model)
        for name in names:
            resolve_layer(name, count)
    return hf_model


def count_layers(model: HfModel) -> int:
    """Layers of the language model."""
    return int(model.model.config.get_text_config().num_hidden_layers)


def compute_part_maps(
    model: HfModel,
    image: Image,
    report: str,
    parts: Sequence[Part],
    names: Sequence[MapName],
    indication: str | None = None,
    smooth: float = 0.0,
) -> Iterator[PartMaps]:
    """The maps of each part, one part after the other: two forward passes in all, and one backward pass per part.

    An integrated gradient costs eight of both per part. The first pass runs at once, so that a model without a grid
    raises before anything is written.

    Args:
        model: See `check_maps_available`.
        image: Image [H, W] or [H, W, 3] in [0, 1].
        report: The model's own or any other.
        parts: Spans of each part in the text of `written_text`.
        indication: As it was given when the report was generated.
        smooth: Standard deviation of the blur of gradient maps, as a share of the image's longer side.
    """
    from cxrlab.models.hf.saliency import gradients, image_grid, integrated, report_attention, smoothed

    of_attention = [name for name in names if name.of_attention]
    of_pixels = [name for name in names if not name.of_attention]
    looked = report_attention(model, image, report, indication) if of_attention else None
    usual = looked.usual() if looked is not None else None
    grid = looked.grid if looked is not None else image_grid(model, image)
    slopes = gradients(model, image, report, parts, indication) if of_pixels else None

    def each(spans: Part) -> PartMaps:
        values: dict[str, Array] = {}
        share = None
        if looked is not None and usual is not None:
            attention = looked.of(spans)
            for name in of_attention:
                values[name.text] = attention if name.text == SHEET else reduce_attention(name, attention, usual)
            share = float(attention.sum(axis=(2, 3)).mean())
        slope = next(slopes) if slopes is not None else None
        for name in of_pixels:
            if name.text == INTEGRATED:
                signed = integrated(model, image, report, spans, indication)
            else:
                at_image = cast("Gradient", slope).values
                signed = at_image * image if name.text == INPUT_GRADIENT else at_image
            flat = signed if signed.ndim == 2 else signed.sum(axis=2)
            values[name.text] = smoothed(np.abs(flat), smooth * max(flat.shape))
        ordered = {name.text: values[name.text] for name in names}
        return PartMaps(ordered, grid, share, None if slope is None else slope.log_probability)

    return map(each, parts)


SHEET, MAX_MEAN, GRADIENT, INPUT_GRADIENT = "sheet", "max-mean", "gradient", "input-gradient"
INTEGRATED = "integrated-gradient"
GRADIENTS = (GRADIENT, INPUT_GRADIENT, INTEGRATED)
RELATIVE = "relative:"
# Over layers, then over heads.
REDUCTIONS = (MAX_MEAN, "mean-mean", "mean-max", "max-max")
EXAMPLES = ("layer:-1", *REDUCTIONS, "relative:layer:-1", "relative:max-mean", SHEET, *GRADIENTS)
_LAYER = re.compile(r"layer:(-?\d+)")


@dataclass(frozen=True)
class MapName:
    """A parsed name; a relative map is one minus the average over the report."""

    text: str  # the name
    layer: int | None = None  # k of `layer:K`; None for a map over all layers
    relative: bool = False  # whether the average over the report is taken off
    over: tuple[str, str] = ("max", "mean")  # how layers and how heads are reduced, each `mean` or `max`

    @property
    def of_attention(self) -> bool:
        """Whether it needs the attention of the model."""
        return self.text not in GRADIENTS

    @property
    def file(self) -> str:
        """The name as part of a file name."""
        return self.text.replace(":", "-")


def parse_map(text: str) -> MapName:
    """The parts of a name; another one is a `ConfigError` with the nearest."""
    bare = text.removeprefix(RELATIVE)
    relative = bare != text
    if bare in REDUCTIONS:
        layers, heads = bare.split("-")
        return MapName(text, relative=relative, over=(layers, heads))
    if not relative and bare in (SHEET, *GRADIENTS):
        return MapName(text)
    found = _LAYER.fullmatch(bare)
    if found is None or int(found[1]) == 0:
        raise ConfigError(
            f"there is no map '{text}'.{did_you_mean(text, EXAMPLES)} There are: {', '.join(EXAMPLES)}; "
            "layers count from 1, or from -1 backwards."
        )
    return MapName(text, int(found[1]), relative)


def reduce_attention(name: MapName, attention: Array, usual: Array) -> Array:
    """One map [rows, columns] from the attention [layers, heads, rows, columns] of a word and of the average token."""
    over_layers, over_heads = name.over

    def reduced(values: Array, over: str, axis: int) -> Array:
        found: Array = values.mean(axis=axis) if over == "mean" else values.max(axis=axis)
        return found

    by_layer = reduced(attention, over_heads, axis=1)
    if name.relative:
        by_layer = np.maximum(by_layer - reduced(usual, over_heads, axis=1), 0.0)
    if name.layer is None:
        return np.asarray(reduced(by_layer, over_layers, axis=0), np.float32)
    return np.asarray(by_layer[resolve_layer(name, len(by_layer))], np.float32)


def resolve_layer(name: MapName, count: int) -> int:
    """Index of the layer of a name among `count`; 0 for a name without a layer."""
    if name.layer is None:
        return 0
    if not 1 <= abs(name.layer) <= count:
        raise ConfigError(
            f"map '{name.text}' asks for layer {name.layer} of a model that has {count}; give 1 to {count}."
        )
    return name.layer - 1 if name.layer > 0 else count + name.layer
