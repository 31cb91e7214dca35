"""What is shown first."""

from __future__ import annotations

from cxrlab.core.headline_metrics import HEADLINES, headline_metrics
from cxrlab.metrics.base import default_names


def test_headlines_keep_their_order_and_fall_back_to_all() -> None:
    assert headline_metrics(["bleu4:coco", "other", "clinical:rules"]) == ["clinical:rules", "bleu4:coco"]
    assert headline_metrics(["other"]) == ["other"]


def test_a_judge_that_was_asked_is_a_headline_by_its_sums() -> None:
    """One of the twelve counts measures one kind of error alone, whatever points the model's name has."""
    judge = "chexprompt:http://127.0.0.1:8000/v1#m.of.points"
    kind = judge.replace("chexprompt", "chexprompt.omission_finding.significant")
    whole = judge.replace("chexprompt", "chexprompt.significant")
    free = judge.replace("chexprompt", "chexprompt.error-free.significant")
    asked = ["green:rules", judge, kind, whole, free, "bleu2:coco"]
    assert headline_metrics(asked) == ["green:rules", judge, whole, free]
    assert headline_metrics([kind]) == [kind]


def test_every_headline_is_scored_by_default() -> None:
    assert set(HEADLINES) <= set(default_names())
