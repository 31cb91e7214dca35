"""Settings of the case sampler."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.errors import ConfigError


@dataclass(frozen=True)
class CaseConfig:
    """How many studies are normal and how many findings are hard to see.

    Args:
        normal: Share of studies without any present finding, 0 to 1.
        faint: Share of findings (devices apart) that are faint when they are first seen, 0 to 1; they
            carry the certainty `possible` and are hedged in the text until they grow.
    """

    normal: float = 0.25
    faint: float = 0.05

    def __post_init__(self) -> None:
        for name in ("normal", "faint"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name}={value} is not a share; give a number from 0 to 1.")
