"""How images are made: the standard machine, and one in another hospital.

`shifted` has other builds, other exposure, more noise and another marker: a model that was trained
on `standard` meets it as it would meet a new site.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from cxrlab.core.errors import UnknownName, did_you_mean


@dataclass(frozen=True)
class Preset:
    """Ranges are (low, high) of a uniform draw at each visit.

    Args:
        build: Size of the bodies against the average.
        depth: Length of the lungs against the average.
        rib_gap: Distance of ribs against the average.
        bulk: Soft tissue against the average.
        heart_axis: Added share of the heart to the left.
        exposure: Gain of the image; larger is whiter.
        gamma: Shape of the tone curve; below 1 lifts the dark parts.
        noise: Standard deviation of quantum noise at mid grey.
        blur_mm: Standard deviation of the focal blur.
        scatter: Share of each pixel that is spread widely.
        turn: Degrees of rotation.
        shift_mm: Sideways and vertical displacement.
        zoom: Magnification.
        collimation: Chance of a dark border.
        grid: Strength of faint grid lines.
        marker_corner: Where the side marker stands: "top" or "bottom".
    """

    build: float = 1.0
    depth: float = 1.0
    rib_gap: float = 1.0
    bulk: float = 1.0
    heart_axis: float = 0.0
    exposure: tuple[float, float] = (0.9, 1.12)
    gamma: tuple[float, float] = (0.92, 1.1)
    noise: tuple[float, float] = (0.008, 0.016)
    blur_mm: tuple[float, float] = (0.5, 1.1)
    scatter: tuple[float, float] = (0.06, 0.14)
    turn: tuple[float, float] = (-2.5, 2.5)
    shift_mm: tuple[float, float] = (-7.0, 7.0)
    zoom: tuple[float, float] = (0.97, 1.04)
    collimation: float = 0.15
    grid: float = 0.0
    marker_corner: str = "top"


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
