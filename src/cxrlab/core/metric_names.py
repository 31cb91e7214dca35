"""The metrics that most people ask for first: what a table shows, and a comparison tests, when nothing is chosen."""

from __future__ import annotations

from collections.abc import Iterable

HEADLINES = (
    "clinical:rules", "green:rules", "crimson:rules", "errors.significant", "error-free.significant", "findings.f1",
    "findings.f1.side", "findings.f1.full", "chexpert14.micro.f1:uncertain-positive",
    "chexpert14.macro.f1:uncertain-positive", "chexpert5.micro.f1:uncertain-positive", "rougeL:google",
    "bleu1:coco", "bleu4:coco", "cider:coco",
)  # fmt: skip

ARROWS = {"higher": "↑", "lower": "↓"}  # which way is better


def headline_metrics(names: Iterable[str]) -> list[str]:
    """Those of the names that come first, then what judges by language models sum up; all where there are none.

    Nobody is asked who was not named: a judge that has values is one that somebody wanted to see.
    """
    known = list(names)
    judged = [name for name in known if is_model_judge(name) and not is_error_count(name)]
    return [name for name in HEADLINES if name in known] + judged or known


def is_model_judge(name: str) -> bool:
    """Whether a metric is a judge's, which is named with its model, whose name has a colon of its own."""
    return ":" in name.partition(":")[2]


def is_error_count(name: str) -> bool:
    """Whether a metric counts one kind of error alone: one of the twelve counts, by rule or by a judge."""
    counted = name.partition(":")[0]  # a model's name after the colon may have points of its own
    return counted.startswith(("errors.", "chexprompt.")) and counted.count(".") > 1
