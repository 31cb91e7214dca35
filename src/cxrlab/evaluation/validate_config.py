"""Settings of `metrics validate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.core.asking import Asking
from cxrlab.core.errors import ConfigError
from cxrlab.metrics.judging.config import JudgeSettings


@dataclass(frozen=True)
class ValidateConfig:
    """Metrics against judgements that are not theirs.

    Args:
        benchmark: radpref, radjudge or rexval (a folder of theirs), or phantom (made here from the seed).
        root: Folder of the benchmark's files; phantom needs none.
        metrics: Names or groups of metrics, and judges by language models (chexprompt:http://127.0.0.1:8000/v1#MODEL),
            several side by side; the default ones when left out.
        n: Number of cases; of phantom alone.
        tie: Largest difference at which two values count as equal in a ranking; of radjudge alone.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples, and the cases of phantom.
        asking: How the language models are asked that judges stand on.
        judging: Other wordings for judges by language models, and their longest answers.
    """

    benchmark: Literal["radpref", "radjudge", "rexval", "phantom"]
    root: Path | None = None
    metrics: tuple[str, ...] = ()
    n: int = 500
    tie: float = 0.05
    trials: int = 1000
    seed: int = 7
    asking: Asking = Asking()
    judging: JudgeSettings = JudgeSettings()

    def __post_init__(self) -> None:
        if self.root is None and self.benchmark != "phantom":
            raise ConfigError(f"--root is missing; name the folder with the files of {self.benchmark}.")
        for name, least in (("n", 2), ("trials", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not usable; give a whole number of at least {least}."
                )
        if self.tie < 0:
            raise ConfigError(f"tie={self.tie} is not usable; give a difference of at least 0.")
