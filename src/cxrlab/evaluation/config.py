"""Settings of the evaluation room: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, nearest
from cxrlab.core.records import SPLITS


@dataclass(frozen=True)
class GenerateConfig:
    """A report from one model for every study of a split.

    Args:
        model: Name of the model, such as stub:normal or retrieval:corpora/phantom.
        data: Folder of the corpus.
        split: train, val or test.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        seed: Decides which studies are drawn, and which are shown as examples.
        batch_size: Films given to the model at once.
        examples: Studies whose film and reference are kept in the run folder for a page.
        allow_missing: Finish although some studies have no readable frontal film; they stay without a prediction.
    """

    model: str
    data: Path
    split: str = "test"
    n: int | None = None
    seed: int = 7
    batch_size: int = 16
    examples: int = 8
    allow_missing: bool = False

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(f"split={self.split!r} is unknown.{nearest(self.split, SPLITS)} Use {', '.join(SPLITS)}.")
        for name, least in (("n", 1), ("seed", 0), ("batch_size", 1), ("examples", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {least}.")
