"""Maps of parts of a report: where a model looked, and which pixels it hung on, when it wrote them."""

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
    from cxrlab.core.protocols import Image, ImageToText
    from cxrlab.models.hf.model import HfModel
    from cxrlab.models.hf.saliency import Gradient, ReportAttention

Array = NDArray[np.float32]
Part = Sequence[Span]


@dataclass(frozen=True, eq=False)
class PartMaps:
    """One part of a report.

    Args:
        values: Name of a map → its values, at least 0: [rows, columns] of the grid for attention, [H, W] of the image
            for gradients, [layers, heads, rows, columns] for the sheet.
        grid: Where the image tokens lie on the image; None when they are no grid.
        image_share: Share of the attention that went to the image, mean over layers, heads and tokens, 0 to 1.
        log_probability: Of the part's tokens; None when no gradient was asked for.
    """

    values: Mapping[str, Array]
    grid: Grid | None = None
    image_share: float | None = None
    log_probability: float | None = None

    def painted(self, name: MapName, height: int, width: int) -> Array:
        """A map over the image, [H, W]."""
        values = self.values[name.text]
        return self.grid.paint(values, height, width) if name.of_attention and self.grid is not None else values


def check_maps_available(model: ImageToText, names: Sequence[MapName]) -> HfModel:
    """The model, if it can give these maps; refused at the door otherwise, and so is a layer that it does not have."""
    able = model.capabilities
    for name in names:
        if not (able.attention if name.of_attention else able.gradients):
            what = "attention on one grid of the image" if name.of_attention else "gradients"
            raise ConfigError(
                f"'{model.name}' gives no {what}, which the map '{name.text}' needs; "
                + ("ask for --maps gradient." if able.gradients else "name a checkpoint, such as hf:FOLDER.")
            )
    able_one = cast("HfModel", model)
    if any(name.layer is not None for name in names):
        count = count_layers(able_one)
        for name in names:
            resolve_layer(name, count)
    return able_one


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
    """The maps of each part, one part after the other: two forward passes in all, and one backward a part.

    An integrated gradient costs eight of both a part.

    The first pass is run at once, so that a model without a grid is refused before anything is written.

    Args:
        model: See `explainable`.
        image: Image [H, W] or [H, W, 3] in [0, 1].
        report: The words, the model's own or others.
        parts: Spans of each part, counted in `written_text`.
        names: Which maps.
        indication: As it was given when the report was written.
        smooth: Deviation of the blur of gradient maps, in shares of the image's longer side.
    """
    from cxrlab.models.hf.saliency import gradients, image_grid, integrated, report_attention

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
            share = _attended(values, looked, usual, spans, of_attention)
        slope = next(slopes) if slopes is not None else None
        for name in of_pixels:
            if name.text == INTEGRATED:
                signed = integrated(model, image, report, spans, indication)
            else:
                at_image = cast("Gradient", slope).values
                signed = at_image * image if name.text == INPUT_GRADIENT else at_image
            values[name.text] = _pixel_map(signed, smooth)
        ordered = {name.text: values[name.text] for name in names}
        return PartMaps(ordered, grid, share, None if slope is None else slope.log_probability)

    return map(each, parts)


def _attended(
    values: dict[str, Array], looked: ReportAttention, usual: Array, spans: Part, names: Sequence[MapName]
) -> float:
    """Puts the attention maps of a part into `values`; returns how much of the attention went to the image."""
    attention = looked.of(spans)
    for name in names:
        values[name.text] = attention if name.text == SHEET else reduce_attention(name, attention, usual)
    return float(attention.sum(axis=(2, 3)).mean())


def _pixel_map(values: Array, smooth: float) -> Array:
    """Sizes [H, W] of signed values in the shape of the image, smoothed; colours are added up before."""
    from cxrlab.models.hf.saliency import smoothed

    flat = values if values.ndim == 2 else values.sum(axis=2)
    return smoothed(np.abs(flat), smooth * max(flat.shape))


SHEET, MAX_MEAN, GRADIENT, INPUT_GRADIENT = "sheet", "max-mean", "gradient", "input-gradient"
INTEGRATED = "integrated-gradient"
GRADIENTS = (GRADIENT, INPUT_GRADIENT, INTEGRATED)
RELATIVE = "relative:"
EXAMPLES = ("layer:-1", MAX_MEAN, "relative:layer:-1", "relative:max-mean", SHEET, *GRADIENTS)
_LAYER = re.compile(r"layer:(-?\d+)")


@dataclass(frozen=True)
class MapName:
    """A name in parts.

    Args:
        text: As a user writes it.
        layer: Of `layer:K`; None for the others.
        relative: Whether the average over the report is taken off.
    """

    text: str
    layer: int | None = None
    relative: bool = False

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
    if bare == MAX_MEAN or (not relative and bare in (SHEET, *GRADIENTS)):
        return MapName(text, relative=relative)
    found = _LAYER.fullmatch(bare)
    if found is None or int(found[1]) == 0:
        raise ConfigError(
            f"there is no map '{text}'.{did_you_mean(text, EXAMPLES)} There are: {', '.join(EXAMPLES)}; "
            "layers count from 1, or from -1 backwards."
        )
    return MapName(text, int(found[1]), relative)


def reduce_attention(name: MapName, attention: Array, usual: Array) -> Array:
    """One map [rows, columns] from the attention [layers, heads, rows, columns].

    Args:
        name: `layer:K` or `max-mean`, relative or not.
        attention: Of a word.
        usual: The same for the average token of its report.
    """
    means = attention.mean(axis=1)
    if name.relative:
        means = np.maximum(means - usual.mean(axis=1), 0.0)
    if name.layer is None:
        return np.asarray(means.max(axis=0), np.float32)
    return np.asarray(means[resolve_layer(name, len(means))], np.float32)


def resolve_layer(name: MapName, count: int) -> int:
    """Where the layer of a name stands among `count`, from 0; 0 for a name without a layer."""
    if name.layer is None:
        return 0
    if not 1 <= abs(name.layer) <= count:
        raise ConfigError(
            f"map '{name.text}' asks for layer {name.layer} of a model that has {count}; give 1 to {count}."
        )
    return name.layer - 1 if name.layer > 0 else count + name.layer
