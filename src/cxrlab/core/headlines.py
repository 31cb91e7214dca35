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


def headlines(names: Iterable[str]) -> list[str]:
    """Those of the names that come first; all of them where none does."""
    known = list(names)
    return [name for name in HEADLINES if name in known] or known
