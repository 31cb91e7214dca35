"""Settings of detection: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SPLITS
from cxrlab.extraction.detection.base import DETECTORS
from cxrlab.extraction.detection.false_alarm_rates import min_scores_for_bound
from cxrlab.models.load_settings import LoadSettings


@dataclass(frozen=True)
class DetectorSettings:
    """How often detectors may be wrong about benign traffic, and how they look at it.

    Args:
        image_bound: Share of benign images that may be flagged, at most, with 95 % confidence; needs about 4.5/bound
            images, of which two thirds set the threshold.
        account_bound: Share of benign accounts that may ring the alarm.
        account_queries: Queries after which a watch on an account begins anew; the bound by account is for so many.
        accounts: Benign accounts drawn to set a threshold, and again to measure false alarms on held-out images.
        window: Queries that mmd compares with benign ones at a time.
        reference: Benign images that mmd compares with, at most.
        least: Distances that prada waits for.
        planes: Random planes whose sides are the cells of coverage; 2^planes cells.
    """

    image_bound: float = 0.005
    account_bound: float = 0.01
    account_queries: int = 100
    accounts: int = 200
    window: int = 32
    reference: int = 500
    least: int = 30
    planes: int = 12

    def __post_init__(self) -> None:
        for name in ("image_bound", "account_bound"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is no share; give a number above 0 and below 1.")
        lowest = {"account_queries": 12, "accounts": 1, "window": 4, "reference": 10, "least": 6, "planes": 1}
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number of at least {low}.")
        if self.planes > 62:
            raise ConfigError(f"planes={self.planes} gives more cells than can be numbered; give at most 62.")
        for name in ("window", "least"):
            if getattr(self, name) >= self.account_queries:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is never reached in an account of {self.account_queries} queries; "
                    f"give {name}={self.account_queries - 1} or less, or account_queries={getattr(self, name) + 1}."
                )
        if self.accounts < min_scores_for_bound(self.account_bound):
            raise ConfigError(
                f"{self.accounts} benign accounts cannot bound false alarms by {self.account_bound}; "
                f"give accounts={min_scores_for_bound(self.account_bound)} or more, or a higher account_bound."
            )


@dataclass(frozen=True)
class DetectConfig:
    """How soon a stream of queries is recognised as an attempt to copy the model.

    Thresholds come from benign images alone; no detector ever sees an attack before it is measured.

    Args:
        benign: Folder of a corpus whose images stand for honest traffic.
        stream: Run folders of extractions, whose ledgers hold what was asked; or corpora, asked image by image.
        detectors: Any of prada, mmd, coverage (by account), chest-gate, perturbation (by image).
        encoder: Contrastive encoder that turns images into vectors, such as builtin:encoder or hf:FOLDER; pixels takes
            small pictures as vectors, none does without, which leaves the detectors by image.
        calibrate: Splits of the corpus that thresholds are set on.
        held_out: Split on which false alarms are measured.
        n: Images drawn with the seed from the splits to calibrate, and as many from the held-out one, at most; all when
            left out.
        metric: Quality of the copy that is told beside the moment of detection.
        batch_size: Images that are embedded at once.
        seed: Decides images, accounts and planes.
        detector: Bounds and sizes.
        loading: How the encoder is loaded.
    """

    benign: Path
    stream: tuple[Path, ...] = ()
    detectors: tuple[str, ...] = ("prada", "mmd", "coverage", "chest-gate", "perturbation")
    encoder: str = "builtin:encoder"
    calibrate: tuple[str, ...] = ("train", "val")
    held_out: str = "test"
    n: int | None = 3000
    metric: str = "findings.f1"
    batch_size: int = 32
    seed: int = 7
    detector: DetectorSettings = DetectorSettings()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        for setting, given, known in (
            ("detectors", self.detectors, DETECTORS.names()),
            ("calibrate", self.calibrate, SPLITS),
            ("held_out", (self.held_out,), SPLITS),
        ):
            for name in given:
                if name not in known:
                    raise ConfigError(f"{setting} holds '{name}', which is unknown.{did_you_mean(name, known)} "
                                      f"There are: {', '.join(known)}.")  # fmt: skip
            if not given or len(set(given)) < len(given):
                raise ConfigError(f"{setting} is empty or names something twice; name each once.")
        if self.held_out in self.calibrate:
            raise ConfigError(
                f"calibrate={','.join(self.calibrate)} sets thresholds on the split held_out={self.held_out}, which "
                "measures how well they hold; take it out of the first, or name another as the second."
            )
        for name, low in (("n", 1), ("batch_size", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")
