"""The headline metrics, which tables show and comparisons test by default, and the best floor of a metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

HEADLINES = (
    "clinical:rules", "green:rules", "crimson:rules", "errors.significant", "error-free.significant", "findings.f1",
    "findings.f1.side", "findings.f1.full", "chexpert14.micro.f1:uncertain-positive",
    "chexpert14.macro.f1:uncertain-positive", "chexpert5.micro.f1:uncertain-positive", "rougeL:google",
    "bleu1:coco", "bleu4:coco", "cider:coco",
)  # fmt: skip

ARROWS = {"higher": "↑", "lower": "↓"}  # which way is better


def headline_metrics(names: Iterable[str]) -> list[str]:
    """The headline metrics among the names, then the totals of the requested model judges; all if none."""
    known = list(names)
    judged = [name for name in known if is_model_judge(name) and not is_error_count(name)]
    return [name for name in HEADLINES if name in known] + judged or known


def is_model_judge(name: str) -> bool:
    """Whether a metric is a language model's judgement: `chexprompt:http://…`."""
    return ":" in name.partition(":")[2]


def is_error_count(name: str) -> bool:
    """Whether a metric counts one kind of error only: one of twelve counts, by rule or by a judge."""
    counted = name.partition(":")[0]  # a model's name after the colon may have points of its own
    return counted.startswith(("errors.", "chexprompt.")) and counted.count(".") > 1 and ".error-free" not in counted


def best_floor(name: str, direction: str, floors: Mapping[str, Mapping[str, float | None]]) -> tuple[str, float] | None:
    """The control with the best value of a metric, and that value; None where no control has one."""
    values = ((control, found.get(name)) for control, found in floors.items())
    known = [(control, value) for control, value in values if value is not None and not math.isnan(value)]
    sign = 1 if direction == "higher" else -1
    return max(known, key=lambda item: sign * item[1], default=None)
