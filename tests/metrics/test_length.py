"""Length-controlled scores."""

from __future__ import annotations

import math

import pytest

from cxrlab.metrics.base import cards, default_names
from cxrlab.metrics.finding_scores import LengthControlled, RuleScores, length_controlled
from cxrlab.metrics.report_pairs import Batch, Pair

TWO, FOUR, ONE = "a b", "a b c d", "a"


@pytest.mark.parametrize(
    ("value", "candidate", "reference", "wanted"),
    [
        (0.8, FOUR, TWO, 0.4),  # twice as long: half as good
        (0.8, TWO, TWO, 0.8),
        (0.8, ONE, FOUR, 0.8),  # a short report is not paid for being short
        (-0.4, FOUR, TWO, -0.8),  # divided, it would rise with length
        (0.0, FOUR, TWO, 0.0),
    ],
)
def test_longer_than_the_reference_is_less(value: float, candidate: str, reference: str, wanted: float) -> None:
    assert length_controlled(value, candidate, reference) == pytest.approx(wanted)


def test_it_is_green_where_no_report_is_longer_and_less_where_one_is() -> None:
    reference = "There is a small left pleural effusion. No pneumothorax."
    same = Pair("a", reference, "Small left effusion.")
    long = Pair("b", reference, f"{reference} The heart is normal in size. The lungs are clear otherwise.")
    batch = Batch([same, long])
    (plain,) = (tally for tally in RuleScores().tallies(batch) if tally.metric.name == "green:rules")
    (controlled,) = LengthControlled().tallies(batch)
    assert controlled.by_pair[0] == plain.by_pair[0] > 0
    words = len(long.candidate.split()) / len(reference.split())  # type: ignore[union-attr]
    assert words > 1 and controlled.by_pair[1] == pytest.approx(plain.by_pair[1] / words)


def test_it_is_counted_where_it_is_asked_for_alone() -> None:
    assert "green:rules-lc" in cards() and "green:rules-lc" not in default_names()


def test_without_a_reference_there_is_no_value() -> None:
    (tally,) = LengthControlled().tallies(Batch([Pair("a", None, "Clear lungs."), Pair("b", "Clear.", "Clear.")]))
    assert math.isnan(tally.by_pair[0]) and tally.n == 1
