from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prediction_runs import CHANGED, CLEAR, EFFUSION, effusions, prediction_run

from cxrlab.core.errors import DataError, UnknownName
from cxrlab.extraction import fidelity as pairwise
from cxrlab.extraction.fidelity import counted, pairwise_wins
from cxrlab.metrics.report_pairs import Batch


def test_wins_counted_by_hand_and_turned_about(tmp_path: Path) -> None:
    """Right beats missed, missed beats missed and invented, speech beats silence; the same words are equal."""
    corpus = effusions(tmp_path / "corpus", 6)
    a = prediction_run(tmp_path / "a", [EFFUSION, CLEAR, CLEAR, EFFUSION, CLEAR, CHANGED])
    b = prediction_run(tmp_path / "b", [CLEAR, CHANGED, "", EFFUSION, EFFUSION, CHANGED])
    found = pairwise_wins(a, b, corpus)
    assert [found[name]["count"] for name in ("a_better", "equal", "b_better")] == [3, 2, 1]
    assert [found[name]["value"] for name in ("a_better", "equal", "b_better")] == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    assert found["net"]["value"] == pytest.approx(1 / 3) and found["net"]["too_few"]
    assert (found["n"], found["undefined"], found["contradicted"]) == (6, 0, 0)
    assert all(
        0 <= found[name]["low"] <= found[name]["value"] <= found[name]["high"] <= 1 for name in pairwise.OUTCOMES
    )
    turned = pairwise_wins(b, a, corpus)
    assert [turned[name]["count"] for name in ("a_better", "equal", "b_better")] == [1, 2, 3]
    assert turned["net"]["value"] == -found["net"]["value"]


def test_findings_decide_between_equal_errors(tmp_path: Path) -> None:
    """Neither report has a significant error, as nothing significant is there; one names the thing."""
    corpus = effusions(tmp_path / "corpus", 2, normal=(0, 1))
    a = prediction_run(tmp_path / "a", [CLEAR, CLEAR])
    b = prediction_run(tmp_path / "b", ["The lungs are clear. There is mild scoliosis.", CLEAR])
    found = pairwise_wins(a, b, corpus)
    assert (found["a_better"]["count"], found["equal"]["count"]) == (1, 1)


def test_a_judge_that_heeds_the_place_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that always prefers what it sees first wins nothing for anyone."""

    class First:
        signature = "first"

        def __init__(self, seed: int) -> None:
            del seed

        def opinions(self, first: Batch, second: Batch) -> np.ndarray:
            return np.array([1.0, 1.0, np.nan])

    monkeypatch.setattr(type(pairwise.JUDGES), "load", lambda self, name: First)
    corpus = effusions(tmp_path / "corpus", 3)
    runs = [prediction_run(tmp_path / name, [CLEAR] * 3) for name in "ab"]
    found = pairwise_wins(*runs, corpus, judge="first")
    assert (found["equal"]["value"], found["contradicted"], found["n"], found["undefined"]) == (1, 2, 2, 1)


def test_intervals_are_by_patient() -> None:
    """One patient with all studies leaves nothing to draw; with two, hardly anything is known."""
    verdicts = np.array([1.0, 1.0, 0.0, -1.0])
    alone = counted(verdicts, ["p"] * 4, seed=1)
    assert alone["a_better"]["value"] == 0.5 and alone["a_better"]["low"] is None
    two = counted(verdicts, ["p", "p", "q", "q"], seed=1)
    assert (two["a_better"]["low"], two["a_better"]["high"]) == (0, 1)
    assert (two["net"]["low"], two["net"]["high"]) == (-1, 1)


def test_other_studies_and_other_judges_are_refused(tmp_path: Path) -> None:
    corpus = effusions(tmp_path / "corpus", 3)
    a, b = prediction_run(tmp_path / "a", [CLEAR] * 3), prediction_run(tmp_path / "b", [CLEAR] * 2)
    with pytest.raises(DataError, match="different studies"):
        pairwise_wins(a, b, corpus)
    with pytest.raises(UnknownName, match="no pairwise judge 'rule'"):
        pairwise_wins(a, a, corpus, judge="rule")
