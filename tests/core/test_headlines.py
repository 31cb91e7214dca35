"""What is shown first."""

from __future__ import annotations

from cxrlab.core.headlines import HEADLINES, headlines
from cxrlab.metrics.families import default_names


def test_headlines_keep_their_order_and_fall_back_to_all() -> None:
    assert headlines(["bleu4:coco", "other", "clinical:rules"]) == ["clinical:rules", "bleu4:coco"]
    assert headlines(["other"]) == ["other"]


def test_every_headline_is_scored_by_default() -> None:
    assert set(HEADLINES) <= set(default_names())
