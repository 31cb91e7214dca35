"""Repeated statements are one thing; two places are two."""

from __future__ import annotations

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Presence, Severity, Side
from cxrlab.findings.merge_statements import merged, paired, same_place


def test_the_impression_completes_the_findings() -> None:
    stated = [Finding("pleural effusion", side=Side.LEFT), Finding("pleural effusion", severity=Severity.MILD)]
    (thing,) = merged(stated)
    assert (thing.side, thing.severity) == (Side.LEFT, Severity.MILD)


def test_two_places_are_two_things() -> None:
    stated = [Finding("nodule", side=Side.LEFT, location="apex"), Finding("nodule", side=Side.LEFT, location="base")]
    assert len(merged(stated)) == 2


def test_words_for_the_same_part_of_the_lung_are_one_place() -> None:
    assert same_place("base", "lower lobe") and same_place("apex", "upper zone")
    assert not same_place("apex", "base")


def test_certain_outweighs_possible() -> None:
    (thing,) = merged([Finding("edema", certainty=Certainty.POSSIBLE), Finding("edema")])
    assert thing.certainty is Certainty.CERTAIN


def test_a_denied_large_effusion_does_not_deny_the_small_one() -> None:
    denied = Finding("pleural effusion", Presence.ABSENT, severity=Severity.SEVERE)
    small = Finding("pleural effusion", severity=Severity.MILD)
    assert merged([denied, small]) == (small,)


def test_a_denial_on_the_other_side_stays() -> None:
    left = Finding("pneumothorax", Presence.ABSENT, side=Side.LEFT)
    right = Finding("pneumothorax", side=Side.RIGHT)
    assert merged([left, right]) == (left, right)


def test_left_and_right_are_bilateral_where_the_other_report_says_so() -> None:
    sides = [
        Finding("pleural effusion", side=Side.RIGHT, severity=Severity.MILD),
        Finding("pleural effusion", side=Side.LEFT, severity=Severity.MODERATE),
    ]
    (both,) = paired(sides, [Finding("pleural effusion", side=Side.BILATERAL)])
    assert (both.side, both.severity) == (Side.BILATERAL, Severity.MODERATE)
    assert paired(sides, [Finding("pleural effusion", side=Side.LEFT)]) == tuple(sides)


def test_one_side_that_differs_from_both_stays_apart() -> None:
    stated = [Finding("lung opacity", side=Side.BILATERAL, change="unchanged")]
    stated.append(Finding("lung opacity", side=Side.RIGHT, change="decreased"))
    assert len(merged(stated)) == 2
    assert len(merged([stated[0], Finding("lung opacity", side=Side.RIGHT)])) == 1
