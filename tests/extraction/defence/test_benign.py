from __future__ import annotations

import numpy as np
import pytest

from cxrlab.extraction.defence.defences import Coarse, Gate
from cxrlab.extraction.defence.defend import BenignCase, benign_cost, benign_harms
from cxrlab.metrics.report_pairs import Pair

SAID = "A large left pleural effusion is seen. No pneumothorax."


def cases(count: int) -> list[BenignCase]:
    """Images of tone 0, 1, 2 …, each with a report that repeats its reference."""
    images = [np.full((4, 4), number, np.uint8) for number in range(count)]
    return [BenignCase(Pair(f"s{n}", SAID, SAID, f"p{n}"), image) for n, image in enumerate(images)]


def test_refusals_count_as_empty_reports() -> None:
    """A gate that refuses 2 of 8 images whose reports were perfect: precision 1, recall 6/8, F1 = 12/14."""
    found = benign_cost(Gate(lambda pixels: bool(pixels[0, 0] > 1)), cases(8), trials=50, seed=1)
    assert found["n"] == 8 and found["refused"]["value"] == 0.25 and found["reworded"]["value"] == 0.0
    assert found["difference"]["findings.f1"]["a"] == 1.0
    assert found["difference"]["findings.f1"]["b"] == pytest.approx(12 / 14)
    assert 0.03 < found["refused"]["low"] < 0.04  # exact: 0.0319 for 2 of 8
    assert benign_harms(found, tolerated=0.01)[0] == "refuses 25.0% of benign images"
    assert benign_harms(found, tolerated=0.04) == []  # too few images to say so of the score


def test_coarsening_keeps_the_findings_and_loses_the_degree() -> None:
    found = benign_cost(Coarse(), cases(8), trials=50, seed=1)["difference"]
    assert found["findings.f1"]["difference"] == 0.0
    assert (found["findings.f1.full"]["a"], found["findings.f1.full"]["b"]) == (1.0, 0.0)
    assert found["rougeL:coco"]["difference"] < 0


def test_harm_is_reported_where_a_whole_interval_says_so() -> None:
    fine = {"low": -0.1, "high": 0.1, "difference": 0.0}
    cost = {
        "refused": {"value": 0.0, "low": 0.0, "high": 0.01},
        "difference": {"findings.f1": fine, "errors.significant": fine},
    }
    assert benign_harms(cost, 0.01) == []
    worse = {"low": 0.2, "high": 0.4, "difference": 0.3}
    more = {**cost, "difference": {"findings.f1": worse, "errors.significant": worse}}
    assert benign_harms(more, 0.01) == ["errors.significant changes by +0.300"]
    assert benign_harms({**cost, "quota": {"share_refused": 0.2}}, 0.01) == [
        "refuses 20.0% of benign requests at the stated use"
    ]
