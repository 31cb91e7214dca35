"""Settings of attacks, the radius (`Budget`), and the table of attacks."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from cxrlab.core.config import check_at_least
from cxrlab.core.errors import ConfigError
from cxrlab.core.registry import Registry


@dataclass(frozen=True)
class AttackSettings:
    """How hard an attack tries; the radius is given separately.

    Args:
        steps: Gradient steps of pgd, apgd and mi-fgsm.
        step_size: Length of a step of pgd as a share of ε; mi-fgsm takes ε / steps, apgd adapts its own.
        restarts: Number of starts of pgd and apgd; the best image of all is kept.
        random_start: Start pgd and apgd at a random image of the ball, or with false at the clean image. Given initial
            images take precedence.
        keep: last keeps the last step, as pgd is published; best keeps the step with the highest loss.
        momentum: Decay of the sum of gradients of mi-fgsm.
        early_exit: Stop attacking an image as soon as the attack succeeds on it. False goes on to the end of the budget,
            which shows how far confidence can be pushed.
        queries: Images that a black-box attack may submit for each image.
        universal_images: Images of another split that a universal perturbation is made from.
        universal_epochs: Passes over these images.
    """

    steps: int = 10
    step_size: float = 0.25
    restarts: int = 1
    random_start: bool = True
    keep: Literal["last", "best"] = "last"
    momentum: float = 1.0
    early_exit: bool = False
    queries: int = 200
    universal_images: int = 64
    universal_epochs: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, steps=1, restarts=1, queries=1, universal_images=1, universal_epochs=1)
        if not (math.isfinite(self.step_size) and 0 < self.step_size <= 2):
            raise ConfigError(
                f"step_size={self.step_size:g} is not usable; it is a share of ε between 0 and 2, such as 0.25."
            )
        if not (math.isfinite(self.momentum) and self.momentum >= 0):
            raise ConfigError(f"momentum={self.momentum:g} is not usable; give a number of at least 0.")


Norm = Literal["linf", "l2"]
_FRACTION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Budget:
    """A ball around an image."""

    # Radius. For `linf` the most that a single pixel may change, where black is 0 and white 1; for `l2` the Euclidean
    # length of the whole change
    eps: float
    norm: Norm = "linf"
    label: str = ""  # As a user typed it (`2/255`); it names the condition in every file

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


ATTACKS = Registry(
    "attack",
    {
        "fgsm": "cxrlab.attacks.gradient:Fgsm",
        "pgd": "cxrlab.attacks.gradient:Pgd",
        "mi-fgsm": "cxrlab.attacks.gradient:MiFgsm",
        "apgd": "cxrlab.attacks.gradient:Apgd",
        "ensemble": "cxrlab.attacks.ensemble:Ensemble",
        "square": "cxrlab.attacks.gradient_free:Square",
        "square-report": "cxrlab.attacks.gradient_free:SquareByReport",
        "random": "cxrlab.attacks.gradient_free:RandomSearch",
        "random-report": "cxrlab.attacks.gradient_free:RandomSearchByReport",
        "universal": "cxrlab.attacks.gradient:Universal",
        "noise": "cxrlab.attacks.gradient_free:Noise",
    },
)
