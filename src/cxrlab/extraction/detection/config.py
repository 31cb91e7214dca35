"""Settings of detection: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.config import check_at_least, check_choice
from cxrlab.core.errors import ConfigError
from cxrlab.core.records import SPLITS
from cxrlab.extraction.detection.base import DETECTORS
from cxrlab.extraction.detection.false_alarm_rates import min_scores_for_bound
from cxrlab.models.load_settings import LoadSettings


@dataclass(frozen=True)
class DetectorSettings:
    """Bounds on false alarms, and sizes of detectors.

    Args:
        image_bound: Share of benign images that may be flagged, at most, with 95 % confidence; needs about 4.5/bound
            images, of which two thirds set the threshold.
        account_bound: Share of benign accounts that may raise an alarm.
        account_queries: Queries after which the state of an account is reset; the bound per account is for so many.
        accounts: Benign accounts drawn to set a threshold, and again to measure false alarms on held-out images.
        window: Queries that mmd compares with benign ones at a time.
        reference: Benign images that mmd compares with, at most.
        least: Number of distances from which prada computes a score.
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
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a fraction above 0 and below 1.")
        check_at_least(self, account_queries=12, accounts=1, window=4, reference=10, least=6, planes=1)
        if self.planes > 62:
            raise ConfigError(f"planes={self.planes} is not usable; give at most 62.")
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
    """How soon a stream of queries is detected as an attempt to copy the model.

    Thresholds come from benign images alone; no detector sees an attack before it is measured.

    Args:
        benign: Corpus folder whose images stand for benign traffic.
        stream: Run folders of extractions, whose ledgers hold the queries; or corpora, queried image by image.
        detectors: Which detectors to measure; all by default.
        encoder: Contrastive encoder that turns images into vectors, such as builtin:encoder or hf:FOLDER; pixels takes
            small images as vectors; none allows only the detectors per image.
        calibrate: Splits of the corpus on which thresholds are set.
        held_out: Split on which false alarms are measured.
        n: Most images drawn with the seed from the splits to calibrate, and from the held-out one; null takes all.
        metric: Quality of the copy that is reported beside the moment of detection.
        batch_size: Images that are embedded at once.
        seed: Seed of images, accounts and planes.
        detector: Bounds and sizes.
        loading: How the encoder is loaded.
    """

    benign: Path
    stream: tuple[Path, ...] = ()
    detectors: tuple[str, ...] = DETECTORS.names()
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
            for value in given:
                check_choice(setting, value, known)
            if not given or len(set(given)) < len(given):
                raise ConfigError(f"{setting} is empty or names something twice; name each once.")
        if self.held_out in self.calibrate:
            raise ConfigError(
                f"calibrate={','.join(self.calibrate)} sets thresholds on the split held_out={self.held_out}, which "
                "measures how well they hold; take it out of the first, or name another as the second."
            )
        check_at_least(self, n=1, batch_size=1, seed=0)
