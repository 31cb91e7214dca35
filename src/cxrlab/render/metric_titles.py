"""Metrics and attack conditions: their titles, which way is better, and their order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from cxrlab.core.headline_metrics import ARROWS
from cxrlab.render.components import part

FINDINGS, ROUGE = "findings.f1", "rougeL:coco"
CONTROL, WORST, CLEAN = "noise", "worst", "clean"

# Title, better direction ("" where neither is better), and whether the metric lies between 0 and 1.
_METRICS = {
    "closed_questions.accuracy": ("accuracy, closed questions", "higher", True),
    "closed_questions.confidence": ("confidence, closed questions", "", True),
    "closed_questions.truth": ("probability of the truth", "higher", True),
    "closed_questions.brier": ("Brier score", "lower", True),
    "closed_questions.ece": ("calibration error", "lower", True),
    "closed_questions.ece_fixed": ("calibration error, bins of equal width", "lower", True),
    "closed_questions.ece.scaled": ("calibration error after temperature scaling", "lower", True),
    "closed_questions.ece_fixed.scaled": ("the same, bins of equal width", "lower", True),
    "closed_questions.brier.scaled": ("Brier score after temperature scaling", "lower", True),
    "closed_questions.confidence.scaled": ("confidence after temperature scaling", "", True),
    "closed_questions.risk_coverage": ("area under risk and coverage", "lower", True),
    "closed_questions.outside": ("probability outside yes and no", "lower", True),
    "closed_questions.auroc": ("AUROC", "higher", True),
    "reports.accuracy": ("accuracy, reports", "higher", True),
    "report.confidence": ("confidence, report", "", True),
    "report.loss": ("loss of the reference", "lower", False),
    FINDINGS: ("findings F1", "higher", True),
    "findings.f1.side": ("findings F1 with side", "higher", True),
    "findings.f1.full": ("findings F1 with all details", "higher", True),
    ROUGE: ("ROUGE-L", "higher", True),
    "bleu4:coco": ("BLEU-4", "higher", True),
    "bertscore": ("BERTScore", "higher", False),
    "radgraph.simple": ("RadGraph F1", "higher", True),
    "chexpert14.micro.f1:uncertain-positive": ("CheXpert F1, micro", "higher", True),
    "chexpert14.macro.f1:uncertain-positive": ("CheXpert F1, macro", "higher", True),
    "errors.significant": ("significant errors per report", "lower", False),
    "errors.added": ("errors added", "lower", False),
    "green:rules": ("GREEN by rules", "higher", True),
    "crimson:rules": ("CRIMSON by rules", "higher", False),
    "flip_rate": ("reports flipped", "lower", True),
    "flips.normal_to_abnormal": ("normal → abnormal", "lower", True),
    "flips.abnormal_to_normal": ("abnormal → normal", "lower", True),
    "flips.side_swapped": ("side swapped", "lower", True),
    "flips.to_silence": ("report → no finding stated", "lower", True),
    "closed_questions.flips": ("answers flipped", "lower", True),
    "closed_questions.flips.yes_to_no": ("answers yes → no", "lower", True),
    "closed_questions.flips.no_to_yes": ("answers no → yes", "lower", True),
    "confidence": ("confidence", "", True),
}


def metric_title(metric: str) -> str:
    """The title of a metric; its name if it has none."""
    return _METRICS[metric][0] if metric in _METRICS else metric


def direction(metric: str) -> str:
    """`higher` or `lower` is better, or nothing."""
    return _METRICS[metric][1] if metric in _METRICS else ""


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 by definition."""
    return metric in _METRICS and _METRICS[metric][2]


def with_arrow(name: str, better: Any) -> str:
    """A name with the arrow of the better direction, kept on one line."""
    return f"{name}\N{NO-BREAK SPACE}{ARROWS.get(str(better), '')}".removesuffix("\N{NO-BREAK SPACE}")


def heading(metric: str, found: Any = None) -> str:
    """The title of a metric with its arrow; a measurement may record the better direction itself."""
    return with_arrow(metric_title(metric), part(found).get("direction") or direction(metric))


def split(condition: str) -> tuple[str, str]:
    """Attack or corruption, and its radius or severity: `pgd@2/255` is `pgd` and `2/255`."""
    name, _, size = condition.rpartition("@")
    return (name, size) if name else (condition, "")


def radius(size: str) -> float | None:
    """The number written as `2/255` or `0.01`; None for other text."""
    above, _, below = size.partition("/")
    try:
        value = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def by_radius(sizes: Iterable[str]) -> list[str]:
    """Radii in rising order."""
    return sorted(sizes, key=lambda size: (radius(size) or 0.0, size))


def is_control(condition: str) -> bool:
    """Whether a condition is the noise control."""
    return split(condition)[0].partition(":")[0] == CONTROL


def ordered(conditions: Iterable[str]) -> list[str]:
    """Conditions of one attack together, its radii rising; attacks in the order of the file, noise last."""
    found = list(conditions)
    families = list(dict.fromkeys(split(name)[0] for name in found))

    def place(condition: str) -> tuple[bool, int, float]:
        name, size = split(condition)
        return is_control(condition), families.index(name), radius(size) or 0.0

    return sorted(found, key=place)


def middle_radius(conditions: Iterable[str]) -> float | None:
    """The middle one of the radii that occur; of an even number the upper."""
    radii = sorted({found for name in conditions if (found := radius(split(name)[1])) is not None})
    return radii[len(radii) // 2] if radii else None
