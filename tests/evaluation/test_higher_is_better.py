from __future__ import annotations

import numpy as np

from cxrlab.evaluation.validate_metrics import score_pairs
from cxrlab.metrics.base import cards
from cxrlab.metrics.report_pairs import Batch, Pair


def test_higher_is_better_for_every_metric() -> None:
    """A report against itself is never worse than an empty one, in no metric that has a value for both."""
    text = "Large right pneumothorax. Small left pleural effusion. The heart is enlarged and unchanged."
    values = score_pairs(Batch([Pair("a", text, text), Pair("b", text, "")]))
    assert {"errors.total", "bleu1:coco", "clinical:rules"} <= set(values)
    assert all(cards()[name].by_pair for name in values)
    for name, (same, none) in values.items():
        assert np.isnan(same) or np.isnan(none) or same >= none, name


def test_only_what_is_asked_for() -> None:
    values = score_pairs(Batch([Pair("a", "x", "x")]), ["errors.total"])
    assert list(values) == ["errors.total"]
