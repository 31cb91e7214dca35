"""Reports scored once each, in pieces, with the same numbers as scored in one batch."""

from __future__ import annotations

import numpy as np
import pytest
from small_evidence import AIR, BABBLE, LEFT, NORMAL, RIGHT, evidence, image, lines, truth

from cxrlab.metrics.base import families
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.robustness import audit_metrics
from cxrlab.robustness.audit_metrics import REPORT_METRICS, ScoredReports

TEXTS = (NORMAL, LEFT, RIGHT, AIR, BABBLE)


def test_the_numbers_are_those_of_the_metrics_on_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten studies in pieces of three pairs; the last has no reference, and so no value."""
    monkeypatch.setattr(audit_metrics, "_PAIRS_PER_BATCH", 3)
    studies = [truth(f"s{row}", TEXTS[row % 3] if row < 9 else None) for row in range(10)]
    said = {f"s{row}": image(TEXTS[row % 5]) for row in range(10)}
    found = evidence(studies, lines("a", "clean", said))
    scores = ScoredReports(found)
    batch = Batch([Pair(study.id, study.reference, said[study.id].report) for study in studies])
    wanted = {tally.metric.name: tally for family in families(REPORT_METRICS) for tally in family.tallies(batch)}
    for name in REPORT_METRICS:
        tally = scores.tally(name, found.clean("a").image)
        np.testing.assert_array_equal(tally.rows, wanted[name].rows)
        np.testing.assert_array_equal(tally.defined, wanted[name].defined)
        assert tally.n == 9


def test_equal_words_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six images of two studies under three conditions, two different texts and one reference: three readings."""
    from cxrlab.findings import reader

    seen: list[str] = []
    plain = reader.read
    monkeypatch.setattr(reader, "read", lambda text: (seen.append(text), plain(text))[1])
    images = {"s1": image(NORMAL), "s2": image(LEFT)}
    several = [lines("a", condition, images) for condition in ("clean", "blur@1", "blur@2")]
    ScoredReports(evidence([truth("s1", AIR), truth("s2", AIR)], *several))
    assert sorted(seen) == sorted([NORMAL, LEFT, AIR])


def test_a_study_without_a_report_has_no_errors_rather_than_none() -> None:
    found = evidence([truth("s1", NORMAL), truth("s2", NORMAL)], lines("a", "clean", {"s1": image(AIR), "s2": image()}))
    np.testing.assert_array_equal(ScoredReports(found).errors(found.clean("a").image), [1.0, np.nan])
