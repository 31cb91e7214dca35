"""Settings of the studies: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cxrlab.core.errors import ConfigError

TourSize = Literal["quick", "default", "full"]


@dataclass(frozen=True)
class TourConfig:
    """The whole chain on phantoms.

    Args:
        quick: Fewer and smaller images: a look at every step, in seconds; what is trained has learnt nothing.
        full: More images, longer training, more queries: narrower intervals, a better model, three times the time.
        seed: The same seed gives the same images and reports.
    """

    quick: bool = False
    full: bool = False
    seed: int = 7

    def __post_init__(self) -> None:
        if self.quick and self.full:
            raise ConfigError(
                "--quick and --full exclude each other; give one of them, or neither for the default tour."
            )
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} is not usable; give a whole number of at least 0.")

    @property
    def size(self) -> TourSize:
        """Which of the three tours."""
        return "quick" if self.quick else "full" if self.full else "default"
