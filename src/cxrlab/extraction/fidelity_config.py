"""Which metrics a copy is measured by."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.config import MetricResources

METRICS = (
    "findings.f1",
    "findings.f1.side",
    "rougeL:coco",
    "bleu4:coco",
    "chexpert14.micro.f1:uncertain-positive",
    "chexpert14.macro.f1:uncertain-positive",
    "errors.significant",
    "green:rules",
    "crimson:rules",
)


@dataclass(frozen=True)
class FidelityConfig:
    """How a copy is measured.

    Args:
        metrics: Names, patterns (bleu*) or groups (coco) of metrics; what the extras make possible comes on top.
        section: Section of the reference report; several joined with +.
        swaps: Swaps of the permutation test behind each p.
        seed: Decides resamples and swaps.
        extras: Graphs and weights of yours, for RadGraph, BERTScore and CheXbert.
    """

    metrics: tuple[str, ...] = METRICS
    section: str = "findings"
    swaps: int = 10_000
    seed: int = 7
    extras: MetricResources = MetricResources()

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ConfigError(f"metrics is empty; name at least one, such as {METRICS[0]}.")
        for name, least in (("swaps", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not usable; give a whole number of at least {least}."
                )
