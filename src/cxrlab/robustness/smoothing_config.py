"""Models that vote over noisy copies of an image, by name: `smoothed:SIGMA:MODEL`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cxrlab.core.errors import ConfigError
from cxrlab.robustness.smoothing import least_copies

SMOOTHED = "smoothed"
_EXAMPLE = f"write it like {SMOOTHED}:0.1:builtin:reporter"


@dataclass(frozen=True)
class SmoothingSettings:
    """How models named smoothed:SIGMA:MODEL vote; SIGMA is the standard deviation of the noise.

    Args:
        copies: Noisy copies of an image that vote on each closed answer.
        attack_copies: The first of them, along whose mean an attack goes.
        alpha: Probability with which a certified answer may be wrong.
        batch_size: Noisy copies that are shown at once.
    """

    copies: int = 100
    attack_copies: int = 8
    alpha: float = 0.001
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha={self.alpha} is not usable; give a probability between 0 and 1, such as 0.001.")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} is not usable; give a whole number of at least 1.")
        if self.copies < least_copies(self.alpha):
            raise ConfigError(
                f"copies={self.copies} cannot tell a majority at alpha={self.alpha:g} even if all agree; use copies >= "
                f"{least_copies(self.alpha)}."
            )
        if not 1 <= self.attack_copies <= self.copies:
            raise ConfigError(
                f"attack_copies={self.attack_copies} is not usable; give a whole number from 1 to copies={self.copies}."
            )


def parse_smoothed(name: str) -> tuple[float, str] | None:
    """SIGMA and MODEL of a name; None for a model that is not smoothed, a `ConfigError` where either is missing."""
    kind, _, rest = name.partition(":")
    if kind != SMOOTHED:
        return None
    text, _, model = rest.partition(":")
    try:
        sigma = float(text)
    except ValueError:
        sigma = math.nan
    if not (math.isfinite(sigma) and sigma > 0):
        raise ConfigError(f"'{name}' has the noise '{text}', which is no number above 0; {_EXAMPLE}.")
    if not model:
        raise ConfigError(f"'{name}' names no model to smooth; {_EXAMPLE}.")
    if model.partition(":")[0] == SMOOTHED:
        raise ConfigError(f"'{name}' smooths a model twice; {_EXAMPLE}.")
    return sigma, model
