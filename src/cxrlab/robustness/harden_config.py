"""Settings of hardening; none of this imports torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.attacks.config import Budget, parse_eps
from cxrlab.core.endpoints import connection_operational_fields
from cxrlab.core.errors import ConfigError
from cxrlab.models.load_settings import LoadSettings

# Settings that may differ when a run is continued: they change what is kept on the way, not the result.
OPERATIONAL = ("save_every", "cache", *connection_operational_fields("loading.connection"))


@dataclass(frozen=True)
class HardenConfig:
    """Adversarial fine-tuning of a vision encoder: attacked images should look to it as clean ones did.

    Args:
        model: A report model or contrastive encoder with weights: hf:FOLDER (an adapter is merged) or builtin:NAME.
        data: Corpus folder; images alone are learnt from, no report is read.
        split: Whose images are learnt from.
        n: Number of images, drawn with the seed; all when left out.
        eps: Largest change of a pixel of the image at the size that the vision encoder takes, such as 4/255.
        attack_steps: Gradient steps of the attack inside each step of learning.
        learning_rate: The highest one: it rises over the first twentieth of the steps and falls to 0 along a cosine.
            A vision encoder of hundreds of millions of weights wants less, about 1e-5.
        epochs: Passes over the images.
        steps: Steps of learning in place of epochs.
        batch_size: Images at once.
        clean_weight: What the features of clean images count beside those of attacked ones: how firmly they must stay.
        measure_n: Images of the val split on which the vision encoder is measured before and after; 0 measures nothing.
        measure_steps: Gradient steps of the attack that measures.
        log_every: Steps between lines of history.jsonl.
        save_every: Steps between checkpoints that a stopped run goes on from.
        seed: Decides images, their order and every start of the attack.
        cache: Folder for decoded images, may be shared between runs; RUN/cache when left out.
        loading: Where the encoder runs, and in dtype the precision of the written weights, float32 for auto; they are
            learnt in float32 whatever it says.
    """

    model: str
    data: Path
    split: Literal["train"] = "train"
    n: int | None = None
    eps: str = "4/255"
    attack_steps: int = 5
    learning_rate: float = 1e-4
    epochs: int = 10
    steps: int | None = None
    batch_size: int = 16
    clean_weight: float = 1.0
    measure_n: int = 64
    measure_steps: int = 20
    log_every: int = 10
    save_every: int = 50
    seed: int = 7
    cache: Path | None = None
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        counts = ("n", "attack_steps", "epochs", "steps", "batch_size", "measure_steps", "log_every", "save_every")
        least = {**dict.fromkeys(counts, 1), "measure_n": 0, "seed": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {lowest}.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError(f"learning_rate={self.learning_rate} is not usable; give a number above 0.")
        if not (math.isfinite(self.clean_weight) and self.clean_weight >= 0):
            raise ConfigError(f"clean_weight={self.clean_weight} is not usable; give a number of at least 0.")
        if self.budget.eps == 0:
            raise ConfigError("eps=0 leaves nothing to harden against; give a radius such as 4/255.")

    @property
    def budget(self) -> Budget:
        """The ball around each image."""
        return parse_eps(self.eps)
