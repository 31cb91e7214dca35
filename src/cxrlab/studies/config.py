"""Settings of the studies: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.errors import ConfigError


@dataclass(frozen=True)
class TourConfig:
    """The whole chain on phantoms.

    Args:
        quick: Fewer and smaller films: a look at every step, in seconds; what is trained has learnt nothing.
        seed: The same seed gives the same films and reports.
    """

    quick: bool = False
    seed: int = 7

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} is not usable; give a whole number of at least 0.")
