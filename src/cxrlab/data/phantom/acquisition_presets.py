"""How images are made: the standard machine, and one in another hospital.

`shifted` has other builds, other exposure, more noise and another marker: it tests how a model that was
trained on `standard` generalises to another site.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from cxrlab.core.errors import UnknownName, did_you_mean


@dataclass(frozen=True)
class Preset:
    """Ranges are (low, high) of a uniform draw at each visit."""

    build: float = 1.0  # size of the bodies against the average
    depth: float = 1.0  # length of the lungs against the average
    rib_gap: float = 1.0  # distance of ribs against the average
    bulk: float = 1.0  # soft tissue against the average
    heart_axis: float = 0.0  # added share of the heart to the left
    exposure: tuple[float, float] = (0.9, 1.12)  # gain of the image; larger is whiter
    gamma: tuple[float, float] = (0.92, 1.1)  # shape of the tone curve; below 1 lifts the dark parts
    noise: tuple[float, float] = (0.008, 0.016)  # standard deviation of quantum noise at mid grey
    blur_mm: tuple[float, float] = (0.5, 1.1)  # standard deviation of the focal blur
    scatter: tuple[float, float] = (0.06, 0.14)  # share of each pixel that is spread widely
    turn: tuple[float, float] = (-2.5, 2.5)  # degrees of rotation
    shift_mm: tuple[float, float] = (-7.0, 7.0)  # sideways and vertical displacement
    zoom: tuple[float, float] = (0.97, 1.04)  # magnification
    collimation: float = 0.15  # chance of a dark border
    grid: float = 0.0  # strength of faint grid lines
    marker_corner: str = "top"  # corner of the side marker: "top" or "bottom"


PRESETS: MappingProxyType[str, Preset] = MappingProxyType(
    {
        "standard": Preset(),
        "shifted": Preset(
            build=0.93,
            depth=0.95,
            rib_gap=1.08,
            bulk=1.12,
            heart_axis=-0.03,
            exposure=(0.72, 0.9),
            gamma=(0.78, 0.9),
            noise=(0.018, 0.03),
            blur_mm=(1.0, 1.8),
            scatter=(0.14, 0.24),
            turn=(-6.0, 6.0),
            shift_mm=(-12.0, 12.0),
            zoom=(0.9, 0.98),
            collimation=0.5,
            grid=0.012,
            marker_corner="bottom",
        ),
    }
)


def preset(name: str) -> Preset:
    """The preset of this name."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UnknownName(
            f"'{name}' is not a renderer preset.{did_you_mean(name, PRESETS)} There are: {', '.join(PRESETS)}."
        ) from None
