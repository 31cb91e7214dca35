"""How far an image may be changed: a norm and a radius ε, in units of the pixel range [0, 1]."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from cxrlab.core.errors import ConfigError

Norm = Literal["linf", "l2"]
_FRACTION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Budget:
    """A ball around an image.

    Args:
        eps: Its radius. For `linf` the most that a single pixel may change, where black is 0 and white 1; for `l2` the
            Euclidean length of the whole change.
        norm: linf or l2.
        label: As a user typed it (`2/255`); it names the condition in every file.
    """

    eps: float
    norm: Norm = "linf"
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", f"{self.eps:g}")
        if not (math.isfinite(self.eps) and self.eps >= 0):
            raise ConfigError(f"eps={self.label} is not a radius; give a number of at least 0, such as 2/255.")
        if self.norm == "linf" and self.eps >= 1:
            raise ConfigError(
                f"eps={self.label} would let every pixel become anything: pixels run from 0 to 1, so one grey level is "
                f"1/255. Did you mean {self.eps:g}/255?"
            )


def parse_eps(text: str, norm: Norm = "linf") -> Budget:
    """`2/255` or `0.01` as a budget; anything else, and 8 in place of 8/255, is a `ConfigError`."""
    label = "".join(str(text).split())
    fraction = _FRACTION.fullmatch(label)
    try:
        eps = float(fraction[1]) / float(fraction[2]) if fraction else float(label)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"eps '{text}' is not a number; write it as 2/255 or 0.01.") from None
    # Written out in one way, always with a point or a stroke: a whole number behind an @ is a severity.
    return Budget(eps, norm, label if fraction else repr(eps))
