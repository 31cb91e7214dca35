"""How much images are varied in training; the variation itself is in `training/augment.py`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cxrlab.core.errors import ConfigError


@dataclass(frozen=True)
class Augmentation:
    """Largest change of each kind; all 0 leaves images as they are.

    An image is never mirrored: left and right would change places while the report keeps them.

    Args:
        shift: Sideways and up or down, as a share of the image's side.
        scale: Larger or smaller, as a share.
        rotation: Degrees to either side.
        brightness: Added or taken off, where the image spans 0 to 1.
        contrast: More or less, as a share, about middle grey.
        gamma: Exponent between 1 / (1 + gamma) and 1 + gamma.
        noise: Standard deviation of noise on every pixel.
    """

    shift: float = 0.04
    scale: float = 0.05
    rotation: float = 4.0
    brightness: float = 0.05
    contrast: float = 0.1
    gamma: float = 0.2
    noise: float = 0.02

    def __post_init__(self) -> None:
        limits = {"shift": 0.5, "scale": 0.5, "rotation": 45.0, "brightness": 1.0, "contrast": 0.9, "gamma": 4.0}
        for field in fields(self):
            value, most = getattr(self, field.name), limits.get(field.name, 1.0)
            if not 0.0 <= value <= most:
                raise ConfigError(f"{field.name}={value} is not usable; give a number from 0 to {most:g}.")

    @property
    def none(self) -> bool:
        """Whether images stay as they are."""
        return not any(getattr(self, field.name) for field in fields(self))


NONE = Augmentation(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
