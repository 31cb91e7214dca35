"""Names of maps, and from the attention of all layers and heads to one map.

    layer:K              mean over the heads of layer K, counted from 1; layer:-1 is the last
    max-mean             in each cell the largest of those means over the layers
    relative:…           one of both, less what the tokens of the report look at on average, not below 0
    sheet                every layer and head by itself (for looking, not for pointing)
    gradient             size of the gradient of the word's log-probability with respect to each pixel
    input-gradient       the same times the pixel's brightness
    integrated-gradient  what each pixel adds to it on the way from a flat image to this one

Cells that every word looks at alike, whatever it says, are frequent in language models; `relative:` takes them out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, nearest

Array = NDArray[np.float32]

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
            f"there is no map '{text}'.{nearest(text, EXAMPLES)} There are: {', '.join(EXAMPLES)}; "
            "layers count from 1, or from -1 backwards."
        )
    return MapName(text, int(found[1]), relative)


def reduced(name: MapName, attention: Array, usual: Array) -> Array:
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
    return np.asarray(means[layer_index(name, len(means))], np.float32)


def layer_index(name: MapName, count: int) -> int:
    """Where the layer of a name stands among `count`, from 0; 0 for a name without a layer."""
    if name.layer is None:
        return 0
    if not 1 <= abs(name.layer) <= count:
        raise ConfigError(
            f"map '{name.text}' asks for layer {name.layer} of a model that has {count}; give 1 to {count}."
        )
    return name.layer - 1 if name.layer > 0 else count + name.layer
