"""F1 of findings at three levels of detail, in counts that a person can check."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.records import Finding
from cxrlab.findings.merge_statements import side_by_side
from cxrlab.metrics.finding_scores import FindingsF1, counted, f1_of
from cxrlab.metrics.report_pairs import Batch, Pair


def test_the_three_levels_ask_for_more_and_more() -> None:
    """The side is wrong once and the degree once: kind 2 of 2, side 1 of 2, full 0 of 2."""
    reference = (Finding("pleural effusion", side="left"), Finding("edema", severity="mild"))
    said = "no matter"
    pair = Pair("a", said, said, findings=reference)
    candidate = (Finding("pleural effusion", side="right"), Finding("edema", severity="severe"))
    batch = Batch([pair])
    batch.candidate_findings = (candidate,)  # type: ignore[misc]
    values = {tally.metric.name: tally.value for tally in FindingsF1().tallies(batch)}
    assert values == {"findings.f1": 1.0, "findings.f1.side": 0.5, "findings.f1.full": 0.0}


def test_repeating_a_finding_earns_nothing() -> None:
    one = [Finding("edema")]
    assert counted(*side_by_side(one, one * 3)) == (1, 0, 0)


def test_a_denied_finding_is_not_a_finding() -> None:
    assert counted([Finding("edema", "absent")], [Finding("edema")]) == (0, 1, 0)


def test_nothing_to_find_and_nothing_said_is_right() -> None:
    assert f1_of(np.zeros(3)) == 1.0
    assert f1_of(np.array([1.0, 1.0, 0.0])) == pytest.approx(2 / 3)


def test_a_reference_without_a_word_leaves_the_mean() -> None:
    batch = Batch([Pair("a", None, "Edema."), Pair("b", "___", "Edema."), Pair("c", "Edema.", "")])
    (tally, *_) = FindingsF1().tallies(batch)
    assert (tally.n, tally.undefined) == (1, 2)
