from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.defence.defences import Gate, Quota, accounts_needed, benign_share_refused

IMAGE = np.zeros((8, 8), np.uint8)


def test_the_gate_refuses_politely_and_lets_the_model_rest() -> None:
    asked = []

    def report() -> str:
        asked.append(1)
        return "No edema."

    gate = Gate(lambda pixels: bool(pixels.mean() > 100))
    refused = gate.answer(IMAGE, report, "someone", 0)
    assert refused.refused and "not recognised" in refused.text and not asked
    passed = gate.answer(IMAGE + 200, report, "someone", 1)
    assert not passed.refused and passed.text == "No edema." and len(asked) == 1


def test_an_account_gets_its_quota_in_each_window() -> None:
    """Two answers in each window of five queries; the clock runs on refusals too."""
    quota = Quota(2, window=5)
    one = [quota.admits(IMAGE, "a", number) for number in range(10)]
    assert one == [True, True, False, False, False, True, True, False, False, False]
    assert quota.admits(IMAGE, "b", 9)


def test_a_quota_without_a_window_is_for_ever() -> None:
    quota = Quota(3)
    assert sum(quota.admits(IMAGE, "a", number) for number in range(1000)) == 3


def test_earlier_queries_count_after_a_restart() -> None:
    whole, resumed = Quota(3, window=8), Quota(3, window=8)
    before = [whole.admits(IMAGE, "a", number) for number in range(6)]
    for number in range(6):
        resumed.count("a", number)
    assert [whole.admits(IMAGE, "a", n) for n in range(6, 12)] == [resumed.admits(IMAGE, "a", n) for n in range(6, 12)]
    assert sum(before) == 3


def test_the_benign_cost_of_a_quota_in_closed_form() -> None:
    """With one image a window on average and a quota of 1: E[max(X - 1, 0)] = 1 - (1 - 1/e) = 1/e."""
    assert benign_share_refused(1.0, 1) == pytest.approx(math.exp(-1))
    assert benign_share_refused(5.0, 0) == 1.0
    assert benign_share_refused(20.0, 200) == pytest.approx(0.0, abs=1e-12)
    # Ten times too small a quota: nearly nine in ten are refused, also where exp(-rate) is no number any more.
    assert benign_share_refused(1000.0, 100) == pytest.approx(0.9, abs=1e-9)
    with pytest.raises(ConfigError):
        benign_share_refused(0.0, 1)


def test_accounts_that_a_budget_needs() -> None:
    assert accounts_needed(1500, 100) == 15
    assert accounts_needed(1501, 100, window=400) == 4
