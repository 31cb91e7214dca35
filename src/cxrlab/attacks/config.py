"""Settings of attacks; nothing is inherited from a default that a reader cannot see."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cxrlab.core.errors import ConfigError


@dataclass(frozen=True)
class AttackSettings:
    """How hard an attack tries; the radius is given beside it.

    Args:
        steps: Gradient steps of pgd, apgd and mi-fgsm.
        step_size: Length of a step of pgd as a share of ε; mi-fgsm takes ε / steps, apgd finds its own.
        restarts: Times that pgd and apgd begin anew; the best image of all is kept.
        random_start: Begin pgd and apgd at a random image of the ball; false begins at the clean image. Images that are
            given to begin from go before it.
        keep: last is what pgd is published with; best keeps the step with the highest loss.
        momentum: Decay of the sum of gradients of mi-fgsm.
        early_exit: An image that is broken is left as it is and leaves the batch. False goes on to the end of the
            budget, which shows how far confidence can be pushed.
        queries: Images that a black-box attack may show for each image.
        universal_images: Images of another split that a universal perturbation is made of.
        universal_epochs: Times that it looks at each of them.
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
        for name in ("steps", "restarts", "queries", "universal_images", "universal_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number of at least 1.")
        if not (math.isfinite(self.step_size) and 0 < self.step_size <= 2):
            raise ConfigError(
                f"step_size={self.step_size:g} is not usable; it is a share of ε between 0 and 2, such as 0.25."
            )
        if not (math.isfinite(self.momentum) and self.momentum >= 0):
            raise ConfigError(f"momentum={self.momentum:g} is not usable; give a number of at least 0.")
